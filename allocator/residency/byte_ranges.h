// Which bytes of a block the views on it cover.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace pleat::allocator {

// Byte range of a block that some view covers.
struct ByteRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

// Adds [begin, end) to an ascending list of disjoint ranges, joining what touches.
void add_range(std::vector<ByteRange>& ranges, ByteRange range);

// Disjoint ascending ranges. Nearly always there is one, which takes no memory of its own.
class ByteRanges {
 public:
  [[nodiscard]] const ByteRange* data() const noexcept {
    return many_.empty() ? &one_ : many_.data();
  }
  [[nodiscard]] std::size_t size() const noexcept {
    return many_.empty() ? (one_.begin < one_.end ? 1 : 0) : many_.size();
  }
  [[nodiscard]] bool is_all_of(std::size_t bytes) const noexcept {
    return many_.empty() && one_.begin == 0 && one_.end == bytes;
  }
  // Throws std::bad_alloc, and is then unchanged, if a second range finds no memory.
  void add(ByteRange range) {
    if (range.begin >= range.end) {
      return;
    }
    if (size() == 0) {
      one_ = range;
    } else if (many_.empty() && range.begin <= one_.end && one_.begin <= range.end) {
      one_ = {std::min(one_.begin, range.begin), std::max(one_.end, range.end)};
    } else {
      std::vector<ByteRange> all(data(), data() + size());
      add_range(all, range);
      if (all.size() == 1) {
        one_ = all.front();
        many_.clear();
      } else {
        many_.swap(all);
      }
    }
  }

 private:
  ByteRange one_{};  // unless many_ holds any
  std::vector<ByteRange> many_;
};

}  // namespace pleat::allocator
