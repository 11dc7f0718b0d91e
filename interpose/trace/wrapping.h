// Signed sums of numbers that anybody may have made up: they are never undefined. Sums wrap;
// distances end at the largest number.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

namespace pleat::trace {

[[nodiscard]] constexpr std::int64_t wrapping_add(std::int64_t a, std::int64_t b) noexcept {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}
[[nodiscard]] constexpr std::int64_t wrapping_subtract(std::int64_t a, std::int64_t b) noexcept {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) - static_cast<std::uint64_t>(b));
}

// How far `a` is above `b`, at least 0.
[[nodiscard]] constexpr std::int64_t distance_above(std::int64_t a, std::int64_t b) noexcept {
  if (a <= b) return 0;
  constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
  return static_cast<std::int64_t>(
      std::min(static_cast<std::uint64_t>(a) - static_cast<std::uint64_t>(b), kMost));
}

}  // namespace pleat::trace
