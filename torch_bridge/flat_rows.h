// A normalisation divides by how far a row deviates from its mean, and its gradient multiplies the noise
// of the saved input by the inverse. A row that shares a quantisation group with one of much larger
// values gets their noise: for one of zeros (padding) that is 300 times the gradient. Torch-free.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "allocator/block_codec.h"
#include "compress/compress.h"

namespace pleat::bridge {

// The width, of `bits` (1 to 8), 8 and 0 (exact) the first, at which a step of every group of 256 elements
// is at most half the range of every row of `row` elements that it touches. Groups and rows begin at
// `data`. Most rows are judged by their first few elements; rows of less than 16 are not. fp32, bf16, fp16;
// others: `bits`.
[[nodiscard]] std::uint8_t bits_for_rows(const void* data, std::size_t elements, compress::ElementType type,
                                         std::size_t row, std::uint8_t bits) noexcept;

// The byte ranges of `data` without the rows of zeros, which are what padding and masks leave: what no
// range covers is restored as zero. Empty where there are none (of many rows, where none is seen at every
// eighth), or where they leave pieces too short to be worth a span each. Throws std::bad_alloc.
[[nodiscard]] std::vector<allocator::ByteRange> ranges_without_zero_rows(const void* data, std::size_t elements,
                                                                         compress::ElementType type,
                                                                         std::size_t row);

}  // namespace pleat::bridge
