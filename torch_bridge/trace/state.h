// TraceState is the part of a trace that all threads use: the recorder, counters, and the cost of
// recording.
#pragma once

#include <atomic>
#include <cstdint>

#include "torch_bridge/c_abi.h"
#include "torch_bridge/core/clock.h"

namespace pleat::bridge {

// Counts a kind of work, and times one in 32.
class TraceCost {
 public:
  class Timed {
   public:
    explicit Timed(TraceCost& cost) noexcept : cost_(cost) {
      const std::uint64_t turn = cost.count_.fetch_add(1, std::memory_order_relaxed);
      if ((turn & 31u) == 0) start_ = monotonic_ns();
    }
    ~Timed() {
      if (start_ != 0) {
        cost_.ns_.fetch_add(monotonic_ns() - start_, std::memory_order_relaxed);
        cost_.timed_.fetch_add(1, std::memory_order_relaxed);
      }
    }
    Timed(const Timed&) = delete;
    Timed& operator=(const Timed&) = delete;

   private:
    TraceCost& cost_;
    std::uint64_t start_ = 0;
  };
  [[nodiscard]] std::uint64_t count() const noexcept {
    return count_.load(std::memory_order_relaxed);
  }
  // An estimate for all of them, from those that were timed.
  [[nodiscard]] std::uint64_t ns() const noexcept {
    const std::uint64_t timed = timed_.load(std::memory_order_relaxed);
    return timed == 0 ? 0
                      : static_cast<std::uint64_t>(
                            static_cast<double>(ns_.load(std::memory_order_relaxed)) /
                            static_cast<double>(timed) * static_cast<double>(count()));
  }

 private:
  std::atomic<std::uint64_t> count_{0}, timed_{0}, ns_{0};
};

struct TraceState {
  // The recorder while a trace is written; else null. A reader can call the recorder even if the
  // trace ends meanwhile: late events are dropped.
  std::atomic<const PleatRecorder*> recorder{nullptr};
  std::atomic<std::uint32_t> number{0};  // each trace has its own
  std::atomic<std::uint64_t> step{0};    // of training, in this trace
  std::atomic<bool> optimizer_seen{false};
  std::atomic<bool> modules_wanted{false};  // and without hooks so far
  std::atomic<bool> modules_hooked{false};
  std::atomic<std::uint32_t> reports{0};  // of refused allocations, in this process
  // Events with their stacks; callbacks of operators; tensors that are too small for Pleat. On
  // lines of their own: they are written while a trace is, the recorder is read at any time.
  alignas(64) TraceCost events;
  TraceCost callbacks, small;
};
inline constinit TraceState trace_state;

[[nodiscard]] inline const PleatRecorder* trace_recorder() noexcept {
  return trace_state.recorder.load(std::memory_order_acquire);
}
// Code that needs time only for a trace checks this first.
[[nodiscard]] inline bool tracing() noexcept {
  return trace_state.recorder.load(std::memory_order_relaxed) != nullptr;
}

}  // namespace pleat::bridge
