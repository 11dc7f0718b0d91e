// A profile as one page of HTML that needs no network: bits and noise over the depth of the model,
// noise over payload, and the changes between measurements.
#pragma once

#include <string>
#include <vector>

#include "profile_figures.h"

namespace pleat::cli {

struct ProfilePage {
  const std::string& file;  // its name
  const ProfileFigures& figures;
  const std::vector<CurvePoint>& curve;
};

[[nodiscard]] std::string profile_html(const ProfilePage& page);
// Replaces what `path` holds, unless that is the profile itself. False: the reason is on stderr.
[[nodiscard]] bool write_html(const ProfilePage& page, const std::string& path);

}  // namespace pleat::cli
