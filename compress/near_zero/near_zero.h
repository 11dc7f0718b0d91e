// Logarithms of probabilities that a loss reads through exp(x) - 1: there the error that counts of
// an element near 0 is relative to that element. So elements above -1 are kept beside the codes, as
// they are, and their groups are coded as if each were the largest of the rest.
// docs/payload_format.md, "Near zero". Internal to compress/.
//
// An element is near zero if its bits, as an unsigned number, are below those of -1: all positive
// ones, zeros, and values above -1.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compress/format.h"
#include "compress/kernels.h"
#include "compress/types.h"

namespace pleat::compress {

// Positions of up to so many elements of a group are listed, one byte each; more are a bitmap.
inline constexpr std::size_t kMostListed = kBitmapBytes;

// Bytes that the elements near zero of one group take: their values, then their positions.
[[nodiscard]] constexpr std::size_t near_zero_bytes(std::size_t count, std::size_t size) noexcept {
  return count * size + (count < kMostListed ? count : kMostListed);
}

// Where the section begins that holds them, and its parts: a count of 16 bits per group, padded;
// per block the offset of its elements; then the elements.
struct NearZeroLayout {
  std::size_t offsets, elements;

  explicit NearZeroLayout(const GroupedLayout& layout) noexcept
      : offsets(ceil_divide(layout.groups * sizeof(std::uint16_t), 8) * 8),
        elements(offsets + layout.blocks * sizeof(std::uint64_t)) {}
};

// An upper bound of what the section of `span` takes: exact, or, for a quick look, from samples. A
// span without elements near zero has none.
[[nodiscard]] std::size_t near_zero_room(const Span& span, bool exactly,
                                         const Executor& executor) noexcept;

// As the kernel's encode(), for a job of at most a block of elements of `type`, but elements near
// zero are replaced first. Writes the number of those of each group to `counts`: 0 for a group that
// is escaped all the same.
void encode_beside_zero(ElementType type, const EncodeGroups& job, std::uint16_t* counts) noexcept;

// Writes the section. `counts`: of the groups. Returns its bytes; writes nothing beyond `capacity`
// and returns more if that is too little.
[[nodiscard]] std::size_t write_near_zero(const Span& span, const GroupedLayout& layout,
                                          const std::uint16_t* counts, std::uint8_t* section,
                                          std::size_t capacity, const Executor& executor) noexcept;

// The section of a payload of any origin.
struct NearZeroSection {
  const std::uint8_t* counts = nullptr;  // null: there is none
  const std::uint8_t* offsets = nullptr;
  const std::uint8_t* elements = nullptr;
  const std::uint8_t* end = nullptr;

  // Puts the elements of a block into `target`, the block's first element. False if the section is
  // damaged.
  //   elements  of the block
  [[nodiscard]] bool restore(std::size_t block, std::size_t block_elements, std::size_t size,
                             void* target) const noexcept;
};

}  // namespace pleat::compress
