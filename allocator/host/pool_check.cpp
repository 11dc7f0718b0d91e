#include "allocator/host/pool_impl.h"

namespace pleat::allocator {

void Pool::visit_blocks(Visitor visitor, void* context) const {
  const Impl& p = *impl_;
  const std::lock_guard<std::mutex> lock(p.mutex);
  for (std::size_t rank = 0; rank < p.segments.count(); ++rank) {
    const Segment& segment = p.segments[rank];
    const std::size_t last = segment.touched.last_touched(0, segment.touched.pages());
    const std::size_t resident_end = last == TouchedPages::kNone ? 0 : (last + 1) << p.page_shift;
    std::size_t offset = 0;
    while (offset < resident_end) {
      const std::size_t granule = offset >> p.granule_shift;
      BlockView view{segment.base + offset, 0, 0, false, false};
      if (const Block* block = segment.in_use[granule].load(std::memory_order_relaxed)) {
        view.bytes = block->bytes;
        view.requested = block->requested;
        view.in_use = true;
        view.saved = block->record.load(std::memory_order_relaxed) != nullptr;
      } else {
        // The last run can be terabytes; only its resident part is worth a line.
        view.bytes =
            std::min(segment.runs.length_at(granule) << p.granule_shift, resident_end - offset);
      }
      visitor(context, view);
      offset += view.bytes;
    }
  }
}

const char* Pool::Impl::check(const Segment& segment, std::size_t* in_use,
                              std::size_t* requested_bytes, std::size_t* active_bytes) const {
  if (const char* error = segment.runs.check()) return error;
  std::size_t runs = 0;
  std::size_t granule = 0;
  bool previous_free = false;
  while (granule < segment.runs.granules()) {
    const std::size_t run = segment.runs.length_at(granule);
    const Block* block = segment.in_use[granule].load(std::memory_order_relaxed);
    if (run > 0) {
      if (block != nullptr) return "a block in use begins in a free run";
      if (previous_free) return "two free neighbours";
      previous_free = true;
      ++runs;
      granule += run;
      continue;
    }
    previous_free = false;
    if (block == nullptr) return "blocks do not tile their segment";
    if (block->begin != segment.base + (granule << granule_shift))
      return "block at a wrong address";
    if (block->bytes == 0 || block->bytes % granule_bytes != 0) return "block of a wrong size";
    if (block->requested > block->bytes) return "block smaller than requested";
    const std::size_t offset = granule << granule_shift;
    if (segment.touched.untouched(offset >> page_shift,
                                  ((offset + block->bytes - 1) >> page_shift) + 1) != 0) {
      return "block in use on pages that do not count as touched";
    }
    ++*in_use;
    *requested_bytes += block->requested;
    *active_bytes += block->bytes;
    granule += block->bytes >> granule_shift;
  }
  if (granule != segment.runs.granules()) return "a block reaches beyond its segment";
  if (runs != segment.runs.run_count()) return "the free index differs from the set of free runs";
  bool runs_know = true;
  segment.runs.visit_touched([&](std::size_t begin, std::size_t length) {
    runs_know &= segment.touched.all_touched(first_page(begin), end_page(begin, length));
  });
  if (!runs_know) return "a free run takes untouched pages for touched ones";
  const char* wrong = nullptr;
  segment.runs.visit_known([&](std::size_t begin, std::size_t length, std::size_t touched_length,
                               bool exact, unsigned purposes) {
    if (exact && longest_touched(segment, begin, length).second != touched_length) {
      wrong = "a free run has lost sight of a touched stretch, unbeknown";
    }
    const auto bit = [](Purge kind) { return 1u << static_cast<unsigned>(kind); };
    const FreeRun run{static_cast<std::int32_t>(begin), static_cast<std::int32_t>(length), 0, 0};
    const auto any = [&](std::size_t unit_bytes) {
      const auto [first, end] = pages_within(run, unit_bytes);
      return first < end && segment.touched.touched(first, end) != 0;
    };
    if ((purposes & bit(Purge::kAllPages)) != 0 && any(page_bytes)) {
      wrong = "a free page would be overlooked";
    }
    if ((purposes & bit(Purge::kWholeHugePages)) != 0 && any(huge_page_bytes)) {
      wrong = "a free huge page would be overlooked";
    }
  });
  if (wrong != nullptr) return wrong;
  std::size_t touched = 0;
  for (std::size_t page = 0; page < segment.touched.pages(); ++page) {
    touched += segment.touched.test(page) ? 1 : 0;
  }
  if (touched != segment.touched.count()) return "wrong number of touched pages";
  const std::size_t huge = segment.touched.pages_per_huge_page();
  std::size_t kinds = 0;
  for (std::size_t page = huge; page < segment.touched.pages(); page += huge) {
    kinds += segment.touched.is_plain(page) != segment.touched.is_plain(page - huge) ? 1 : 0;
  }
  if (kinds != segment.touched.kinds()) return "wrong number of changes from plain to not plain";
  return nullptr;
}

const char* Pool::check_invariants() const {
  const Impl& p = *impl_;
  const std::lock_guard<std::mutex> lock(p.mutex);
  std::size_t in_use = 0;
  std::size_t requested = 0;
  std::size_t active = 0;
  std::size_t resident = 0;
  const std::byte* previous_end = nullptr;
  for (std::size_t rank = 0; rank < p.segments.count(); ++rank) {
    const Segment& segment = p.segments[rank];
    if (segment.base == nullptr || segment.base < previous_end) return "segments out of order";
    previous_end = segment.base + segment.bytes;
    if (const char* error = p.check(segment, &in_use, &requested, &active)) return error;
    resident += segment.touched.count() << p.page_shift;
  }
  if (in_use != p.blocks_in_use) return "wrong number of blocks in use";
  if (requested != p.requested) return "wrong sum of requested bytes";
  if (active != p.active) return "wrong sum of active bytes";
  if (resident != p.resident) return "wrong sum of resident bytes";
  const auto equals = [&p](StatKind kind, std::size_t value) {
    return p.statistics.current(kind) == static_cast<std::int64_t>(value);
  };
  if (!equals(StatKind::kActive, active)) return "statistics: active";
  if (!equals(StatKind::kReserved, resident)) return "statistics: reserved";
  if (!equals(StatKind::kCached, resident - active)) return "statistics: cached";
  return "";
}

std::size_t Pool::runs_looked_at() const noexcept {
  const std::lock_guard<std::mutex> lock(impl_->mutex);
  std::size_t runs = 0;
  for (std::size_t rank = 0; rank < impl_->segments.count(); ++rank) {
    runs += impl_->segments[rank].runs.looked_at();
  }
  return runs;
}

const char* FreeRuns::check() const noexcept {
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
    std::int32_t touched = 0;
    for (std::int32_t k = 0; k < static_cast<std::int32_t>(kLeafRuns); ++k) {
      if (k >= count) {
        if (leaf.begin[k] != kBeyond || leaf.length[k] != 0 || leaf.touched_length[k] != 0) {
          return "free runs: unused entry";
        }
        continue;
      }
      if (leaf.touched_length[k] < 0) return "free runs: less than nothing touched";
      if (leaf.touched_length[k] > 0 &&
          (leaf.touched_begin[k] < leaf.begin[k] ||
           leaf.touched_begin[k] + leaf.touched_length[k] > leaf.begin[k] + leaf.length[k])) {
        return "free runs: touched stretch outside its run";
      }
      touched = std::max(touched, leaf.touched_length[k]);
      if (leaf.length[k] <= 0) return "free runs: empty run";
      if (leaf.begin[k] <= previous_end) return "free runs: out of order, or neighbours not joined";
      previous_end = std::int64_t{leaf.begin[k]} + leaf.length[k];
      largest = std::max(largest, leaf.length[k]);
      ++runs;
    }
    if (largest != largest_[i]) return "free runs: wrong largest length";
    if (touched != touched_[i]) return "free runs: wrong largest touched length";
  }
  if (previous_end > static_cast<std::int64_t>(granules_)) return "free runs: beyond the row";
  if (runs != run_count_) return "free runs: wrong number of runs";
  const std::size_t padded = (leaf_count_ + lanes::kCount - 1) / lanes::kCount * lanes::kCount;
  for (std::size_t i = leaf_count_; i < padded; ++i) {
    if (largest_[i] != 0 || touched_[i] != 0) return "free runs: largest length of no leaf";
  }
  return nullptr;
}

}  // namespace pleat::allocator
