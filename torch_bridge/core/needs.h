// What a saved tensor needs of those that read it in backward: how much noise it may bear, and
// which of its rows are normalised. Torch-free.
#pragma once

#include <algorithm>
#include <cstdint>

namespace pleat::bridge {

// How much noise a saved tensor may carry, judged by the node that reads it in backward.
enum class Care : std::uint8_t {
  kNone,   // any width
  kEight,  // it enters an exponential, or is a logit of a loss: 8 bits at least
  kExact,  // a factor of linear algebra, a comparison, a coordinate: no noise at all
  kPole,   // a divisor, an argument of log or sqrt: nor may what it was made of (before_pole.h)
};

// Along what a normalisation takes its statistics: compress/block/exact_lines.h.
enum class Rows : std::uint8_t {
  kNone,
  kLastDimension,
  kPlanes,   // of an image: all dimensions but the first two; of a matrix its columns
  kSamples,  // all dimensions but the first, or a part of them
};

// What a tensor needs of those that save it.
struct Needs {
  Care care = Care::kNone;
  Rows rows = Rows::kNone;

  constexpr Needs() = default;
  constexpr Needs(Care c, Rows r = Rows::kNone)
      : care(c), rows(r) {}  // implicit: most need care only
  constexpr void raise(Needs other) noexcept {
    care = std::max(care, other.care);
    rows = std::max(rows, other.rows);
  }
  [[nodiscard]] bool operator==(const Needs&) const = default;
};

}  // namespace pleat::bridge
