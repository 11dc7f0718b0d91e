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
  struct Answer {
    compress::block::Scales scales;
    bool due = false;  // the caller is to measure this tensor, and to call learn()
  };
  // The scales of a key of which `choice` is asked. Due are the first tensor, then ever fewer, at
  // last every hundredth. Throws std::bad_alloc.
  [[nodiscard]] Answer ask(allocator::TensorKey key, const allocator::CodecWords& choice) {
    const std::lock_guard<std::mutex> guard(mutex_);
    if (entries_.size() >= kMostKeys && !entries_.contains(key.value)) entries_.clear();
    Entry& entry = entries_[key.value];
    if (entry.choice != choice) entry = {choice, {}, 0, 1};
    const bool due = entry.wait == 0;
    if (due) {
      entry.wait = entry.period;
      entry.period = std::min(2 * entry.period, kMostPeriod);
    }
    --entry.wait;
    return {entry.scales, due};
  }
  // Calls measure(const Scales& before), which returns Scales, without a lock. The key keeps them,
  // unless it is asked for something else by now.
  template <class Measure>
  compress::block::Scales learn(allocator::TensorKey key, const allocator::CodecWords& choice,
                                Measure&& measure) {
    Scales before;
    {
      const std::lock_guard<std::mutex> guard(mutex_);
      if (const Entry* const entry = find(key, choice)) before = entry->scales;
    }
    Scales measured = measure(before);
    const std::lock_guard<std::mutex> guard(mutex_);
    if (Entry* const entry = find(key, choice)) entry->scales = measured;
    return measured;
  }
  // Both, of a tensor that the caller can measure at once. Without memory there are none.
  template <class Measure>
  [[nodiscard]] compress::block::Scales of(allocator::TensorKey key,
                                           const allocator::CodecWords& choice,
                                           Measure&& measure) noexcept {
    try {
      const Answer known = ask(key, choice);
      return known.due ? learn(key, choice, measure) : known.scales;
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

  Entry* find(allocator::TensorKey key, const allocator::CodecWords& choice) noexcept {
    const auto at = entries_.find(key.value);
    return at != entries_.end() && at->second.choice == choice ? &at->second : nullptr;
  }

  std::mutex mutex_;  // innermost
  ForkLock fork_lock_{ForkPlace::kScales, mutex_};
  std::unordered_map<std::uint64_t, Entry> entries_;
};

}  // namespace pleat::bridge
