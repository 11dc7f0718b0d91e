// Whether the elements of a group were rounded to a few levels, and how they may have lain before.
// Internal to compress/block/.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "compress/element_math.h"

namespace pleat::compress::block {
namespace {

// How far the elements of a group lie from its anchor.
class Distances {
 public:
  // Of elements that count: `count` of them.
  Distances(const float* distances, std::size_t count, float step) noexcept
      : few_(count_levels(distances, count)) {
    for (std::size_t i = 0; i < count; ++i) farthest_ = std::max(farthest_, distances[i]);
    rounded_ = is_finite_value(farthest_) && (few_ || is_on_grid(distances, count, step));
  }
  // True if they come from codes, of at most four bits or of the same width: they are few, or
  // would be rounded hardly at all (1/6 in the mean, were they even). Not if a float does not hold
  // the distances.
  [[nodiscard]] bool were_rounded() const noexcept { return rounded_; }
  [[nodiscard]] float farthest() const noexcept { return farthest_; }
  // Within this the elements at the anchor lay before, evenly. Rounding is unbiased: their mean was
  // the share that went up to the next level. The other elements there came from above it, as much
  // as went from there to the third.
  [[nodiscard]] float lowest_spread() const noexcept {
    const Level first = next_level(-1), second = next_level(first.distance);
    if (!few_ || first.distance != 0 || second.count == 0) return 0;
    const Level third = next_level(second.distance);
    const float beyond = third.distance < 2.5f * second.distance ? third.count / 2 : 0;
    const float up = std::max(second.count - beyond, 0.0f);
    return second.distance * std::min(1.0f, 2 * up / (first.count + up));
  }

 private:
  static constexpr std::size_t kFew = 16;
  static constexpr std::size_t kPlaces = 64;  // open addressing

  struct Level {
    float distance, count;
  };
  [[nodiscard]] Level next_level(float after) const noexcept {
    Level next{INFINITY, 0};
    for (std::size_t i = 0; i < size_; ++i)
      if (levels_[i].distance > after && levels_[i].distance < next.distance) next = levels_[i];
    return next;
  }
  // False as soon as there are more than a few.
  bool count_levels(const float* distances, std::size_t count) noexcept {
    std::array<std::uint8_t, kPlaces> places{};  // level + 1
    for (std::size_t i = 0; i < count; ++i) {
      const float distance = distances[i];
      std::size_t at = bits_of(distance) * 0x9E37'79B9u >> 26;
      while (places[at] != 0 && levels_[places[at] - 1].distance != distance)
        at = (at + 1) % kPlaces;
      if (places[at] == 0) {
        if (size_ == kFew) return false;
        levels_[size_++] = {distance, 0};
        places[at] = static_cast<std::uint8_t>(size_);
      }
      levels_[places[at] - 1].count += 1;
    }
    return true;
  }
  static bool is_on_grid(const float* distances, std::size_t count, float step) noexcept {
    constexpr float kMostSteps = 1 << 20;
    float rounding = 0, beyond = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const float steps = std::min(distances[i] / step, kMostSteps);
      const float f = steps - static_cast<float>(static_cast<std::int32_t>(steps));
      rounding += steps >= 1 ? f * (1 - f) : 0;
      beyond += steps >= 1 ? 1 : 0;
    }
    return beyond >= 8 && rounding * 12 < beyond;
  }

  std::size_t size_ = 0;
  std::array<Level, kFew> levels_;
  const bool few_;
  float farthest_ = 0;
  bool rounded_ = false;
};

}  // namespace
}  // namespace pleat::compress::block
