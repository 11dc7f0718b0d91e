// A block of memory, and which of its bytes hold values. Torch-free.
#pragma once

#include <cstddef>

#include "compress/types.h"

namespace pleat::compress::block {

struct ByteRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

struct BlockSource {
  const void* data = nullptr;         // aligned to its elements; null: only its size is known
  std::size_t bytes = 0;              // of the block
  const ByteRange* ranges = nullptr;  // disjoint, ascending; bytes outside are restored as zeros
  std::size_t range_count = 0;

  [[nodiscard]] bool is_one_span() const noexcept {
    return range_count == 1 && ranges[0].begin == 0 && ranges[0].end == bytes;
  }
  // True if the ranges are in order and hold whole elements of the type.
  [[nodiscard]] bool is_sound(ElementType type) const noexcept {
    std::size_t from = 0;
    for (std::size_t i = 0; i < range_count; ++i) {
      const ByteRange& range = ranges[i];
      if (range.begin < from || range.end < range.begin || range.end > bytes ||
          (range.end - range.begin) % element_size(type) != 0)
        return false;
      from = range.end;
    }
    return true;
  }
  // Of all ranges.
  [[nodiscard]] std::size_t elements(ElementType type) const noexcept {
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < range_count; ++i) bytes += ranges[i].end - ranges[i].begin;
    return bytes / element_size(type);
  }
  [[nodiscard]] Span span(std::size_t i, ElementType type) const noexcept {
    return {data == nullptr ? nullptr : static_cast<const std::byte*>(data) + ranges[i].begin,
            (ranges[i].end - ranges[i].begin) / element_size(type), type};
  }
};

}  // namespace pleat::compress::block
