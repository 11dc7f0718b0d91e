// A profile as one page of HTML: bits and noise over the depth of the model, noise over payload,
// and the changes between measurements.
#pragma once

#include <string>
#include <vector>

#include "profile_figures.h"

namespace pleat::cli {

// Replaces the contents of `path`, unless that is the profile itself, `file`. False: the reason is
// on stderr.
[[nodiscard]] bool write_profile_page(const std::string& file, const ProfileFigures& figures,
                                      const std::vector<CurvePoint>& curve,
                                      const std::string& path);

}  // namespace pleat::cli
