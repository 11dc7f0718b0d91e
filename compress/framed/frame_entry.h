// The entry of each frame in a framed payload: see docs/payload_format.md, "Framed". Plain types
// only, because every instruction set's file includes this.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

namespace pleat::compress {

inline constexpr size_t kIntegerFrame = 1024;  // elements
inline constexpr size_t kFloatFrame = 256;
inline constexpr size_t kFrameBitmap = kFloatFrame / 8;  // bytes
inline constexpr unsigned kFrameWithoutZeros = 0x80;     // flag beside the width

// 4, 8 or 16 bytes, by the element's size.
template <class Word>
struct FrameEntry {
  Word base;
  uint8_t width;   // bits of a difference; floats: perhaps with kFrameWithoutZeros
  uint8_t others;  // with kFrameWithoutZeros: how many elements are not zero
  uint8_t reserved[sizeof(Word) - 2];
};
template <>
struct FrameEntry<uint16_t> {
  uint16_t base;
  uint8_t width;
  uint8_t others;
};
static_assert(sizeof(FrameEntry<uint16_t>) == 4 && sizeof(FrameEntry<uint32_t>) == 8 &&
              sizeof(FrameEntry<uint64_t>) == 16);

// Anonymous, because each instruction set compiles its own copy: see kernels.h.
namespace {

// Reads and writes entry `frame` of a table that need not be aligned.
template <class Word>
inline FrameEntry<Word> load_entry(const void* entries, size_t frame) noexcept {
  FrameEntry<Word> entry;
  memcpy(&entry, static_cast<const uint8_t*>(entries) + frame * sizeof entry, sizeof entry);
  return entry;
}
template <class Word>
inline void store_entry(void* entries, size_t frame, const FrameEntry<Word>& entry) noexcept {
  memcpy(static_cast<uint8_t*>(entries) + frame * sizeof entry, &entry, sizeof entry);
}

// Bytes of `count` differences, rounded up to 8 of them. A frame that follows only whole frames
// without a bitmap begins at a multiple of 32 bytes.
[[nodiscard]] constexpr size_t frame_codes(size_t count, unsigned width) noexcept {
  return (count + 7) / 8 * width;
}

}  // namespace

}  // namespace pleat::compress
