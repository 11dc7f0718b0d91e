// The width used where no profile exists: one uniform width for everything lossy.
#pragma once

#include <initializer_list>

namespace pleat::sensitivity {

// The largest codec width (1, 2, 3, 4, 8 bits) that is <= `bits` (1..8, fractions allowed). Group
// metadata is extra.
[[nodiscard]] constexpr unsigned uniform_width(double bits) noexcept {
  unsigned width = 1;
  for (const unsigned candidate : {2u, 3u, 4u, 8u}) {
    if (static_cast<double>(candidate) <= bits) {
      width = candidate;
    }
  }
  return width;
}

}  // namespace pleat::sensitivity
