// HugePagePrice measures whether huge pages cost about as much as the same bytes in small pages. In
// some virtual machines the host allocates the memory of a huge page only at its first touch, which
// then takes ten times as long. So one huge page is tried from time to time. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>

namespace pleat::allocator {

class HugePagePrice {
 public:
  // Nanoseconds of the first touch of one huge page, and of as many bytes in small pages; 0:
  // unknown.
  struct Sample {
    double huge_ns = 0;
    double small_ns = 0;
  };

  // Whether `count` more huge pages are worth their price. Calls try_one(), which returns a Sample,
  // if the last answer is too old, and once more if that sample was expensive.
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
    pays_ = is_cheap(try_one()) || is_cheap(try_one());  // an interrupt can spoil a try
    if (pays_ != before) interval_ = kFirst / 2;
    interval_ = std::min(2 * interval_, pays_ ? kMostWhileItPays : kMostElse);
    left_ = interval_;
    return pays_;
  }

 private:
  // Largest accepted ratio of the two costs: a huge page is faster later, but is zeroed whole.
  static constexpr double kMostTimes = 2;
  // The number of huge pages requested before the next trial.
  static constexpr std::size_t kFirst = 8;
  static constexpr std::size_t kMostWhileItPays = 64;
  static constexpr std::size_t kMostElse = 4096;

  std::size_t left_ = 0;
  std::size_t interval_ = kFirst / 2;
  bool pays_ = false;
};

}  // namespace pleat::allocator
