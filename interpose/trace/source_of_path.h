// Whose source a file of Python is: the rule by which a stack has one line at which a person looks.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace pleat::trace {

enum class Source : std::uint8_t {
  kUser,
  kPackage,  // installed, or Python's own
  kLibrary,  // of torch and what is built on it
};

[[nodiscard]] constexpr Source source_of(std::string_view path) noexcept {
  constexpr std::array<std::string_view, 4> kLibraries{"/torch/", "/torch_geometric/",
                                                       "/transformers/", "/torchvision/"};
  constexpr std::array<std::string_view, 3> kPackages{"/site-packages/", "/dist-packages/",
                                                      "/lib/python3."};
  for (const std::string_view part : kLibraries)
    if (path.find(part) != std::string_view::npos) return Source::kLibrary;
  for (const std::string_view part : kPackages)
    if (path.find(part) != std::string_view::npos) return Source::kPackage;
  return path.starts_with("<frozen ") ? Source::kPackage : Source::kUser;
}

}  // namespace pleat::trace
