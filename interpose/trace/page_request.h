// A thread asks the writer's thread for a page, and waits for it: without a lock, and a second at
// most, so that nobody can be kept for ever.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <string_view>

namespace pleat::trace {

class PageRequest {
 public:
  // In a thread that wants a page. `wake()` wakes the writer. Returns once the page is written, or
  // the time is over. While another thread asks, waits for its turn in the same second.
  template <class Wake>
  void ask(const char* title, Wake&& wake) noexcept {
    timespec until{};
    ::clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += 1;
    std::uint32_t seen = state_.load(std::memory_order_relaxed);
    while ((seen & kStep) != kFree ||
           !state_.compare_exchange_weak(seen, next(seen) | kTaken, std::memory_order_acquire)) {
      if ((seen & kStep) != kFree && !wait(seen, until)) return;
      seen = state_.load(std::memory_order_relaxed);
    }
    const std::uint32_t mine = next(seen);
    title_bytes_ = ::strnlen(title, title_.size());
    std::memcpy(title_.data(), title, title_bytes_);
    state_.store(mine | kAsked, std::memory_order_release);
    wake();
    for (seen = mine | kAsked; seen == (mine | kAsked) || seen == (mine | kServed);
         seen = state_.load(std::memory_order_acquire)) {
      if (!wait(seen, until)) break;
    }
    leave(mine | kAsked);  // if the time is over, and the writer has not begun
  }

  // In the writer's thread: nothing is asked for, or this title until done().
  [[nodiscard]] bool asked() const noexcept {
    return (state_.load(std::memory_order_relaxed) & kStep) == kAsked;
  }
  // False: whoever asked has given up.
  [[nodiscard]] bool take() noexcept {
    std::uint32_t seen = state_.load(std::memory_order_relaxed);
    return (seen & kStep) == kAsked &&
           state_.compare_exchange_strong(seen, (seen & ~kStep) | kServed,
                                          std::memory_order_acquire);
  }
  [[nodiscard]] std::string_view title() const noexcept { return {title_.data(), title_bytes_}; }
  void done() noexcept {
    state_.store(state_.load(std::memory_order_relaxed) & ~kStep, std::memory_order_release);
    shout();
  }
  // There is no writer any more: nobody need wait.
  void give_up() noexcept {
    const std::uint32_t seen = state_.load(std::memory_order_relaxed);
    if ((seen & kStep) == kAsked) leave(seen);
  }

 private:
  // The lowest bits of the state; above them stands the number of the request.
  static constexpr std::uint32_t kFree = 0, kTaken = 1, kAsked = 2, kServed = 3, kStep = 3;
  [[nodiscard]] static std::uint32_t next(std::uint32_t state) noexcept {
    return (state & ~kStep) + kStep + 1;
  }

  void leave(std::uint32_t asked) noexcept {
    if (state_.compare_exchange_strong(asked, asked & ~kStep, std::memory_order_acq_rel)) shout();
  }
  // False: the time is over.
  bool wait(std::uint32_t seen, const timespec& until) noexcept {
    ::syscall(SYS_futex, &state_, FUTEX_WAIT_BITSET_PRIVATE, seen, &until, nullptr,
              FUTEX_BITSET_MATCH_ANY);
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec != until.tv_sec ? now.tv_sec < until.tv_sec : now.tv_nsec < until.tv_nsec;
  }
  void shout() noexcept {
    ::syscall(SYS_futex, &state_, FUTEX_WAKE_PRIVATE, INT32_MAX, nullptr, nullptr, 0);
  }

  std::atomic<std::uint32_t> state_{kFree};
  std::size_t title_bytes_ = 0;
  std::array<char, 400> title_{};
};

}  // namespace pleat::trace
