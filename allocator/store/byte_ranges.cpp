#include "allocator/store/byte_ranges.h"

#include <algorithm>
#include <new>
#include <utility>

namespace pleat::allocator {
namespace {

ByteRange hull_of(ByteRange a, ByteRange b) noexcept {
  return {std::min(a.begin, b.begin), std::max(a.end, b.end)};
}

bool touch(ByteRange a, ByteRange b) noexcept { return a.begin <= b.end && b.begin <= a.end; }

bool ends_before(const ByteRange& range, std::size_t begin) noexcept { return range.end < begin; }

}  // namespace

bool ByteRanges::cover(ByteRange range) const noexcept {
  const ByteRange* const last = data() + size();
  const ByteRange* const at = std::lower_bound(data(), last, range.end, ends_before);
  return at != last && at->begin <= range.begin;
}

void ByteRanges::add(ByteRange range) noexcept {
  if (range.begin >= range.end) {
    return;
  }
  if (size() == 0) {
    one_ = range;
  } else if (!many_.empty()) {
    add_to_many(range);
  } else if (touch(one_, range)) {
    one_ = hull_of(one_, range);
  } else {
    try {
      const auto [low, high] =
          one_.begin < range.begin ? std::pair(one_, range) : std::pair(range, one_);
      many_.assign({low, high});
    } catch (const std::bad_alloc&) {
      take_hull_with(range);
    }
  }
}

void ByteRanges::add_to_many(ByteRange range) noexcept {
  const auto first = std::lower_bound(many_.begin(), many_.end(), range.begin, ends_before);
  auto last = first;
  for (; last != many_.end() && touch(*last, range); ++last) {
    range = hull_of(range, *last);
  }
  if (first == last) {
    try {
      if (many_.size() < kMost) {
        many_.insert(first, range);
        return;
      }
    } catch (const std::bad_alloc&) {
    }
    take_hull_with(range);
    return;
  }
  *first = range;
  many_.erase(first + 1, last);
  if (many_.size() == 1) {
    one_ = many_.front();
    many_.clear();
  }
}

void ByteRanges::take_hull_with(ByteRange range) noexcept {
  if (!many_.empty()) {
    one_ = hull_of(many_.front(), many_.back());
    many_.clear();
  }
  one_ = hull_of(one_, range);
}

}  // namespace pleat::allocator
