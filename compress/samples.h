// Which groups a quick look takes: spread evenly, and not periodic, so that rows and channels of
// any length are met.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pleat::compress {

// The `i`-th of the samples of `groups` groups (less than 2^32). May name a group twice.
[[nodiscard]] constexpr std::size_t sampled_group(std::size_t i, std::size_t groups) noexcept {
  const std::uint32_t place = static_cast<std::uint32_t>(i) * 0x9E37'79B9u;  // golden ratio
  return static_cast<std::size_t>((std::uint64_t{place} * groups) >> 32);
}

}  // namespace pleat::compress
