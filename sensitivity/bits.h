// The widths of the codec, and the one that is used where no profile exists: one uniform width for
// everything lossy.
#pragma once

#include <array>

namespace pleat::sensitivity {

// Ascending. A file or a caller can also name 0, which means exact.
inline constexpr std::array<unsigned, 6> kWidths{1, 2, 3, 4, 6, 8};

// The largest codec width that is <= `bits` (1..8, fractions allowed). Group metadata is extra.
[[nodiscard]] constexpr unsigned uniform_width(double bits) noexcept {
  unsigned width = kWidths.front();
  for (const unsigned candidate : kWidths) {
    if (static_cast<double>(candidate) <= bits) {
      width = candidate;
    }
  }
  return width;
}

}  // namespace pleat::sensitivity
