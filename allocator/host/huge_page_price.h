// Whether huge pages come at about the price of small ones. In some virtual machines the host finds
// the memory of a huge page only at its first touch, which then takes ten times as long. So one
// huge page is tried from time to time. Not thread-safe.
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
    pays_ = is_cheap(try_one()) || is_cheap(try_one());  // an interrupt may make one expensive
    if (pays_ != before) interval_ = kFirst / 2;
    interval_ = std::min(2 * interval_, pays_ ? kMostWhileItPays : kMostElse);
    left_ = interval_;
    return pays_;
  }

 private:
  // A huge page is faster once it is there, but all of it has to be zeroed: it may cost up to this
  // many times as much.
  static constexpr double kMostTimes = 2;
  // How many huge pages are asked for before one is tried again.
  static constexpr std::size_t kFirst = 8;
  static constexpr std::size_t kMostWhileItPays = 64;
  static constexpr std::size_t kMostElse = 4096;

  std::size_t left_ = 0;
  std::size_t interval_ = kFirst / 2;
  bool pays_ = false;
};

}  // namespace pleat::allocator
