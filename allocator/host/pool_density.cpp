// Whether handed-out pages are written at all, and densely. Pages that never became resident are no
// longer counted once their block is freed. Resident small pages are joined into huge ones.
#include <time.h>

#include "allocator/host/pool_impl.h"

namespace pleat::allocator {
namespace {

constexpr double kFirstAllowanceNs = 20e6;
constexpr double kMostAllowanceNs = 50e6;  // after a pause
constexpr double kAtOnceNs = 2e6;
// A process can have 65530 mappings, and each change of MADV_HUGEPAGE begins a new one.
constexpr std::size_t kMostKinds = 8192;
constexpr std::size_t kMostPages = 512;  // pages of a huge page

double now_ns() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

}  // namespace

// Examines which pages of a block were written, in those of its huge pages not examined before.
// Pages that never became resident are no longer counted.
Pool::Impl::Looked Pool::Impl::look_at(Segment& segment, std::size_t granule,
                                       std::size_t need) noexcept {
  Looked looked;
  TouchedPages& touched = segment.touched;
  const std::size_t huge = touched.pages_per_huge_page();
  const std::size_t begin = round_up(granule << granule_shift, huge_page_bytes) >> page_shift;
  const std::size_t end =
      (((granule + need) << granule_shift) & ~(huge_page_bytes - 1)) >> page_shift;
  if (begin >= end || huge > kMostPages || !touched.any_unsure(begin, end)) return looked;
  const std::size_t before = touched.count();
  bool present[kMostPages];
  for (std::size_t first = begin; first < end;) {
    std::size_t last = first;  // the end of a stretch to look at in one call
    while (last < end && last + huge - first <= kMostPages && touched.is_unsure(last)) last += huge;
    if (last == first) {
      first += huge;
      continue;
    }
    if (device.look_at_pages(segment.base + (first << page_shift), last - first, present) ==
        SIZE_MAX) {
      break;
    }
    looked.pages += last - first;
    for (const bool* there = present; first < last; first += huge, there += huge) {
      const std::size_t had = touched.count();
      for (std::size_t i = 0; i < huge; ++i) {
        const std::size_t from = i;
        while (i < huge && !there[i]) ++i;
        if (i > from) touched.forget(first + from, first + i);
      }
      touched.set_sure(first);
      const std::size_t absent = had - touched.count();
      if (absent != 0 && absent != huge && !touched.comes_singly(first)) {
        touched.set_split(first, true);
      }
    }
  }
  looked.absent = before - touched.count();
  resident -= looked.absent << page_shift;
  return looked;
}

// Takes the lowest granules from the begin of a huge page on without a touched page, if any.
[[gnu::noinline]] Pool::Impl::Place Pool::Impl::take_fresh(std::size_t need) noexcept {
  if (!may_have_fresh(need << granule_shift)) return {};
  const std::size_t huge = std::max<std::size_t>(huge_page_bytes >> granule_shift, 1);
  for (std::size_t rank = 0; rank < segments.count(); ++rank) {
    Segment& segment = segments[rank];
    if (segment.lane != Lane::kWork) continue;
    std::size_t found = FreeRuns::kNone;
    std::size_t looks = 0;
    segment.runs.visit_up(need, [&](std::size_t begin, std::size_t length) {
      std::size_t at = round_up(begin, huge);
      while (at + need <= begin + length && looks++ < kMostLooks) {
        const std::size_t last = segment.touched.last_touched(first_page(at), end_page(at, need));
        if (last == TouchedPages::kNone) {
          found = at;
          return false;
        }
        at = round_up(granules_below(last + 1), huge);
      }
      return looks < kMostLooks;
    });
    if (found == FreeRuns::kNone) continue;
    const std::size_t end = (found + need) << granule_shift;
    if (end > segment.bytes && !reach(rank, end)) continue;
    segment.runs.take(found, need);
    return {&segment, found};
  }
  return {};
}

// Releases all huge pages that are completely inside a block that was just freed.
[[gnu::noinline]] void Pool::Impl::give_back_sparse(Segment& segment, std::size_t granule,
                                                    std::size_t need) noexcept {
  if (!returns_pages) return;
  const TouchedPages& touched = segment.touched;
  const std::size_t huge = touched.pages_per_huge_page();
  std::size_t low = round_up(granule << granule_shift, huge_page_bytes) >> page_shift;
  const std::size_t end =
      (((granule + need) << granule_shift) & ~(huge_page_bytes - 1)) >> page_shift;
  while (low < end) {
    std::size_t high = low + huge;
    while (high < end && touched.is_plain(high) == touched.is_plain(low)) high += huge;
    if (touched.touched(low, high) != 0 && !give_back(segment, low, high, Joins::kForget)) break;
    low = high;
  }
  update_runs(segment, first_page(granule), end_page(granule, need));
}

std::size_t Pool::Impl::kinds() const noexcept {
  std::size_t kinds = 0;
  for (std::size_t rank = 0; rank < segments.count(); ++rank) {
    kinds += segments[rank].touched.kinds();
  }
  return kinds;
}

// Lets untouched huge pages that overlap [begin, end) become resident whole. Returns their bytes.
[[gnu::noinline]] std::size_t Pool::Impl::expect_whole(Segment& segment, std::size_t begin,
                                                       std::size_t end) noexcept {
  if (!device.capabilities().joins_pages || kinds() >= kMostKinds) return 0;
  std::size_t pages = 0;
  TouchedPages& touched = segment.touched;
  const std::size_t huge = touched.pages_per_huge_page();
  const auto may = [&](std::size_t page) {
    return touched.is_plain(page) && !touched.is_split(page) &&
           touched.touched(page, page + huge) == 0;
  };
  for (std::size_t low = begin & ~(huge - 1); low < end;) {
    std::size_t high = low;
    while (high < end && may(high)) high += huge;
    if (high == low) {
      low += huge;
      continue;
    }
    if (!device.expect_whole(segment.base + (low << page_shift), (high - low) << page_shift)) break;
    pages += high - low;
    for (; low < high; low += huge) touched.set_plain(low, false);
  }
  return pages << page_shift;
}

// Joins pages for as long as PoolOptions::join_share of the elapsed time allows. Visits all
// segments in rounds, with a pause after each round.
[[gnu::noinline]] void Pool::Impl::join_pages(std::uint64_t now) noexcept {
  Joining& j = joining;
  if (j.refilled_ns == 0) {
    j.allowance_ns = options.join_share > 0 ? kFirstAllowanceNs : 0;
  } else {
    const auto passed = static_cast<double>(now - j.refilled_ns);
    j.allowance_ns = std::min(j.allowance_ns + passed * options.join_share, kMostAllowanceNs);
  }
  j.refilled_ns = now;
  if (now < j.resumes_ns || j.allowance_ns <= 0) return;
  const double begin = now_ns();
  const double most = std::min(j.allowance_ns, kAtOnceNs);
  do {
    if (!join_next()) {
      j.resumes_ns = now + options.epoch_ns;
      j.rank = j.page = 0;
      break;
    }
  } while (now_ns() - begin < most);
  j.allowance_ns -= now_ns() - begin;
}

// Examines the next candidate, a huge page of small pages, and joins it. False at a round's end.
bool Pool::Impl::join_next() noexcept {
  Joining& j = joining;
  if (kinds() >= kMostKinds) return false;
  for (; j.rank < segments.count(); ++j.rank, j.page = 0) {
    Segment& segment = segments[j.rank];
    const TouchedPages& touched = segment.touched;
    const std::size_t huge = touched.pages_per_huge_page();
    while (j.page < touched.high()) {
      const std::size_t page = j.page;
      j.page += huge;
      const bool plain = touched.is_plain(page);
      if (!plain && (j.only_plain || !touched.is_split(page))) continue;
      if (!touched.all_touched(page, page + huge)) continue;
      join(segment, page);
      return true;
    }
  }
  return false;
}

void Pool::Impl::join(Segment& segment, std::size_t page) noexcept {
  TouchedPages& touched = segment.touched;
  const std::size_t huge = touched.pages_per_huge_page();
  if (huge > kMostPages) return;
  bool present[kMostPages];
  std::byte* const address = segment.base + (page << page_shift);
  const std::size_t there = device.look_at_pages(address, huge, present);
  // Not joined if more than an eighth is missing.
  if (there == SIZE_MAX || there < huge_page_bytes - huge_page_bytes / 8) return;
  const Joined joined = device.join_pages(address);
  if (joined == Joined::kNothing) return;
  if (joined == Joined::kLater && !touched.is_plain(page)) joining.only_plain = true;
  touched.set_plain(page, false);
  touched.set_split(page, joined != Joined::kWhole);
  if (joined == Joined::kWhole) touched.set_sure(page);
  update_runs(segment, page, page + huge);  // the page can be moved now
}

}  // namespace pleat::allocator
