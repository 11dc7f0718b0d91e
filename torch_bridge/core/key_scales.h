// The scales of the values of each key. A tensor is measured from time to time; those between go by
// the last answer. Torch-free.
//
// Threads: any.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "allocator/ids.h"
#include "allocator/store/block_codec.h"
#include "compress/block/scales.h"
#include "torch_bridge/core/fork_locks.h"

namespace pleat::bridge {

class KeyScales {
 public:
  // The scales of a key of which `choice` is asked. Calls measure(const Scales& before), which
  // returns Scales, for the first tensor, then ever more rarely, at last for every hundredth.
  // Without memory there are none.
  template <class Measure>
  [[nodiscard]] compress::block::Scales of(allocator::TensorKey key,
                                           const allocator::CodecWords& choice,
                                           Measure&& measure) noexcept {
    try {
      Scales before;
      {
        const std::lock_guard<std::mutex> guard(mutex_);
        if (entries_.size() >= kMostKeys && !entries_.contains(key.value)) entries_.clear();
        Entry& entry = entries_[key.value];
        if (entry.choice != choice) entry = {choice, {}, 0, 1};
        if (entry.wait != 0) {
          --entry.wait;
          return entry.scales;
        }
        entry.wait = entry.period - 1;
        entry.period = std::min(2 * entry.period, kMostPeriod);
        before = entry.scales;
      }
      Scales found = measure(before);
      const std::lock_guard<std::mutex> guard(mutex_);
      if (const auto at = entries_.find(key.value);
          at != entries_.end() && at->second.choice == choice)
        at->second.scales = found;
      return found;
    } catch (...) {
      return {};
    }
  }

 private:
  using Scales = compress::block::Scales;
  static constexpr std::size_t kMostKeys = 1u << 16;  // a job with more has new keys in each step
  static constexpr std::uint32_t kMostPeriod = 100;   // tensors
  struct Entry {
    allocator::CodecWords choice;
    Scales scales;
    std::uint32_t wait = 0, period = 1;  // tensors until the next is measured, and between two
  };

  std::mutex mutex_;  // innermost
  ForkLock fork_lock_{ForkPlace::kScales, mutex_};
  std::unordered_map<std::uint64_t, Entry> entries_;
};

}  // namespace pleat::bridge
