// What the hooks themselves cost, without the codec.
#pragma once

#include <atomic>
#include <cstdint>
#include <ctime>

#include "torch_bridge/core/runtime.h"

namespace pleat::bridge {

// Times one in 64 decisions, packs and unpacks (without the codec), so that the cost of a hook is
// known and the knowing costs nothing.
class SampledTimer {
 public:
  explicit SampledTimer(Runtime& runtime) noexcept : runtime_(runtime) {
    thread_local unsigned turn = 0;
    start_ = (++turn & 63u) == 0 ? now() : 0;
  }
  ~SampledTimer() { stop(); }
  void stop() noexcept {
    if (start_ != 0) {
      runtime_.hook_ns_sampled.fetch_add(now() - start_, std::memory_order_relaxed);
      runtime_.hook_samples.fetch_add(1, std::memory_order_relaxed);
      start_ = 0;
    }
  }
  SampledTimer(const SampledTimer&) = delete;
  SampledTimer& operator=(const SampledTimer&) = delete;

 private:
  static std::uint64_t now() noexcept {
    timespec t{};
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000u +
           static_cast<std::uint64_t>(t.tv_nsec);
  }

  Runtime& runtime_;
  std::uint64_t start_;
};

}  // namespace pleat::bridge
