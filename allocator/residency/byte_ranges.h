// Which bytes of a block the views on it cover.
#pragma once

#include <cstddef>
#include <vector>

namespace pleat::allocator {

// Byte range of a block that some view covers.
struct ByteRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

// Disjoint ascending ranges that hold every range that was added: exactly these while they are few,
// else the one from the first to the last byte. Nearly always there is one, which takes no memory
// of its own.
class ByteRanges {
 public:
  // The columns of a matrix are as many ranges as it has rows, and each is a span of a payload.
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
  // A single range of ours covers every byte of `range`.
  [[nodiscard]] bool cover(ByteRange range) const noexcept;

  // Joins what touches or overlaps. An empty range adds nothing.
  void add(ByteRange range) noexcept;

 private:
  void add_to_many(ByteRange range) noexcept;
  void take_hull_with(ByteRange range) noexcept;

  ByteRange one_{};  // unless many_ holds any
  std::vector<ByteRange> many_;
};

}  // namespace pleat::allocator
