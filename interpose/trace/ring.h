// What each thread has of the recorder: a ring of events that the thread fills and the writer's
// thread empties, without a lock. An event for which there is no room is counted and forgotten.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "interpose/trace/format.h"

namespace pleat::trace {

// A frame of a stack as it is taken: a code object and where in it the thread is, or an address.
struct RawFrame {
  std::uint64_t code = 0;
  std::int32_t at = 0;  // kNativeFrame: `code` is the address
  friend bool operator==(const RawFrame&, const RawFrame&) = default;
};
inline constexpr std::int32_t kNativeFrame = INT32_MIN;

// The stack that a thread had last, from the root. The next one most often differs in few frames.
struct LastStack {
  std::uint32_t frames = 0;
  std::array<RawFrame, kMostFrames> frame;
  std::array<std::uint32_t, kMostFrames> id;  // of the stack that ends with the frame
};

class Ring {
 public:
  static constexpr std::size_t kRecords = 8192;

  // In the thread that has the ring, or in a handler of a signal that interrupts it there. True: it
  // is time to wake the writer.
  bool add(const PleatTraceEvent& event) noexcept {
    // A handler's events take places behind the interrupted one. Whoever is outermost shows all.
    const std::uint32_t depth = depth_.load(std::memory_order_relaxed);
    depth_.store(depth + 1, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    bool wake = false;
    const std::uint64_t read = read_.load(std::memory_order_acquire);
    std::uint64_t at = taken_.load(std::memory_order_relaxed);
    while (at - read < kRecords &&
           !taken_.compare_exchange_weak(at, at + 1, std::memory_order_relaxed)) {
    }
    if (at - read < kRecords) {
      std::atomic_signal_fence(std::memory_order_seq_cst);
      PleatTraceEvent& place = records_[at % kRecords];
      place = event;
      place.thread = thread_;
      wake = at - read == kRecords / 2;
    } else {
      lost_.fetch_add(1, std::memory_order_relaxed);
    }
    std::atomic_signal_fence(std::memory_order_seq_cst);
    depth_.store(depth, std::memory_order_relaxed);
    if (depth == 0) {
      std::uint64_t shown = 0;
      do {  // once more if a handler came in between
        shown = taken_.load(std::memory_order_relaxed);
        shown_.store(shown, std::memory_order_release);
        std::atomic_signal_fence(std::memory_order_seq_cst);
      } while (shown != taken_.load(std::memory_order_relaxed));
    }
    return wake;
  }

  // In the thread that has the ring: an event is being put in.
  [[nodiscard]] bool in_event() const noexcept {
    return depth_.load(std::memory_order_relaxed) != 0;
  }

  // In the writer's thread: hands all events to `take(const PleatTraceEvent&)`. Returns how many
  // there were.
  template <class Take>
  std::size_t drain(Take&& take) noexcept {
    const std::uint64_t end = shown_.load(std::memory_order_acquire);
    std::uint64_t at = read_.load(std::memory_order_relaxed);
    const std::uint64_t begin = at;
    for (; at != end; ++at) take(records_[at % kRecords]);
    read_.store(at, std::memory_order_release);
    return static_cast<std::size_t>(at - begin);
  }
  // Events lost so far.
  [[nodiscard]] std::uint64_t lost() const noexcept {
    return lost_.load(std::memory_order_relaxed);
  }

  // Tensors beside Pleat's memory. In the thread that has the ring.
  void count_small(std::int64_t bytes) noexcept {
    const auto add = [](auto& counter, auto value) {
      counter.store(counter.load(std::memory_order_relaxed) + value, std::memory_order_relaxed);
    };
    if (bytes >= 0) {
      add(small_came_, static_cast<std::uint64_t>(bytes));
      add(small_count_came_, std::uint64_t{1});
    } else {
      add(small_went_, static_cast<std::uint64_t>(-bytes));
      add(small_count_went_, std::uint64_t{1});
    }
  }
  struct Small {
    std::uint64_t came = 0, went = 0, count_came = 0, count_went = 0;
  };
  [[nodiscard]] Small small() const noexcept {
    return {small_came_.load(std::memory_order_relaxed),
            small_went_.load(std::memory_order_relaxed),
            small_count_came_.load(std::memory_order_relaxed),
            small_count_went_.load(std::memory_order_relaxed)};
  }

  // Takes a ring that no thread has, and that is not half full of another thread's events.
  [[nodiscard]] bool take(std::uint32_t thread) noexcept {
    bool free = false;
    if (taken_.load(std::memory_order_relaxed) - read_.load(std::memory_order_relaxed) >
        kRecords / 2) {
      return false;
    }
    if (!taken_by_thread_.compare_exchange_strong(free, true, std::memory_order_acquire)) {
      return false;
    }
    thread_ = thread;
    return true;
  }
  void give_back() noexcept { taken_by_thread_.store(false, std::memory_order_release); }

  Ring* next = nullptr;  // in the list of all rings
  LastStack last_stack;
  bool taking_stack = false;   // of this thread; a handler's event then has none
  bool asks_for_page = false;  // this thread

 private:
  std::atomic<bool> taken_by_thread_{false};
  std::uint32_t thread_ = 0;
  std::atomic<std::uint32_t> depth_{0};
  std::atomic<std::uint64_t> taken_{0};
  std::atomic<std::uint64_t> lost_{0};
  std::atomic<std::uint64_t> small_came_{0}, small_went_{0};
  std::atomic<std::uint64_t> small_count_came_{0}, small_count_went_{0};
  alignas(64) std::atomic<std::uint64_t> shown_{0};
  alignas(64) std::atomic<std::uint64_t> read_{0};
  alignas(64) std::array<PleatTraceEvent, kRecords> records_;
};

// All rings of the process. A ring stays when its thread ends, for another thread.
class Rings {
 public:
  // The ring of this thread; null if there is no memory.
  [[nodiscard]] Ring* mine() noexcept {
    Ring* const ring = mine_;
    return ring != nullptr ? ring : take_one();
  }
  template <class Visit>
  void for_each(Visit&& visit) noexcept {
    for (Ring* ring = first_.load(std::memory_order_acquire); ring != nullptr; ring = ring->next) {
      visit(*ring);
    }
  }
  // This thread ends.
  static void leave() noexcept {
    if (Ring* const ring = mine_) {
      mine_ = nullptr;
      ring->give_back();
    }
  }

 private:
  [[nodiscard]] Ring* take_one() noexcept;

  static constinit thread_local Ring* mine_;
  std::atomic<Ring*> first_{nullptr};
};

}  // namespace pleat::trace
