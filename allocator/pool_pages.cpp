#include <time.h>

#include "allocator/pool_impl.h"

namespace pleat::allocator {
namespace {

std::uint64_t coarse_now_ns() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u +
         static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace

// Counts the untouched pages of [begin, end) as touched: the caller of allocate() will write them.
// Before that, free pages elsewhere go back as far as the limit asks for it.
[[gnu::noinline]] void Pool::Impl::want_pages(Segment& segment, std::size_t begin,
                                              std::size_t end) noexcept {
  segment.touched.widen(&begin, &end);
  const std::size_t more = segment.touched.untouched(begin, end) << page_shift;
  const std::size_t limit = resident_limit();
  if (resident + more > limit) purge(limit > more ? limit - more : 0, Purge::kAllPages);
  segment.touched.touch(begin, end);
  resident += more;

  // Half of what went because of age is back: the window is shorter than the job's rhythm.
  if (aged_out > 0) {
    wanted_again += more;
    if (2 * wanted_again >= aged_out) {
      if (coarse_now_ns() - aged_out_ns < window.longest_ns()) window.lengthen();
      aged_out = 0;
    }
  }
}

[[gnu::noinline]] void Pool::Impl::check_age() noexcept {
  const std::uint64_t now = coarse_now_ns();
  if (!window.advance(now, reserved)) return;
  const std::size_t limit = resident_limit();
  if (resident > limit) {
    const std::size_t gone = purge(limit, Purge::kWholeHugePages);
    if (gone > 0) {
      aged_out = gone;
      wanted_again = 0;
      aged_out_ns = now;
    }
  }
  // Where address space is short, others want it back too.
  if (returns_pages && !device.capabilities().reserves_freely) release_free_segments();
}

// Gives free pages back until `target` bytes are resident or nothing is left that `most` allows.
// Highest first, because first fit will want the low ones soonest. Returns the bytes given back.
[[gnu::noinline]] std::size_t Pool::Impl::purge(std::size_t target, Purge most) noexcept {
  if (!returns_pages) return 0;
  const std::size_t before = resident;
  for (const Purge kind : {Purge::kWholeHugePages, Purge::kSplitHugePages, Purge::kAllPages}) {
    if (kind > most || (kind > Purge::kWholeHugePages && huge_page_bytes == page_bytes)) break;
    // Smaller runs hold no whole unit.
    const std::size_t unit = kind == Purge::kWholeHugePages ? huge_page_bytes : page_bytes;
    const std::size_t least = std::max<std::size_t>(unit >> granule_shift, 1);
    for (std::size_t rank = segments.count(); rank-- > 0 && resident > target;) {
      Segment& segment = segments[rank];
      segment.runs.visit_down(least, [&](std::size_t begin, std::size_t length) {
        return purge_run(segment, begin, length, target, kind) && resident > target;
      });
    }
  }
  return before - resident;
}

// False if the device gave nothing back: further attempts are useless.
bool Pool::Impl::purge_run(Segment& segment, std::size_t begin, std::size_t length,
                           std::size_t target, Purge kind) noexcept {
  TouchedPages& touched = segment.touched;
  const std::size_t huge = touched.pages_per_huge_page();
  const std::size_t unit = kind == Purge::kWholeHugePages ? huge : 1;  // pages
  const std::size_t unit_bytes = unit << page_shift;
  const std::size_t first = round_up(begin << granule_shift, unit_bytes) >> page_shift;
  std::size_t end = (((begin + length) << granule_shift) & ~(unit_bytes - 1)) >> page_shift;
  while (resident > target) {
    const std::size_t last = touched.last_touched(first, end);
    if (last == TouchedPages::kNone) return true;
    std::size_t low = last & ~(unit - 1);
    const std::size_t high = low + unit;
    if (kind == Purge::kSplitHugePages && !touched.is_split(last)) {
      const std::size_t huge_begin = last & ~(huge - 1);
      if (huge_begin <= first) return true;
      end = huge_begin;
      continue;
    }
    const std::size_t excess = (resident - target + page_bytes - 1) >> page_shift;
    while (low > first && high - low < excess && touched.untouched(low - unit, low) < unit &&
           (kind != Purge::kSplitHugePages || touched.is_split(low - 1))) {
      low -= unit;
    }
    std::byte* const address = segment.base + (low << page_shift);
    const std::size_t bytes = (high - low) << page_shift;
    if (!device.release_pages(address, bytes)) return false;
    const std::size_t gone = (high - low - touched.untouched(low, high)) << page_shift;
    touched.clear(low, high);
    resident -= gone;
    emit(EventKind::kPagesRelease, address, gone);
    end = low;
  }
  return true;
}

}  // namespace pleat::allocator
