// Where this Pleat is installed: libpleat.so and the bridges beside it. Looks at file names only
// and loads nothing.
#pragma once

#include <compare>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pleat::cli {

// A release of torch as a bridge's file name spells it.
struct TorchRelease {
  unsigned major = 0;
  unsigned minor = 0;
  friend auto operator<=>(const TorchRelease&, const TorchRelease&) = default;
};

// The release of a version such as "2.11.0+cu130" or "2.11.0a0+git1234"; nullopt if it has none.
[[nodiscard]] std::optional<TorchRelease> parse_release(std::string_view version);
[[nodiscard]] std::string to_string(TorchRelease release);
[[nodiscard]] std::string bridge_file_name(TorchRelease release);

struct Installation {
  std::filesystem::path library;                 // absolute; empty: not found
  std::vector<std::filesystem::path> looked_in;  // folders, in the order they were asked
  std::vector<TorchRelease> bridges;             // sorted
};

// Looks in PLEAT_LIB_DIR if it is set, else relative to the executable, as built, installed, or
// installed by pip.
[[nodiscard]] Installation find_installation();

// "libpleat.so not found in A or B; ..." with what to do about it.
[[nodiscard]] std::string missing_library_message(const Installation& installation);
// "no bridge in DIR; ..." with what to do about it.
[[nodiscard]] std::string missing_bridges_message(const Installation& installation);

}  // namespace pleat::cli
