// Record steps are small functions that residency.cpp, encoding.cpp and restoring.cpp share.
#pragma once

#include <atomic>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <ctime>

#include "allocator/lifecycle/record.h"

namespace pleat::allocator {

inline std::uint64_t now_ns() noexcept {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000u +
         static_cast<std::uint64_t>(t.tv_nsec);
}

inline void count(std::atomic<std::uint64_t>& counter, std::uint64_t n = 1) noexcept {
  counter.fetch_add(n, std::memory_order_relaxed);
}

// A transition that the table lacks is a bug in Pleat; in release builds the state does not change.
inline void transition(Record& record, RecordAction action) noexcept {
  RecordState state = record.state.load(std::memory_order_relaxed);
  [[maybe_unused]] const bool known = apply(state, action);
  assert(known);
  record.state.store(state, std::memory_order_release);
}

inline std::int64_t signed_bytes(std::size_t bytes) noexcept {
  return static_cast<std::int64_t>(bytes);
}

}  // namespace pleat::allocator
