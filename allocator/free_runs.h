// The free runs of a row of granules: address-ordered first fit with coalescing.
//
// A run is a maximal stretch of free granules. Runs lie sorted by address in leaves of up to 32,
// begins and lengths in arrays of their own; over the leaves lie arrays of each leaf's first begin
// and largest length. First fit is a scan of `largest_` and of one leaf; freeing is a binary
// search, after which the neighbours to coalesce with are simply the entries beside it, so that
// most operations change one entry in place. A thousand runs fit the first-level cache, whatever
// addresses they span: measured several times faster than both search trees over nodes and a
// tournament tree over granules, whose misses dominate.
//
// Memory is handed in once, large enough for the worst case, so nothing here can fail; only what is
// used of it is ever touched. Knows nothing of blocks; not thread-safe.
#pragma once

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "allocator/lanes.h"

namespace pleat::allocator {

class FreeRuns {
 public:
  static constexpr std::size_t kNone = SIZE_MAX;
  static constexpr std::size_t kMaxGranules = std::numeric_limits<std::int32_t>::max() - 1;

  // Metadata bytes for a row of `granules` (1 .. kMaxGranules).
  [[nodiscard]] static std::size_t metadata_bytes(std::size_t granules) noexcept {
    return max_leaves(granules) * (sizeof(Leaf) + 4 * sizeof(std::int32_t));
  }

  // `memory` holds metadata_bytes(granules) zero bytes, 64-byte aligned, and outlives this object.
  // All granules are free afterwards.
  void attach(std::byte* memory, std::size_t granules) noexcept {
    assert(granules >= 1 && granules <= kMaxGranules);
    const std::size_t capacity = max_leaves(granules);
    granules_ = granules;
    leaves_ = reinterpret_cast<Leaf*>(memory);
    auto* next = reinterpret_cast<std::int32_t*>(memory + capacity * sizeof(Leaf));
    largest_ = next;
    first_ = next += capacity;
    count_ = next += capacity;
    leaf_ = next += capacity;
    leaf_count_ = leaves_made_ = 0;
    spare_ = -1;
    run_count_ = 0;
    insert(0, 0, 0, granules);
  }

  // Lengthens the row at its end, the new granules being free, or cuts free ones off it. At most
  // the number that attach() was given.
  void resize(std::size_t granules) noexcept {
    const std::size_t before = granules_;
    if (granules >= before) {
      granules_ = granules;
      if (granules > before) give(before, granules - before);
      return;
    }
    const std::size_t i = leaf_count_ - 1;
    const auto k = static_cast<std::size_t>(count_[i]) - 1;
    Leaf& last = at(i);
    assert(static_cast<std::size_t>(last.begin[k] + last.length[k]) == before &&
           static_cast<std::size_t>(last.begin[k]) <= granules);
    if (static_cast<std::size_t>(last.begin[k]) == granules) {
      erase(i, k);
    } else {
      last.length[k] = static_cast<std::int32_t>(granules) - last.begin[k];
      refresh(i);
    }
    granules_ = granules;
  }

  [[nodiscard]] std::size_t granules() const noexcept { return granules_; }
  [[nodiscard]] std::size_t run_count() const noexcept { return run_count_; }
  [[nodiscard]] bool all_free() const noexcept { return length_at(0) == granules_; }

  [[nodiscard]] std::size_t largest() const noexcept {
    std::int32_t best = 0;
    for (std::size_t i = 0; i < leaf_count_; ++i) best = std::max(best, largest_[i]);
    return static_cast<std::size_t>(best);
  }

  // Length of the run that begins at granule `begin`, 0 if none does.
  [[nodiscard]] std::size_t length_at(std::size_t begin) const noexcept {
    if (leaf_count_ == 0) return 0;
    const std::size_t i = leaf_of(begin);
    const Leaf& leaf = at(i);
    const std::size_t k = leaf.up_to(begin);
    if (k == 0 || leaf.begin[k - 1] != static_cast<std::int32_t>(begin)) return 0;
    return static_cast<std::size_t>(leaf.length[k - 1]);
  }

  // Takes `need` (> 0) granules from the head of the lowest run that has as many and returns the
  // first of them; kNone if no run has.
  [[nodiscard]] std::size_t take_first_fit(std::size_t need) noexcept {
    if (need > granules_) return kNone;
    const auto n = static_cast<std::int32_t>(need);
    const std::size_t i = lanes::first_at_least(largest_, leaf_count_, n);
    if (i == leaf_count_) return kNone;
    Leaf& leaf = at(i);
    const auto k = static_cast<std::size_t>(std::countr_zero(lanes::at_least(leaf.length, n)));
    const std::int32_t begin = leaf.begin[k];
    const std::int32_t length = leaf.length[k];
    if (length == n) {
      erase(i, k);
    } else {
      leaf.begin[k] = begin + n;
      leaf.length[k] = length - n;
      if (k == 0) first_[i] = begin + n;
      if (length == largest_[i]) largest_[i] = lanes::maximum(leaf.length);
    }
    return static_cast<std::size_t>(begin);
  }

  // Frees granules that are in use.
  void give(std::size_t begin, std::size_t length) noexcept {
    assert(length > 0 && begin + length <= granules_);
    const auto b = static_cast<std::int32_t>(begin);
    const auto n = static_cast<std::int32_t>(length);
    if (leaf_count_ == 0) return insert(0, 0, begin, length);
    const std::size_t i = leaf_of(begin);
    Leaf& leaf = at(i);
    const std::size_t k = leaf.up_to(begin);  // the new run's place; k - 1 is the one before it
    // The run after it may be the first of the next leaf.
    const bool in_leaf = k < static_cast<std::size_t>(count_[i]);
    const std::size_t after_i = in_leaf ? i : i + 1;
    const std::size_t after_k = in_leaf ? k : 0;
    const bool joins_after = after_i < leaf_count_ && at(after_i).begin[after_k] == b + n;
    const bool joins_before = k > 0 && leaf.begin[k - 1] + leaf.length[k - 1] == b;
    if (joins_before) {
      leaf.length[k - 1] += n + (joins_after ? at(after_i).length[after_k] : 0);
      largest_[i] = std::max(largest_[i], leaf.length[k - 1]);
      if (joins_after) erase(after_i, after_k);
    } else if (joins_after) {
      Leaf& after = at(after_i);
      after.begin[after_k] = b;
      after.length[after_k] += n;
      if (after_k == 0) first_[after_i] = b;
      largest_[after_i] = std::max(largest_[after_i], after.length[after_k]);
    } else {
      insert(i, k, begin, length);
    }
  }

  // Calls function(begin, length) for the runs of at least `least` granules, highest first, until
  // it returns false. The function must not change the runs.
  template <typename Function>
  void visit_down(std::size_t least, Function&& function) const noexcept {
    for (std::size_t i = leaf_count_; i-- > 0;) {
      if (static_cast<std::size_t>(largest_[i]) < least) continue;
      const Leaf& leaf = at(i);
      for (auto k = static_cast<std::size_t>(count_[i]); k-- > 0;) {
        const auto length = static_cast<std::size_t>(leaf.length[k]);
        if (length >= least && !function(static_cast<std::size_t>(leaf.begin[k]), length)) return;
      }
    }
  }

  // nullptr if well.
  [[nodiscard]] const char* check() const noexcept;

 private:
  static constexpr std::size_t kLeafRuns = lanes::kCount;
  static constexpr std::int32_t kBeyond = std::numeric_limits<std::int32_t>::max();

  struct alignas(64) Leaf {
    std::int32_t begin[kLeafRuns];   // ascending; kBeyond where unused
    std::int32_t length[kLeafRuns];  // 0 where unused

    // Number of runs that begin at or before granule `g`.
    [[nodiscard]] std::size_t up_to(std::size_t g) const noexcept {
      const auto next = static_cast<std::int32_t>(g) + 1;
      return static_cast<std::size_t>(std::countr_zero(lanes::at_least(begin, next)));
    }
  };

  // At most every other granule begins a run, and two neighbouring leaves together hold more than
  // half a leaf (see erase).
  static constexpr std::size_t max_leaves(std::size_t granules) noexcept {
    const std::size_t leaves = ((granules + 1) / 2) / (kLeafRuns / 4) + 3;
    return (leaves + kLeafRuns - 1) / kLeafRuns * kLeafRuns;
  }

  [[nodiscard]] Leaf& at(std::size_t i) noexcept { return leaves_[leaf_[i]]; }
  [[nodiscard]] const Leaf& at(std::size_t i) const noexcept { return leaves_[leaf_[i]]; }

  // The last leaf that begins at or before granule `g`, else the first one.
  [[nodiscard]] std::size_t leaf_of(std::size_t g) const noexcept {
    const auto wanted = static_cast<std::int32_t>(g);
    const std::int32_t* low = first_;
    for (std::size_t n = leaf_count_; n > 1;) {
      const std::size_t half = n / 2;
      low = low[half] <= wanted ? low + half : low;  // a conditional move
      n -= half;
    }
    return static_cast<std::size_t>(low - first_);
  }

  void insert(std::size_t i, std::size_t k, std::size_t begin, std::size_t length) noexcept;
  void erase(std::size_t i, std::size_t k) noexcept;
  void add_leaf(std::size_t i) noexcept;
  void remove_leaf(std::size_t i) noexcept;
  bool merge_with_next(std::size_t i) noexcept;
  void refresh(std::size_t i) noexcept {
    first_[i] = at(i).begin[0];
    largest_[i] = lanes::maximum(at(i).length);
  }

  std::size_t granules_ = 0;
  std::size_t run_count_ = 0;
  // Of the leaves in address order: largest length, begin of the first run, runs, place in leaves_.
  // Beyond leaf_count_, largest_ is 0.
  std::size_t leaf_count_ = 0;
  std::int32_t* largest_ = nullptr;
  std::int32_t* first_ = nullptr;
  std::int32_t* count_ = nullptr;
  std::int32_t* leaf_ = nullptr;
  Leaf* leaves_ = nullptr;
  std::int32_t leaves_made_ = 0;  // leaves_ from here on were never touched
  std::int32_t spare_ = -1;       // list of leaves not in use, linked through begin[0]
};

// ---- Leaves
// --------------------------------------------------------------------------------------

inline void FreeRuns::insert(std::size_t i, std::size_t k, std::size_t begin,
                             std::size_t length) noexcept {
  if (leaf_count_ == 0) add_leaf(0);
  if (count_[i] == static_cast<std::int32_t>(kLeafRuns)) {
    constexpr std::size_t kHalf = kLeafRuns / 2;
    add_leaf(i + 1);
    Leaf& full = at(i);
    Leaf& upper = at(i + 1);
    for (std::size_t j = 0; j < kHalf; ++j) {
      upper.begin[j] = full.begin[kHalf + j];
      upper.length[j] = full.length[kHalf + j];
      full.begin[kHalf + j] = kBeyond;
      full.length[kHalf + j] = 0;
    }
    count_[i] = count_[i + 1] = kHalf;
    refresh(i);
    refresh(i + 1);
    if (k > kHalf) {
      ++i;
      k -= kHalf;
    }
  }
  Leaf& leaf = at(i);
  const std::size_t after = static_cast<std::size_t>(count_[i]) - k;
  std::memmove(leaf.begin + k + 1, leaf.begin + k, after * sizeof(std::int32_t));
  std::memmove(leaf.length + k + 1, leaf.length + k, after * sizeof(std::int32_t));
  leaf.begin[k] = static_cast<std::int32_t>(begin);
  leaf.length[k] = static_cast<std::int32_t>(length);
  ++count_[i];
  ++run_count_;
  first_[i] = leaf.begin[0];
  largest_[i] = std::max(largest_[i], leaf.length[k]);
}

inline void FreeRuns::erase(std::size_t i, std::size_t k) noexcept {
  Leaf& leaf = at(i);
  const auto last = static_cast<std::size_t>(--count_[i]);
  --run_count_;
  const std::int32_t length = leaf.length[k];
  std::memmove(leaf.begin + k, leaf.begin + k + 1, (last - k) * sizeof(std::int32_t));
  std::memmove(leaf.length + k, leaf.length + k + 1, (last - k) * sizeof(std::int32_t));
  leaf.begin[last] = kBeyond;
  leaf.length[last] = 0;
  if (last == 0) return remove_leaf(i);
  first_[i] = leaf.begin[0];
  if (length == largest_[i]) largest_[i] = lanes::maximum(leaf.length);
  // Half-empty neighbours become one leaf, which bounds their number.
  if (!merge_with_next(i) && i > 0) merge_with_next(i - 1);
}

inline bool FreeRuns::merge_with_next(std::size_t i) noexcept {
  if (i + 1 >= leaf_count_) return false;
  const auto here = static_cast<std::size_t>(count_[i]);
  const auto more = static_cast<std::size_t>(count_[i + 1]);
  if (here + more > kLeafRuns / 2) return false;
  std::memcpy(at(i).begin + here, at(i + 1).begin, more * sizeof(std::int32_t));
  std::memcpy(at(i).length + here, at(i + 1).length, more * sizeof(std::int32_t));
  count_[i] += static_cast<std::int32_t>(more);
  largest_[i] = std::max(largest_[i], largest_[i + 1]);
  remove_leaf(i + 1);
  return true;
}

// Puts an empty leaf at place i.
inline void FreeRuns::add_leaf(std::size_t i) noexcept {
  assert(leaf_count_ < max_leaves(granules_));
  std::int32_t made = spare_;
  if (made >= 0) {
    spare_ = leaves_[made].begin[0];
  } else {
    made = leaves_made_++;
  }
  for (std::size_t k = 0; k < kLeafRuns; ++k) {
    leaves_[made].begin[k] = kBeyond;
    leaves_[made].length[k] = 0;
  }
  const std::size_t bytes = (leaf_count_ - i) * sizeof(std::int32_t);
  for (std::int32_t* array : {largest_, first_, count_, leaf_}) {
    std::memmove(array + i + 1, array + i, bytes);
    array[i] = 0;
  }
  leaf_[i] = made;
  ++leaf_count_;
}

inline void FreeRuns::remove_leaf(std::size_t i) noexcept {
  at(i).begin[0] = spare_;
  spare_ = leaf_[i];
  --leaf_count_;
  const std::size_t bytes = (leaf_count_ - i) * sizeof(std::int32_t);
  for (std::int32_t* array : {largest_, first_, count_, leaf_}) {
    std::memmove(array + i, array + i + 1, bytes);
  }
  largest_[leaf_count_] = 0;
}

inline const char* FreeRuns::check() const noexcept {
  std::size_t runs = 0;
  std::int64_t previous_end = -1;
  for (std::size_t i = 0; i < leaf_count_; ++i) {
    const Leaf& leaf = at(i);
    const std::int32_t count = count_[i];
    if (count <= 0 || count > static_cast<std::int32_t>(kLeafRuns)) return "free runs: leaf count";
    if (i > 0 && count + count_[i - 1] <= static_cast<std::int32_t>(kLeafRuns / 2)) {
      return "free runs: two half-empty leaves";
    }
    if (first_[i] != leaf.begin[0]) return "free runs: wrong first begin";
    std::int32_t largest = 0;
    for (std::int32_t k = 0; k < static_cast<std::int32_t>(kLeafRuns); ++k) {
      if (k >= count) {
        if (leaf.begin[k] != kBeyond || leaf.length[k] != 0) return "free runs: unused entry";
        continue;
      }
      if (leaf.length[k] <= 0) return "free runs: empty run";
      if (leaf.begin[k] <= previous_end) return "free runs: out of order, or neighbours not joined";
      previous_end = std::int64_t{leaf.begin[k]} + leaf.length[k];
      largest = std::max(largest, leaf.length[k]);
      ++runs;
    }
    if (largest != largest_[i]) return "free runs: wrong largest length";
  }
  if (previous_end > static_cast<std::int64_t>(granules_)) return "free runs: beyond the row";
  if (runs != run_count_) return "free runs: wrong number of runs";
  const std::size_t padded = (leaf_count_ + lanes::kCount - 1) / lanes::kCount * lanes::kCount;
  for (std::size_t i = leaf_count_; i < padded; ++i) {
    if (largest_[i] != 0) return "free runs: largest length of no leaf";
  }
  return nullptr;
}

}  // namespace pleat::allocator
