// The link to the recorder of a trace, where there is one, and the cost of recording.
#pragma once

#include <atomic>
#include <cstdint>

#include "torch_bridge/c_abi.h"
#include "torch_bridge/core/clock.h"

namespace pleat::bridge {

// The recorder while a trace is written; else null. A reader can call the recorder even if the
// trace ends meanwhile: late events are dropped.
inline std::atomic<const PleatRecorder*> trace_recorder{nullptr};

// Code that needs time only for a trace checks this first.
[[nodiscard]] inline bool tracing() noexcept {
  return trace_recorder.load(std::memory_order_relaxed) != nullptr;
}

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
  // Of all of them, as those that were timed say it.
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

// Events, stacks and all; callbacks of operators; tensors that are too small for Pleat.
struct TraceCosts {
  TraceCost events, callbacks, small;
};
inline TraceCosts trace_costs;

}  // namespace pleat::bridge
