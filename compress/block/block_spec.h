// What a caller asks of a block's payload, and how the values of one block are recomputed from the
// payload of another. Records keep both as opaque 64-bit words. Torch-free.
#pragma once

#include <algorithm>
#include <cstdint>

#include "compress/block/exact_lines.h"
#include "compress/types.h"

namespace pleat::compress::block {

// How the values of a block are stored.
struct BlockSpec {
  ElementType type = ElementType::kBytes;
  std::uint8_t bits = 0;  // 0: lossless
  // The values will enter an exponential, where their absolute error counts. If the step of a
  // payload is not small against 1, the raw bytes are kept instead.
  bool exponent = false;
  // The lines that may have to come back exact; plan_lines() decides.
  Lines lines{};
  Transform transform = Transform::kNone;

  [[nodiscard]] constexpr CodecSpec codec() const noexcept { return {bits, false, transform}; }

  // Bits 0 to 7: width; 8 to 15: type; 16: exponent; 17, 18: look; 19, 20: transform; 21 to 31: 0;
  // 32 to 63: elements of a row.
  [[nodiscard]] constexpr std::uint64_t pack() const noexcept {
    return static_cast<std::uint64_t>(lines.length) << 32 |
           static_cast<std::uint64_t>(transform) << 19 |
           static_cast<std::uint64_t>(lines.look) << 17 |
           static_cast<std::uint64_t>(exponent) << 16 | static_cast<std::uint64_t>(type) << 8 |
           bits;
  }
  [[nodiscard]] static constexpr BlockSpec unpack(std::uint64_t packed) noexcept {
    return {static_cast<ElementType>(packed >> 8 & 0xff),
            static_cast<std::uint8_t>(packed & 0xff),
            (packed >> 16 & 1) != 0,
            {static_cast<Look>(packed >> 17 & 3), static_cast<std::uint32_t>(packed >> 32)},
            static_cast<Transform>(packed >> 19 & 3)};
  }
  [[nodiscard]] bool operator==(const BlockSpec&) const = default;
};

// The spec of a block that is saved twice: the more careful of the two. More bits, the shorter
// rows, a transform only where both ask for it; lossless where the two disagree on the type.
[[nodiscard]] constexpr BlockSpec merge(const BlockSpec& a, const BlockSpec& b) noexcept {
  if (a.type != b.type) {
    return {ElementType::kBytes, 0, false};
  }
  if (a.bits == 0 || b.bits == 0) {
    return {a.type, 0, false};
  }
  Lines lines = a.lines.look >= b.lines.look ? a.lines : b.lines;
  if (a.lines.look == b.lines.look) {
    lines.length = std::min(a.lines.length, b.lines.length);
  }
  return {a.type, std::max(a.bits, b.bits), a.exponent || b.exponent, lines,
          std::min(a.transform, b.transform)};  // none, unbiased, nearly unbiased
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
