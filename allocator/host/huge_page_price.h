// Whether huge pages come at about the price of small ones. In some virtual machines the host finds
// the memory of a huge page only at its first touch, and that takes ten times as long. So a huge
// page is tried once in a while. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>

namespace pleat::allocator {

class HugePagePrice {
 public:
  // Of one huge page and of as much in small pages, as first touches take; 0: not known.
  struct Sample {
    double huge_ns = 0;
    double small_ns = 0;
  };

  // Whether `count` more huge pages are worth it. Calls try_one(), which returns a Sample, where
  // the last answer is too old, and again where that was dear.
  template <typename TryOne>
  bool pays(std::size_t count, TryOne&& try_one) noexcept {
    if (count < left_) {
      left_ -= count;
      return pays_;
    }
    const bool before = pays_;
    const auto is_cheap = [](const Sample& sample) {
      return sample.huge_ns > 0 && sample.huge_ns <= kMostTimes * sample.small_ns;
    };
    pays_ = is_cheap(try_one()) || is_cheap(try_one());  // an interrupt makes one dear
    if (pays_ != before) interval_ = kFirst / 2;
    interval_ = std::min(2 * interval_, pays_ ? kMostWhileItPays : kMostElse);
    left_ = interval_;
    return pays_;
  }

 private:
  // A huge page is faster from then on, but it has to be zeroed all the same.
  static constexpr double kMostTimes = 2;
  // In huge pages that are asked for until one is tried again.
  static constexpr std::size_t kFirst = 8;
  static constexpr std::size_t kMostWhileItPays = 64;
  static constexpr std::size_t kMostElse = 4096;

  std::size_t left_ = 0;
  std::size_t interval_ = kFirst / 2;
  bool pays_ = false;
};

}  // namespace pleat::allocator
