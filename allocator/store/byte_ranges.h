// ByteRanges holds the byte ranges of a block that its views cover.
#pragma once

#include <cstddef>
#include <vector>

namespace pleat::allocator {

// Byte range of a block that a view covers.
struct ByteRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

// Disjoint ascending ranges that cover every added range. While there are few, they cover exactly
// those; beyond that they become a single range from the first to the last byte. Usually there is
// one, which needs no memory of its own.
class ByteRanges {
 public:
  // A matrix's columns are as many ranges as it has rows, and each range is a span of a payload.
  static constexpr std::size_t kMost = 64;

  [[nodiscard]] const ByteRange* data() const noexcept {
    return many_.empty() ? &one_ : many_.data();
  }
  [[nodiscard]] std::size_t size() const noexcept {
    return many_.empty() ? (one_.begin < one_.end ? 1 : 0) : many_.size();
  }
  [[nodiscard]] bool is_all_of(std::size_t bytes) const noexcept {
    return many_.empty() && one_.begin == 0 && one_.end == bytes;
  }
  [[nodiscard]] std::size_t bytes() const noexcept {
    std::size_t sum = 0;
    for (std::size_t i = 0; i < size(); ++i) sum += data()[i].end - data()[i].begin;
    return sum;
  }
  // True if a single range covers every byte of `range`.
  [[nodiscard]] bool cover(ByteRange range) const noexcept;

  // Joins ranges that touch or overlap. An empty range adds no bytes.
  void add(ByteRange range) noexcept;

 private:
  void add_to_many(ByteRange range) noexcept;
  void take_hull_with(ByteRange range) noexcept;

  ByteRange one_{};  // used while many_ is empty
  std::vector<ByteRange> many_;
};

}  // namespace pleat::allocator
