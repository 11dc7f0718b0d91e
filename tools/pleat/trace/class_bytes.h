// Bytes by class.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "interpose/trace/life.h"

namespace pleat::trace {

[[nodiscard]] constexpr std::int64_t sum_of(const ClassBytes& bytes) noexcept {
  return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0}, wrapping_add);
}
// The class that most is of; of equals the first.
[[nodiscard]] constexpr ByteClass largest_of(const ClassBytes& bytes) noexcept {
  return static_cast<ByteClass>(std::max_element(bytes.begin(), bytes.end()) - bytes.begin());
}

}  // namespace pleat::trace
