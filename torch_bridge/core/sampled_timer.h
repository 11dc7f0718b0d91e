// Samples the time that the hooks themselves take, without the codec.
#pragma once

#include <atomic>
#include <cstdint>

#include "torch_bridge/core/clock.h"
#include "torch_bridge/core/runtime.h"

namespace pleat::bridge {

// Times one in 64 decisions, packs and unpacks (without the codec), so that the cost of a hook is
// known and the knowing costs nothing.
class SampledTimer {
 public:
  explicit SampledTimer(Runtime& runtime) noexcept : runtime_(runtime) {
    start_ = (Runtime::next_turn() & 63u) == 0 ? monotonic_ns() : 0;
  }
  ~SampledTimer() { stop(); }
  void stop() noexcept {
    if (start_ != 0) {
      runtime_.hook_ns_sampled.fetch_add(monotonic_ns() - start_, std::memory_order_relaxed);
      runtime_.hook_samples.fetch_add(1, std::memory_order_relaxed);
      start_ = 0;
    }
  }
  SampledTimer(const SampledTimer&) = delete;
  SampledTimer& operator=(const SampledTimer&) = delete;

 private:
  Runtime& runtime_;
  std::uint64_t start_;
};

}  // namespace pleat::bridge
