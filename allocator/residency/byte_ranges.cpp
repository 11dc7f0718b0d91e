#include "allocator/residency/byte_ranges.h"

namespace pleat::allocator {

void add_range(std::vector<ByteRange>& ranges, ByteRange range) {
  if (range.begin >= range.end) {
    return;
  }
  auto first = std::lower_bound(ranges.begin(), ranges.end(), range.begin,
                                [](const ByteRange& r, std::size_t b) { return r.end < b; });
  auto last = first;
  while (last != ranges.end() && last->begin <= range.end) {
    range.begin = std::min(range.begin, last->begin);
    range.end = std::max(range.end, last->end);
    ++last;
  }
  if (first == last) {
    ranges.insert(first, range);
  } else {
    *first = range;
    ranges.erase(first + 1, last);
  }
}

}  // namespace pleat::allocator
