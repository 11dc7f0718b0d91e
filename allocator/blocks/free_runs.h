// FreeRuns keeps the free runs of a row of granules, sorted by address, and coalesces neighbours.
//
// A run is a maximal stretch of free granules. Each run records its longest stretch known to be
// touched, that is, with resident pages. Freed granules were in use, so they count as touched. A
// fit first takes the shortest touched stretch that is long enough, and only then the lowest run: a
// page fault costs more than a hole.
//
// Leaves of up to 32 runs hold the runs by address, with arrays of begins and of lengths. Arrays
// over the leaves hold each leaf's first begin and largest lengths. A fit scans those arrays and a
// few leaves. Freeing is a binary search; the neighbours to coalesce with are the entries next to
// the place found, so most operations change one entry in place. A thousand runs fit the
// first-level cache, whatever addresses they span. Measured several times faster than search trees
// over nodes and a tournament tree over granules: their cache misses dominate.
//
// A row can have a hundred thousand runs. So a walk stores its findings in each leaf, and the next
// walk visits only leaves in which a run has changed since.
//
// The caller hands in memory once, large enough for the worst case, so no operation fails. FreeRuns
// touches only the part of that memory in use. It does not depend on blocks. Not thread-safe.
#pragma once

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "allocator/blocks/lanes.h"
#include "allocator/blocks/run_leaf.h"

namespace pleat::allocator {

class FreeRuns {
 public:
  static constexpr std::size_t kNone = SIZE_MAX;
  static constexpr std::size_t kMaxGranules = std::numeric_limits<std::int32_t>::max() - 1;

  // Metadata bytes for a row of `granules` (1 .. kMaxGranules).
  [[nodiscard]] static std::size_t metadata_bytes(std::size_t granules) noexcept {
    return max_leaves(granules) *
           (sizeof(Leaf) + kLeafArrays * sizeof(std::int32_t) + sizeof(std::uint8_t));
  }

  // Bytes of the leaves of such a row, the first part of the metadata. While only the first
  // `granules` of a longer row were ever taken, its leaves use those of a row of granules + 2.
  [[nodiscard]] static std::size_t leaf_bytes(std::size_t granules) noexcept {
    return max_leaves(granules) * sizeof(Leaf);
  }

  // `memory` holds metadata_bytes(granules) zero bytes, 64-byte aligned, and outlives this object.
  // All granules are free and untouched afterwards.
  void attach(std::byte* memory, std::size_t granules) noexcept {
    assert(granules >= 1 && granules <= kMaxGranules);
    const std::size_t capacity = max_leaves(granules);
    granules_ = granules;
    leaves_ = reinterpret_cast<Leaf*>(memory);
    auto* next = reinterpret_cast<std::int32_t*>(memory + capacity * sizeof(Leaf));
    largest_ = next;
    touched_ = next += capacity;
    first_ = next += capacity;
    count_ = next += capacity;
    leaf_ = next += capacity;
    known_ = reinterpret_cast<std::uint8_t*>(next + capacity);
    leaf_count_ = leaves_made_ = 0;
    spare_ = -1;
    run_count_ = 0;
    insert(0, 0, {0, static_cast<std::int32_t>(granules), 0, 0});
  }

  // Lengthens the row at its end by free, untouched granules, or cuts free granules off the end.
  // `granules` is at most the number given to attach().
  void resize(std::size_t granules) noexcept {
    const std::size_t before = granules_;
    if (granules < before) take(granules, before - granules);
    granules_ = granules;
    if (granules > before) join(before, granules - before, 0);
  }

  [[nodiscard]] std::size_t granules() const noexcept { return granules_; }
  [[nodiscard]] std::size_t run_count() const noexcept { return run_count_; }
  [[nodiscard]] bool all_free() const noexcept { return length_at(0) == granules_; }

  [[nodiscard]] std::size_t largest() const noexcept {
    std::int32_t best = 0;
    for (std::size_t i = 0; i < leaf_count_; ++i) best = std::max(best, largest_[i]);
    return static_cast<std::size_t>(best);
  }

  // Length of the run that begins at granule `begin`, 0 if no run begins there.
  [[nodiscard]] std::size_t length_at(std::size_t begin) const noexcept {
    if (leaf_count_ == 0) return 0;
    const std::size_t i = leaf_of(begin);
    const Leaf& leaf = at(i);
    const std::size_t k = leaf.up_to(begin);
    if (k == 0 || leaf.begin[k - 1] != static_cast<std::int32_t>(begin)) return 0;
    return static_cast<std::size_t>(leaf.length[k - 1]);
  }

  // The begin of the lowest run of at least `need` (> 0) granules, kNone if all runs are shorter.
  [[nodiscard]] std::size_t first_fit(std::size_t need) const noexcept {
    const Entry found = find_first(need);
    return found.i == leaf_count_ ? kNone : static_cast<std::size_t>(at(found.i).begin[found.k]);
  }

  // Takes `need` (> 0) granules from the head of the run that first_fit() returns. Returns its
  // begin, kNone if all runs are shorter.
  [[nodiscard]] std::size_t take_first_fit(std::size_t need) noexcept {
    const auto [i, k] = find_first(need);
    if (i == leaf_count_) return kNone;
    return cut(i, k, at(i).begin[k], static_cast<std::int32_t>(need));
  }

  // Takes `need` (> 0) granules from the head of the shortest known touched stretch that holds
  // them, the lowest on a tie. Returns the first granule taken, a multiple of `alignment` (a power
  // of two). Returns kNone in three cases:
  //   - no stretch is long enough;
  //   - the alignment leaves too few granules in the shortest such stretch;
  //   - the shortest such stretch has `below` granules or more.
  // The search visits about a hundred runs at most.
  [[nodiscard]] std::size_t take_best_touched(std::size_t need, std::size_t alignment = 1,
                                              std::size_t below = kNone) noexcept {
    if (need > granules_) return kNone;
    const auto n = static_cast<std::int32_t>(need);
    constexpr int kMostLeaves = 4;
    std::int32_t least = kBeyond;
    std::size_t best = 0;
    std::size_t i = 0;
    for (int leaves = 0; leaves < kMostLeaves && least != n; ++leaves, ++i) {
      i = lanes::first_at_least(touched_, leaf_count_, n, i);
      if (i == leaf_count_) break;
      const std::int32_t here = lanes::least_from(at(i).touched_length, n);
      if (here < least) {
        least = here;
        best = i;
      }
    }
    if (least == kBeyond || static_cast<std::size_t>(least) >= below) return kNone;
    const std::size_t k = lanes::first_equal(at(best).touched_length, least);
    const auto unit = static_cast<std::int32_t>(alignment);
    const std::int32_t begin = (at(best).touched_begin[k] + unit - 1) & -unit;
    if (begin - at(best).touched_begin[k] > least - n) return kNone;
    return cut(best, k, begin, n);
  }

  // Whether granules [begin, begin + need) are all free.
  [[nodiscard]] bool is_free(std::size_t begin, std::size_t need) const noexcept {
    if (leaf_count_ == 0) return false;
    const Leaf& leaf = at(leaf_of(begin));
    const std::size_t k = leaf.up_to(begin);
    return k > 0 &&
           static_cast<std::size_t>(leaf.begin[k - 1] + leaf.length[k - 1]) >= begin + need;
  }

  // Takes `need` (> 0) granules from `begin` on, all of them free.
  void take(std::size_t begin, std::size_t need) noexcept {
    const std::size_t i = leaf_of(begin);
    cut(i, at(i).up_to(begin) - 1, static_cast<std::int32_t>(begin),
        static_cast<std::int32_t>(need));
  }

  // Frees granules that are in use. They count as touched.
  void give(std::size_t begin, std::size_t length) noexcept { join(begin, length, length); }

  // Must be called after pages of granules [begin, end) became resident or were released. Sets the
  // touched stretch of each run with granules there to the result of function(begin, length) of the
  // run: the run's longest touched stretch as {begin, length}.
  template <typename Function>
  void update_touched(std::size_t begin, std::size_t end, Function&& function) noexcept {
    if (leaf_count_ == 0) return;
    for (std::size_t i = leaf_of(begin); i < leaf_count_; ++i) {
      if (static_cast<std::size_t>(first_[i]) >= end) return;
      Leaf& leaf = at(i);
      looked_at_ += static_cast<std::size_t>(count_[i]);
      for (std::size_t k = 0; k < static_cast<std::size_t>(count_[i]); ++k) {
        const auto from = static_cast<std::size_t>(leaf.begin[k]);
        const auto length = static_cast<std::size_t>(leaf.length[k]);
        if (from < end && from + length > begin) set_touched(leaf, k, function(from, length));
      }
      known_[i] &= kExact;
      refresh(i);
    }
  }

  // Does the same for all runs of each leaf that meets two conditions: a run of the leaf has at
  // least `least` (> 0) granules, and the leaf's touched stretches are not known to be the longest.
  template <typename Function>
  void find_touched(std::size_t least, Function&& function) noexcept {
    visit_leaves_up(least, kExact, [&](std::size_t i) {
      Leaf& leaf = at(i);
      for (std::size_t k = 0; k < static_cast<std::size_t>(count_[i]); ++k) {
        set_touched(leaf, k,
                    function(static_cast<std::size_t>(leaf.begin[k]),
                             static_cast<std::size_t>(leaf.length[k])));
      }
      refresh(i);
      known_[i] |= kExact;
      return true;
    });
  }

  // Calls function(begin, length) for the runs of at least `least` (> 0) granules, lowest first,
  // until it returns false. The function must not change the runs.
  template <typename Function>
  void visit_up(std::size_t least, Function&& function) const noexcept {
    visit_leaves_up(least, 0, [&](std::size_t i) {
      const Leaf& leaf = at(i);
      for (std::size_t k = 0; k < static_cast<std::size_t>(count_[i]); ++k) {
        const auto length = static_cast<std::size_t>(leaf.length[k]);
        if (length >= least && !function(static_cast<std::size_t>(leaf.begin[k]), length)) {
          return false;
        }
      }
      return true;
    });
  }

  // Result of the function that visit_down() calls.
  enum class Visit : std::uint8_t { kNext, kStop };
  // Calls function(run) for the runs of at least `least` (> 0) granules, highest first, until it
  // returns kStop. A function that releases pages sets run.touched_begin and run.touched_length to
  // the longest touched stretch left. The function returns kNext once the run has no more pages to
  // release. Later visits for the same `purpose` (< kPurposes) skip a leaf whose runs all returned
  // kNext, until one of its runs changes.
  static constexpr unsigned kPurposes = 7;
  template <typename Function>
  void visit_down(std::size_t least, unsigned purpose, Function&& function) noexcept {
    const auto done = static_cast<std::uint8_t>(kExact << (1 + purpose));
    visit_leaves_down(least, done, [&](std::size_t i) {
      Leaf& leaf = at(i);
      bool changed = false;
      bool all = true;
      for (auto k = static_cast<std::size_t>(count_[i]); all && k-- > 0;) {
        if (static_cast<std::size_t>(leaf.length[k]) < least) continue;
        Run run = leaf.get(k);
        all = function(run) == Visit::kNext;
        if (run.touched_begin == leaf.touched_begin[k] &&
            run.touched_length == leaf.touched_length[k]) {
          continue;
        }
        leaf.set(k, run);
        changed = true;
      }
      if (changed) {
        known_[i] &= kExact;
        refresh(i);
      }
      if (all) known_[i] |= done;
      return all;
    });
  }

  // Calls function(begin, length) for the known touched stretches.
  template <typename Function>
  void visit_touched(Function&& function) const noexcept {
    for (std::size_t i = 0; i < leaf_count_; ++i) {
      const Leaf& leaf = at(i);
      for (std::size_t k = 0; k < static_cast<std::size_t>(count_[i]); ++k) {
        if (leaf.touched_length[k] == 0) continue;
        function(static_cast<std::size_t>(leaf.touched_begin[k]),
                 static_cast<std::size_t>(leaf.touched_length[k]));
      }
    }
  }

  // Calls function(begin, length, touched length, exact, purposes) for all runs, lowest first.
  // `exact`: the touched stretch is the longest one. `purposes`: one bit for each purpose of
  // visit_down() for which the run's leaf is done.
  template <typename Function>
  void visit_known(Function&& function) const noexcept {
    for (std::size_t i = 0; i < leaf_count_; ++i) {
      const Leaf& leaf = at(i);
      for (std::size_t k = 0; k < static_cast<std::size_t>(count_[i]); ++k) {
        function(static_cast<std::size_t>(leaf.begin[k]), static_cast<std::size_t>(leaf.length[k]),
                 static_cast<std::size_t>(leaf.touched_length[k]), (known_[i] & kExact) != 0,
                 known_[i] >> 1);
      }
    }
  }

  // Number of runs that all walks have visited so far. For tests of how far walks go.
  [[nodiscard]] std::size_t looked_at() const noexcept { return looked_at_; }

  // nullptr if the structure is consistent, else a message that names the first fault. For tests.
  [[nodiscard]] const char* check() const noexcept;

 private:
  using Run = FreeRun;
  using Leaf = RunLeaf;
  static constexpr std::size_t kLeafRuns = Leaf::kRuns;
  static constexpr std::size_t kLeafArrays = 5;
  static constexpr std::int32_t kBeyond = Leaf::kBeyond;
  // The lowest bit of known_ marks a leaf whose touched stretches are the longest ones. The other
  // bits are the purposes of visit_down().
  static constexpr std::uint8_t kExact = 1;

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

  template <typename Stretch>
  static void set_touched(Leaf& leaf, std::size_t k, const Stretch& stretch) noexcept {
    const auto [begin, length] = stretch;
    leaf.touched_begin[k] = static_cast<std::int32_t>(begin);
    leaf.touched_length[k] = static_cast<std::int32_t>(length);
  }

  // Bit k stands for leaf i + k, for 32 leaves. It is set if the leaf has a run of at least `least`
  // granules and none of the bits `known` in known_.
  [[nodiscard]] std::uint32_t leaves_to_visit(std::size_t i, std::size_t least,
                                              std::uint8_t known) const noexcept {
    return lanes::at_least(largest_ + i, static_cast<std::int32_t>(least)) &
           lanes::without(known_ + i, known);
  }
  // Calls function(i) for each leaf of leaves_to_visit() until it returns false.
  template <typename Function>
  void visit_leaves_up(std::size_t least, std::uint8_t known, Function&& function) const noexcept {
    if (least > granules_) return;
    for (std::size_t i = 0; i < leaf_count_; i += lanes::kCount) {
      for (std::uint32_t left = leaves_to_visit(i, least, known); left != 0; left &= left - 1) {
        const std::size_t leaf = i + static_cast<std::size_t>(std::countr_zero(left));
        looked_at_ += static_cast<std::size_t>(count_[leaf]);
        if (!function(leaf)) return;
      }
    }
  }
  template <typename Function>
  void visit_leaves_down(std::size_t least, std::uint8_t known,
                         Function&& function) const noexcept {
    if (least > granules_) return;
    for (std::size_t i = (leaf_count_ + lanes::kCount - 1) / lanes::kCount * lanes::kCount;
         i > 0;) {
      i -= lanes::kCount;
      for (std::uint32_t left = leaves_to_visit(i, least, known); left != 0;) {
        const auto highest = static_cast<std::size_t>(std::bit_width(left)) - 1;
        left &= ~(std::uint32_t{1} << highest);
        looked_at_ += static_cast<std::size_t>(count_[i + highest]);
        if (!function(i + highest)) return;
      }
    }
  }

  // Run k of leaf i.
  struct Entry {
    std::size_t i;
    std::size_t k;
  };
  // The lowest run of at least `need` granules; i is leaf_count_ if all runs are shorter.
  [[nodiscard]] Entry find_first(std::size_t need) const noexcept {
    if (need > granules_) return {leaf_count_, 0};
    const auto n = static_cast<std::int32_t>(need);
    const std::size_t i = lanes::first_at_least(largest_, leaf_count_, n);
    if (i == leaf_count_) return {i, 0};
    return {i, static_cast<std::size_t>(std::countr_zero(lanes::at_least(at(i).length, n)))};
  }
  // Takes `n` granules, from `begin` on, out of run k of leaf i. Returns `begin`.
  std::size_t cut(std::size_t i, std::size_t k, std::int32_t begin, std::int32_t n) noexcept {
    const Run run = at(i).get(k);
    const Run before = run.part(run.begin, begin);
    const Run after = run.part(begin + n, run.begin + run.length);
    assert(before.length >= 0 && after.length >= 0);
    if (before.length == 0 && after.length == 0) {
      erase(i, k);
    } else {
      replace(i, k, before.length != 0 ? before : after);
      if (before.length != 0 && after.length != 0) insert(i, k + 1, after);
    }
    return static_cast<std::size_t>(begin);
  }
  // Adds granules that are not yet free. The first `touched` of them are touched.
  void join(std::size_t begin, std::size_t length, std::size_t touched) noexcept;
  // Replaces run k of leaf i by `run`, which lies between the same neighbours.
  void replace(std::size_t i, std::size_t k, const Run& run) noexcept {
    Leaf& leaf = at(i);
    const Run old = leaf.get(k);
    leaf.set(k, run);
    known_[i] = 0;
    if (k == 0) first_[i] = run.begin;
    raise_or_find(largest_[i], old.length, run.length, leaf.length);
    raise_or_find(touched_[i], old.touched_length, run.touched_length, leaf.touched_length);
  }
  static void raise_or_find(std::int32_t& most, std::int32_t old, std::int32_t now,
                            const std::int32_t (&all)[kLeafRuns]) noexcept {
    if (now >= most) {
      most = now;
    } else if (old == most) {
      most = lanes::maximum(all);
    }
  }
  void insert(std::size_t i, std::size_t k, const Run& run) noexcept;
  void erase(std::size_t i, std::size_t k) noexcept;
  void add_leaf(std::size_t i) noexcept;
  void remove_leaf(std::size_t i) noexcept;
  bool merge_with_next(std::size_t i) noexcept;
  void refresh(std::size_t i) noexcept {
    first_[i] = at(i).begin[0];
    largest_[i] = lanes::maximum(at(i).length);
    touched_[i] = lanes::maximum(at(i).touched_length);
  }

  std::size_t granules_ = 0;
  std::size_t run_count_ = 0;
  // One entry per leaf, in address order: largest length, largest touched length, begin of the
  // first run, number of runs, index in leaves_. Beyond leaf_count_ the first two are 0.
  std::size_t leaf_count_ = 0;
  std::int32_t* largest_ = nullptr;
  std::int32_t* touched_ = nullptr;
  std::int32_t* first_ = nullptr;
  std::int32_t* count_ = nullptr;
  std::int32_t* leaf_ = nullptr;
  std::uint8_t* known_ = nullptr;  // findings of walks; cleared when a run changes
  Leaf* leaves_ = nullptr;
  std::int32_t leaves_made_ = 0;  // leaves_ from this one on were never touched
  mutable std::size_t looked_at_ = 0;
  std::int32_t spare_ = -1;  // list of leaves not in use, linked through begin[0]
};

// ---- leaves ----

inline void FreeRuns::join(std::size_t begin, std::size_t length, std::size_t touched) noexcept {
  assert(length > 0 && begin + length <= granules_);
  const auto b = static_cast<std::int32_t>(begin);
  Run run{b, static_cast<std::int32_t>(length), b, static_cast<std::int32_t>(touched)};
  if (leaf_count_ == 0) return insert(0, 0, run);
  const std::size_t i = leaf_of(begin);
  const Leaf& leaf = at(i);
  const std::size_t k = leaf.up_to(begin);  // the new run's place; k - 1 is the one before it
  // The run after the new one can be the first run of the next leaf.
  const bool in_leaf = k < static_cast<std::size_t>(count_[i]);
  const std::size_t after_i = in_leaf ? i : i + 1;
  const std::size_t after_k = in_leaf ? k : 0;
  const bool joins_after =
      after_i < leaf_count_ && at(after_i).begin[after_k] == run.begin + run.length;
  const bool joins_before = k > 0 && leaf.begin[k - 1] + leaf.length[k - 1] == b;
  if (joins_after) run = run.joined(at(after_i).get(after_k));
  if (joins_before) {
    replace(i, k - 1, leaf.get(k - 1).joined(run));
    if (joins_after) erase(after_i, after_k);
  } else if (joins_after) {
    replace(after_i, after_k, run);
  } else {
    insert(i, k, run);
  }
}

inline void FreeRuns::insert(std::size_t i, std::size_t k, const Run& run) noexcept {
  if (leaf_count_ == 0) add_leaf(0);
  if (count_[i] == static_cast<std::int32_t>(kLeafRuns)) {
    constexpr std::size_t kHalf = kLeafRuns / 2;
    add_leaf(i + 1);
    Leaf& full = at(i);
    Leaf& upper = at(i + 1);
    full.move(kHalf, kHalf, upper, 0);
    for (std::size_t j = kHalf; j < kLeafRuns; ++j) full.clear(j);
    count_[i] = count_[i + 1] = kHalf;
    refresh(i);
    refresh(i + 1);
    if (k > kHalf) {
      ++i;
      k -= kHalf;
    }
  }
  Leaf& leaf = at(i);
  leaf.move(k, static_cast<std::size_t>(count_[i]) - k, leaf, k + 1);
  leaf.set(k, run);
  ++count_[i];
  ++run_count_;
  known_[i] = 0;
  first_[i] = leaf.begin[0];
  largest_[i] = std::max(largest_[i], run.length);
  touched_[i] = std::max(touched_[i], run.touched_length);
}

inline void FreeRuns::erase(std::size_t i, std::size_t k) noexcept {
  Leaf& leaf = at(i);
  const auto last = static_cast<std::size_t>(--count_[i]);
  --run_count_;
  const Run run = leaf.get(k);
  leaf.move(k + 1, last - k, leaf, k);
  leaf.clear(last);
  if (last == 0) return remove_leaf(i);
  known_[i] = 0;
  first_[i] = leaf.begin[0];
  if (run.length == largest_[i]) largest_[i] = lanes::maximum(leaf.length);
  if (run.touched_length == touched_[i]) touched_[i] = lanes::maximum(leaf.touched_length);
  // Merging half-empty neighbours bounds the number of leaves.
  if (!merge_with_next(i) && i > 0) merge_with_next(i - 1);
}

inline bool FreeRuns::merge_with_next(std::size_t i) noexcept {
  if (i + 1 >= leaf_count_) return false;
  const auto here = static_cast<std::size_t>(count_[i]);
  const auto more = static_cast<std::size_t>(count_[i + 1]);
  if (here + more > kLeafRuns / 2) return false;
  at(i + 1).move(0, more, at(i), here);
  count_[i] += static_cast<std::int32_t>(more);
  largest_[i] = std::max(largest_[i], largest_[i + 1]);
  touched_[i] = std::max(touched_[i], touched_[i + 1]);
  known_[i] = 0;
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
  for (std::size_t k = 0; k < kLeafRuns; ++k) leaves_[made].clear(k);
  const std::size_t bytes = (leaf_count_ - i) * sizeof(std::int32_t);
  for (std::int32_t* array : {largest_, touched_, first_, count_, leaf_}) {
    std::memmove(array + i + 1, array + i, bytes);
    array[i] = 0;
  }
  std::memmove(known_ + i + 1, known_ + i, leaf_count_ - i);
  known_[i] = 0;
  leaf_[i] = made;
  ++leaf_count_;
}

inline void FreeRuns::remove_leaf(std::size_t i) noexcept {
  at(i).begin[0] = spare_;
  spare_ = leaf_[i];
  --leaf_count_;
  const std::size_t bytes = (leaf_count_ - i) * sizeof(std::int32_t);
  for (std::int32_t* array : {largest_, touched_, first_, count_, leaf_}) {
    std::memmove(array + i, array + i + 1, bytes);
  }
  std::memmove(known_ + i, known_ + i + 1, leaf_count_ - i);
  largest_[leaf_count_] = touched_[leaf_count_] = 0;
}

}  // namespace pleat::allocator
