// The request of a caller for a block's payload, and how the values of one block are recomputed
// from the payload of another. Records keep both as opaque words. Torch-free.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <limits>

#include "compress/lines/exact_lines.h"
#include "compress/types.h"

namespace pleat::compress::block {

// The part of a block that is kept.
enum class Kept : std::uint8_t {
  kNothing,  // only its size: the values come back as zeros
  kSides,    // only the sides of its values (Sides): other values on the same sides come back
  kValues,
};

// How wide the steps of a lossy group may be. A group with wider ones is kept exact.
enum class Steps : std::uint8_t {
  kAny,
  kCurved,    // the values are arguments of a function whose derivative is not linear
  kExponent,  // the values enter an exponential or a sine, where their absolute error counts
};

using compress::Sides;

// The widest step. An error uniform over a step D is D^2 / 12 in the mean square.
//   kCurved    moves a derivative f' by D^2 / 24 f''' in the mean. At 1/2 that is 2.1 % of the
//              derivative's range for tanh, erf and atan where it is most, 0.7 % for gelu, 0.5 %
//              for mish and 0.3 % for silu.
//   kExponent  makes exp(x) D^2 / 24 too large in the mean, with a deviation of D / sqrt(12). At
//              1/8 that is 0.07 % and 3.6 %. At 8 bits a group may span 32 then, as logits do.
[[nodiscard]] constexpr float widest_step(Steps steps) noexcept {
  return steps == Steps::kExponent ? 0.125f
         : steps == Steps::kCurved ? 0.5f
                                   : std::numeric_limits<float>::infinity();
}

// How the values of a block lie in channels: element i is of channel i / inner % count.
struct Channels {
  std::uint32_t count = 0;  // 0: there are none, or too many
  std::uint32_t inner = 1;

  [[nodiscard]] bool operator==(const Channels&) const = default;
};

// How the values of a block are stored.
struct BlockSpec {
  ElementType type = ElementType::kBytes;
  std::uint8_t bits = 0;   // 0: lossless
  std::uint8_t floor = 0;  // the least width that the values bear, however few bits are asked for
  Kept kept = Kept::kValues;
  Steps steps = Steps::kAny;
  // The values are logarithms of probabilities p that a loss reads through p - 1: values above -1
  // come back exact.
  bool near_zero = false;
  // Rows whose parts have exponents, and the lines that may have to come back exact: flat_lines()
  // decides.
  Lines lines{};
  Transform transform = Transform::kNone;
  // With kValues: each value comes back on its side, at any width.
  Sides sides{};
  // With kValues and without sides.
  Channels channels{};

  [[nodiscard]] constexpr std::uint8_t width() const noexcept {
    return bits == 0 ? std::uint8_t{0} : std::max(bits, floor);
  }

  [[nodiscard]] constexpr bool rows_have_exponents() const noexcept {
    return (lines.look == Look::kParts || lines.look == Look::kRows) &&
           lines.length >= kFewestOfPart;
  }
  // Of a span's values, or of their sides if only these are kept.
  [[nodiscard]] constexpr CodecSpec codec() const noexcept {
    return {.bits = bits,
            .transform = transform,
            .widest_step = widest_step(steps),
            .near_zero = near_zero,
            .exponents = {.row = rows_have_exponents() ? lines.length : 0},
            .sides = kept == Kept::kSides ? sides : Sides{}};
  }

  // Word 0, bits 0 to 7: width; 8 to 15: type; 16, 17: look; 18, 19: transform; 20, 21: steps;
  // 22, 23: kept; 24: near_zero; 25 to 27: kind of sides; 28: nan_inside; 29 to 31: floor, 7 for
  // 8; 32 to 63: elements of a row. Word 1: the bits of low and, above them, of high; without sides
  // the channels and, above them, inner.
  using Words = std::array<std::uint64_t, 2>;
  [[nodiscard]] constexpr Words pack() const noexcept {
    const auto at = [](auto value, unsigned bit) {
      return static_cast<std::uint64_t>(value) << bit;
    };
    const std::uint32_t low =
        sides.any() ? std::bit_cast<std::uint32_t>(sides.low) : channels.count;
    const std::uint32_t high =
        sides.any() ? std::bit_cast<std::uint32_t>(sides.high) : channels.inner;
    return {at(lines.length, 32) | at(std::min<std::uint8_t>(floor, 7), 29) |
                at(sides.nan_inside, 28) | at(sides.kind, 25) | at(near_zero, 24) | at(kept, 22) |
                at(steps, 20) | at(transform, 18) | at(lines.look, 16) | at(type, 8) | bits,
            at(high, 32) | low};
  }
  [[nodiscard]] static constexpr BlockSpec unpack(const Words& words) noexcept {
    const auto [w, bounds] = words;
    const auto low_word = [](std::uint64_t word) { return static_cast<std::uint32_t>(word); };
    BlockSpec spec{.type = static_cast<ElementType>(w >> 8 & 0xff),
                   .bits = static_cast<std::uint8_t>(w & 0xff),
                   .floor = static_cast<std::uint8_t>((w >> 29 & 7) == 7 ? 8 : w >> 29 & 7),
                   .kept = static_cast<Kept>(w >> 22 & 3),
                   .steps = static_cast<Steps>(w >> 20 & 3),
                   .near_zero = (w >> 24 & 1) != 0,
                   .lines = {static_cast<Look>(w >> 16 & 3), low_word(w >> 32)},
                   .transform = static_cast<Transform>(w >> 18 & 3),
                   .sides = {static_cast<Sides::Kind>(w >> 25 & 7), (w >> 28 & 1) != 0, 0, 0}};
    if (spec.sides.any()) {
      spec.sides.low = std::bit_cast<float>(low_word(bounds));
      spec.sides.high = std::bit_cast<float>(low_word(bounds >> 32));
    } else {
      spec.channels = {low_word(bounds), low_word(bounds >> 32)};
    }
    return spec;
  }
  [[nodiscard]] bool operator==(const BlockSpec&) const = default;
};

[[nodiscard]] constexpr BlockSpec lossless(ElementType type) noexcept { return {.type = type}; }

// The spec of a block that is saved twice: the more careful of the two. A part that only one of
// them keeps is kept: values before sides before neither. More bits, the higher floor, the narrower
// steps, the shorter rows, a transform and channels only where both ask for them, the sides of
// either; lossless where the two disagree on the type or on the sides.
[[nodiscard]] constexpr BlockSpec merge(const BlockSpec& a, const BlockSpec& b) noexcept {
  if (a.type != b.type) return lossless(ElementType::kBytes);
  if (a.kept == Kept::kNothing || b.kept == Kept::kNothing) return a.kept == Kept::kNothing ? b : a;
  const auto exact = [](const BlockSpec& s) { return s.kept == Kept::kValues && s.bits == 0; };
  if (exact(a) || exact(b) || (a.sides.any() && b.sides.any() && a.sides != b.sides))
    return lossless(a.type);
  const Sides sides = a.sides.any() ? a.sides : b.sides;
  if (a.kept != b.kept) {
    BlockSpec values = a.kept == Kept::kValues ? a : b;
    values.sides = sides;
    if (sides.any()) values.channels = {};
    return values;
  }
  Lines lines = a.lines.look >= b.lines.look ? a.lines : b.lines;
  if (a.lines.look == b.lines.look) lines.length = std::min(a.lines.length, b.lines.length);
  return {.type = a.type,
          .bits = std::max(a.bits, b.bits),
          .floor = std::max(a.floor, b.floor),
          .kept = a.kept,
          .steps = std::max(a.steps, b.steps),
          .near_zero = a.near_zero || b.near_zero,
          .lines = lines,
          .transform = std::min(a.transform, b.transform),  // none, unbiased, nearly unbiased
          .sides = sides,
          .channels = !sides.any() && a.channels == b.channels ? a.channels : Channels{}};
}

// A block without a payload is *recomputed*: its values are `function` of those that the payload of
// another block, its *argument*, gives. Both are of `type`.
struct Recomputed {
  Function function = Function::kNone;
  ElementType type = ElementType::kBytes;

  // Never 0, unless the function is none. Bits 0 to 7: function; 8 to 15: type.
  [[nodiscard]] constexpr std::uint64_t pack() const noexcept {
    return static_cast<std::uint64_t>(type) << 8 | static_cast<std::uint64_t>(function);
  }
  [[nodiscard]] static constexpr Recomputed unpack(std::uint64_t packed) noexcept {
    return {static_cast<Function>(packed & 0xff), static_cast<ElementType>(packed >> 8 & 0xff)};
  }
  [[nodiscard]] bool operator==(const Recomputed&) const = default;
};

}  // namespace pleat::compress::block
