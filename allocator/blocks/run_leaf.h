// RunLeaf is a leaf of free_runs.h: arrays of begins, lengths and touched stretches of its runs.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "allocator/blocks/lanes.h"

namespace pleat::allocator {

// A run of free granules, and its longest stretch known to be touched.
struct FreeRun {
  std::int32_t begin;
  std::int32_t length;
  std::int32_t touched_begin;  // unspecified if touched_length is 0
  std::int32_t touched_length;

  // The part of the run, and of its touched stretch, within [from, end).
  [[nodiscard]] FreeRun part(std::int32_t from, std::int32_t end) const noexcept {
    const std::int32_t low = std::max(touched_begin, from);
    const std::int32_t high = std::min(touched_begin + touched_length, end);
    return {from, end - from, low, std::max(high - low, 0)};
  }
  // Joins this run and `next`, which begins where this run ends, into one run.
  [[nodiscard]] FreeRun joined(const FreeRun& next) const noexcept {
    FreeRun all{begin, length + next.length, touched_begin, touched_length};
    if (next.touched_length != 0 && touched_begin + touched_length == next.touched_begin) {
      all.touched_length += next.touched_length;
    } else if (next.touched_length > touched_length) {
      all.touched_begin = next.touched_begin;
      all.touched_length = next.touched_length;
    }
    return all;
  }
};

// Up to 32 runs by address, for the vector searches of lanes.h.
struct alignas(64) RunLeaf {
  static constexpr std::size_t kRuns = lanes::kCount;
  static constexpr std::int32_t kBeyond = std::numeric_limits<std::int32_t>::max();

  std::int32_t begin[kRuns];   // ascending; kBeyond where unused
  std::int32_t length[kRuns];  // 0 where unused
  std::int32_t touched_begin[kRuns];
  std::int32_t touched_length[kRuns];  // 0 where unused

  [[nodiscard]] FreeRun get(std::size_t k) const noexcept {
    return {begin[k], length[k], touched_begin[k], touched_length[k]};
  }
  void set(std::size_t k, const FreeRun& run) noexcept {
    begin[k] = run.begin;
    length[k] = run.length;
    touched_begin[k] = run.touched_begin;
    touched_length[k] = run.touched_length;
  }
  void clear(std::size_t k) noexcept { set(k, {kBeyond, 0, 0, 0}); }
  // Moves `count` runs from place k on to place `to` of `leaf`.
  void move(std::size_t k, std::size_t count, RunLeaf& leaf, std::size_t to) const noexcept {
    const std::size_t bytes = count * sizeof(std::int32_t);
    std::memmove(leaf.begin + to, begin + k, bytes);
    std::memmove(leaf.length + to, length + k, bytes);
    std::memmove(leaf.touched_begin + to, touched_begin + k, bytes);
    std::memmove(leaf.touched_length + to, touched_length + k, bytes);
  }

  // Number of runs that begin at or before granule `g`.
  [[nodiscard]] std::size_t up_to(std::size_t g) const noexcept {
    const auto next = static_cast<std::int32_t>(g) + 1;
    return static_cast<std::size_t>(std::countr_zero(lanes::at_least(begin, next)));
  }
};

}  // namespace pleat::allocator
