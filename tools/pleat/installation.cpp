#include "installation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "torch_bridge/c_abi.h"

namespace pleat::cli {
namespace fs = std::filesystem;
namespace {

constexpr const char* kLibrary = "libpleat.so";

// Python's subfolders of `folder`, newest first: lib/python3.11, lib/python3.10.
std::vector<fs::path> python_folders(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error))
    if (entry.path().filename().string().starts_with("python3")) found.push_back(entry.path());
  std::sort(found.rbegin(), found.rend());
  return found;
}

std::vector<fs::path> candidate_folders() {
  if (const char* named = std::getenv("PLEAT_LIB_DIR"); named != nullptr && *named != '\0')
    return {fs::absolute(named)};
  std::error_code error;
  const fs::path executable = fs::read_symlink("/proc/self/exe", error);
  if (error) return {};
  const fs::path prefix = executable.parent_path().parent_path();
  std::vector<fs::path> folders = {prefix / "lib"};  // build/bin, /usr/local/bin
  if (const fs::path installed = prefix / PLEAT_INSTALL_LIBDIR; installed != folders.front())
    folders.push_back(installed);               // lib64, lib/x86_64-linux-gnu
  folders.push_back(prefix / "pleat" / "lib");  // pip install --target
  for (const char* lib : {"lib", "lib64"})      // an environment's bin, ~/.local/bin
    for (const fs::path& python : python_folders(prefix / lib))
      for (const char* packages : {"site-packages", "dist-packages"})
        folders.push_back(python / packages / "pleat" / "lib");
  return folders;
}

std::vector<TorchRelease> bridges_in(const fs::path& folder) {
  std::vector<TorchRelease> found;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    TorchRelease release;
    if (std::sscanf(name.c_str(), PLEAT_BRIDGE_FILE_FORMAT, &release.major, &release.minor) == 2 &&
        name == bridge_file_name(release))
      found.push_back(release);
  }
  std::sort(found.begin(), found.end());
  return found;
}

constexpr const char* kBuildRemedy =
    "build it with `bash tools/setup.sh` in Pleat's sources, or `pip install --no-build-isolation "
    ".` "
    "next to the torch you use";

}  // namespace

std::optional<TorchRelease> parse_release(std::string_view version) {
  TorchRelease release;
  if (std::sscanf(std::string(version).c_str(), "%3u.%3u", &release.major, &release.minor) != 2)
    return std::nullopt;
  return release;
}

std::string to_string(TorchRelease release) {
  return fmt::format("{}.{}", release.major, release.minor);
}

std::string bridge_file_name(TorchRelease release) {
  char name[64];
  std::snprintf(name, sizeof name, PLEAT_BRIDGE_FILE_FORMAT, release.major, release.minor);
  return name;
}

Installation find_installation() {
  Installation installation;
  for (const fs::path& folder : candidate_folders()) {
    installation.looked_in.push_back(folder);
    std::error_code error;
    if (!fs::exists(folder / kLibrary, error)) continue;
    const fs::path absolute = fs::canonical(folder, error);
    installation.library = (error ? folder : absolute) / kLibrary;
    installation.bridges = bridges_in(folder);
    break;
  }
  return installation;
}

std::string missing_library_message(const Installation& installation) {
  std::vector<std::string> folders;
  for (const fs::path& folder : installation.looked_in) folders.push_back(folder.string());
  return fmt::format("{} not found in {}; {}, or set PLEAT_LIB_DIR to the folder that holds it",
                     kLibrary, fmt::join(folders, " or "), kBuildRemedy);
}

std::string missing_bridges_message(const Installation& installation) {
  return fmt::format("no bridge into PyTorch in {}; {}",
                     installation.library.parent_path().string(), kBuildRemedy);
}

}  // namespace pleat::cli
