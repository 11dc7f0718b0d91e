// `pleat profile`: the profile of a program's saved tensors, and its gain. Reads files;
// starts no process.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "profile_figures.h"

namespace pleat::cli {

// Orders of rows: as backward reads them; by name; else the largest comes first, and rows
// without the number last.
inline constexpr std::array<std::string_view, 7> kProfileSorts{
    "backward", "bytes", "payload", "sensitivity", "share", "bits", "producer"};

struct ProfileRequest {
  std::string file;
  std::string other;  // of `diff`
  bool as_json = false;
  std::string sort = "backward";  // one of the above
  std::optional<double> bits;     // 1..8; none: those of the profile
  std::string html;               // empty: none
  bool why = false;               // `show`: the trail of each width
};

// Each prints to stdout and returns the exit code. A file that is no profile, or an output that
// cannot be written, is one line on stderr.
inline constexpr int kProfileTrouble = 2;
[[nodiscard]] int show_profile(const ProfileRequest& request);
[[nodiscard]] int show_profile_curve(const ProfileRequest& request);

// Exit code 1: the profiles are of different models.
inline constexpr int kDifferentModels = 1;
[[nodiscard]] int diff_profiles(const ProfileRequest& request);

// Exit codes: 0, good; 1, of use, with warnings; 2, of no use, or no profile.
inline constexpr int kProfileWarning = 1;
[[nodiscard]] int check_profile(const ProfileRequest& request);

// Replaces the contents of `path`, unless that is the profile itself, `file`. False: the reason is
// on stderr.
[[nodiscard]] bool write_profile_page(const std::string& file, const ProfileFigures& figures,
                                      const std::vector<CurvePoint>& curve,
                                      const std::string& path);

}  // namespace pleat::cli
