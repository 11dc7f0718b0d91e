// The segments of a device, by address. They come and go rarely.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "interpose/trace/mapped.h"

namespace pleat::trace {

class BookSegments {
 public:
  static constexpr std::size_t kMost = std::size_t{1} << 14;
  struct Segment {
    std::uint64_t begin = 0, end = 0;
  };

  // False: no memory, or there are too many.
  bool reserve(std::uint64_t begin, std::uint64_t bytes) noexcept {
    if (begin + bytes <= begin) return true;
    release(begin, bytes);  // whatever was there in spite of it
    std::size_t at = 0;
    while (at < count_ && segments_[at].begin < begin) ++at;
    return insert(at, {begin, begin + bytes});
  }
  bool release(std::uint64_t begin, std::uint64_t bytes) noexcept {
    const std::uint64_t end = begin + bytes;
    if (end <= begin) return true;
    bool room = true;
    for (std::size_t at = 0; at < count_;) {
      const Segment found = segments_[at];
      if (found.end <= begin || found.begin >= end) {
        ++at;
        continue;
      }
      erase(at);
      if (found.begin < begin) room &= insert(at++, {found.begin, begin});
      if (found.end > end) room &= insert(at++, {end, found.end});
    }
    return room;
  }
  void clear() noexcept { count_ = 0; }
  [[nodiscard]] std::size_t size() const noexcept { return count_; }
  [[nodiscard]] const Segment& operator[](std::size_t i) const noexcept { return segments_[i]; }

 private:
  bool insert(std::size_t at, Segment segment) noexcept {
    if (segments_ == nullptr) segments_ = static_cast<Segment*>(map_zeros(kMost * sizeof(Segment)));
    if (segments_ == nullptr || count_ == kMost) return false;
    std::memmove(segments_ + at + 1, segments_ + at, (count_ - at) * sizeof(Segment));
    segments_[at] = segment;
    ++count_;
    return true;
  }
  void erase(std::size_t at) noexcept {
    --count_;
    std::memmove(segments_ + at, segments_ + at + 1, (count_ - at) * sizeof(Segment));
  }

  Segment* segments_ = nullptr;
  std::size_t count_ = 0;
};

}  // namespace pleat::trace
