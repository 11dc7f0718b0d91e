#include <time.h>

#include <utility>

#include "allocator/host/pool_impl.h"

namespace pleat::allocator {
namespace {

std::uint64_t coarse_now_ns() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u +
         static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace

// First rescans for touched runs that the cached stretches miss. Otherwise picks the place with the
// fewest untouched pages, the lowest address on a tie. The segments grow if there is no place.
[[gnu::noinline]] Pool::Impl::Place Pool::Impl::take_most_touched(std::size_t need,
                                                                  Lane lane) noexcept {
  for (std::size_t rank = 0; rank < segments.count(); ++rank) {
    Segment& segment = segments[rank];
    if (segment.lane != lane) continue;
    find_touched(segment, need);
  }
  if (const Place place = take_touched(need, lane); place.segment != nullptr) return place;
  Place best = find_lowest(need, lane);
  if (best.segment == nullptr && grow(need << granule_shift, lane)) {
    best = find_lowest(need, lane);
  }
  if (best.segment == nullptr) return best;
  const int shift = std::max(page_shift - granule_shift, 0);
  const std::size_t whole = std::size_t{1} << shift;  // granules per page
  const std::size_t pages = round_up(need, whole) >> shift;
  std::size_t fewest = SIZE_MAX;
  const auto consider = [&](Segment& segment, std::size_t granule, std::size_t untouched) {
    if (untouched >= fewest) return;
    fewest = untouched;
    best = {&segment, granule};
  };
  // Calls function(segment, begin, end) for runs that are large enough.
  const auto visit = [&](auto&& function) {
    std::size_t looks = 0;
    const auto goes_on = [&] { return fewest > 1 && looks < kMostLooks; };
    for (std::size_t rank = 0; rank < segments.count() && goes_on(); ++rank) {
      Segment& segment = segments[rank];
      if (segment.lane != lane) continue;
      const std::size_t usable = segment.bytes >> granule_shift;
      segment.runs.visit_up(need, [&](std::size_t begin, std::size_t length) {
        const std::size_t end = std::min(begin + length, usable);
        if (begin < end && end - begin >= need) function(segment, begin, end);
        ++looks;
        return goes_on();
      });
    }
  };
  visit([&](Segment& segment, std::size_t begin, std::size_t) {
    consider(segment, begin, segment.touched.untouched(first_page(begin), end_page(begin, need)));
  });
  if (granule_bytes <= page_bytes) {  // places within a run, if better still
    visit([&](Segment& segment, std::size_t begin, std::size_t end) {
      const std::size_t low = round_up(begin, whole) >> shift;
      const std::size_t high = end >> shift;
      if (low + pages > high || segment.touched.touched(low, high) + fewest <= pages) return;
      const auto window = segment.touched.best_window(low, high, pages);
      consider(segment, window.begin << shift, window.untouched);
    });
  }
  best.segment->runs.take(best.granule, need);
  return best;
}

// Takes granules that begin at a huge page, with the fewest untouched pages, the lowest on a tie.
// Empty if no run has room for such a place.
Pool::Impl::Place Pool::Impl::take_aligned(std::size_t need) noexcept {
  const std::size_t huge = huge_page_bytes >> granule_shift;
  const std::size_t pages = end_page(0, need);
  Place best;
  std::size_t fewest = SIZE_MAX;
  std::size_t looks = 0;
  const auto goes_on = [&] { return fewest > 0 && looks < kMostLooks; };
  for (std::size_t rank = 0; rank < segments.count() && goes_on(); ++rank) {
    Segment& segment = segments[rank];
    if (segment.lane != Lane::kWork) continue;
    const std::size_t usable = segment.bytes >> granule_shift;
    segment.runs.visit_up(need, [&](std::size_t begin, std::size_t length) {
      ++looks;
      const std::size_t end = std::min(begin + length, usable);
      for (std::size_t at = round_up(begin, huge); at + need <= end; at += huge) {
        const std::size_t page = first_page(at);
        const std::size_t untouched = segment.touched.untouched(page, page + pages);
        if (untouched < fewest) {
          fewest = untouched;
          best = {&segment, at};
        }
        if (untouched == 0 || page >= segment.touched.high()) break;  // no later place is better
      }
      return goes_on();
    });
  }
  if (best.segment != nullptr) best.segment->runs.take(best.granule, need);
  return best;
}

// The longest touched stretch of a run: its first granule and its length in granules.
std::pair<std::size_t, std::size_t> Pool::Impl::longest_touched(const Segment& segment,
                                                                std::size_t begin,
                                                                std::size_t length) const noexcept {
  const auto found = segment.touched.longest_touched(first_page(begin), end_page(begin, length));
  const std::size_t low = std::max(granules_below(found.begin), begin);
  const std::size_t high =
      std::min(((found.begin + found.length) << page_shift) >> granule_shift, begin + length);
  return {low, high > low ? high - low : 0};
}

// Updates the touched stretches of free runs in leaves that have a run of at least `least` granules
// and whose recorded stretches are not known to be the longest.
void Pool::Impl::find_touched(Segment& segment, std::size_t least) noexcept {
  segment.runs.find_touched(least, [&](std::size_t begin, std::size_t length) {
    return longest_touched(segment, begin, length);
  });
}

// Updates the touched stretches of the free runs on pages [begin, end), after some of those pages
// became resident or were released.
void Pool::Impl::update_runs(Segment& segment, std::size_t begin, std::size_t end) noexcept {
  segment.runs.update_touched(
      (begin << page_shift) >> granule_shift, granules_below(end),
      [&](std::size_t from, std::size_t length) { return longest_touched(segment, from, length); });
}

// Updates the touched stretch of a run that has lost pages.
void Pool::Impl::update_run(const Segment& segment, FreeRun& run) const noexcept {
  const auto [begin, length] = longest_touched(segment, static_cast<std::size_t>(run.begin),
                                               static_cast<std::size_t>(run.length));
  run.touched_begin = static_cast<std::int32_t>(begin);
  run.touched_length = static_cast<std::int32_t>(length);
}

// Counts the untouched pages of [begin, end) as touched: the caller of allocate() will write them,
// except about `expected.unwritten`. If that would exceed the resident limit, first releases split
// huge pages, then moves free pages here, then releases others. Moves no pages if many would stay
// unwritten, because moving these is wasted. False if a limit is reached.
[[gnu::noinline]] bool Pool::Impl::want_pages(Segment& segment, std::size_t begin, std::size_t end,
                                              const Expected& expected) noexcept {
  if (expected.dense) {
    expect_whole(segment, begin, end);
  } else if (const std::size_t bytes = (end - begin) << page_shift;
             expected.unwritten == 0 && 3 * bytes <= options.guessed_bytes &&
             guessed + bytes <= options.guessed_bytes) {
    guessed += expect_whole(segment, begin, end);
  }
  std::size_t first = begin, last = end;  // widened to the whole huge pages at the ends
  segment.touched.widen(&first, &last);
  std::size_t more = segment.touched.untouched(first, last) << page_shift;
  if (more == 0) return true;
  const std::size_t limit = resident_limit() + std::min(expected.unwritten << page_shift, more);
  if (resident + more > limit)
    purge(limit > more ? limit - more : 0, Purge::kBrokenHugePages, Joins::kKeep);
  if (resident + more > limit && expected.unwritten == 0) {
    const std::size_t moved = move_pages(segment, first, last, resident + more - limit);
    if (moved > 0) update_runs(segment, first, last);
    more -= moved;
  }
  if (resident + more > limit) {
    purge(limit > more ? limit - more : 0, Purge::kAllPages, Joins::kKeep);
    first = begin, last = end;  // pages moved next to the block can be gone again
    segment.touched.widen(&first, &last);
    more = segment.touched.untouched(first, last) << page_shift;
  }
  if (closes) [[unlikely]] {
    if (!open_pages(segment, first, last)) return false;
    more = segment.touched.untouched(first, last) << page_shift;
  }
  segment.touched.touch(first, last);
  update_runs(segment, first, last);
  resident += more;
  if (more > 0) emit_amid(EventKind::kPagesTouch, segment.base + (first << page_shift), more);

  // If half of the pages released by age are back, the window is shorter than the job's steps.
  if (aged_out > 0) {
    wanted_again += more;
    if (2 * wanted_again >= aged_out) {
      if (coarse_now_ns() - aged_out_ns < window.longest_ns()) window.lengthen();
      aged_out = 0;
    }
  }
  return true;
}

// Calls function(address, bytes) for each stretch of untouched pages in [begin, end) until it
// returns false. Returns the last result.
template <class Function>
bool Pool::Impl::each_untouched(const Segment& segment, std::size_t begin, std::size_t end,
                                Function&& function) const {
  for (std::size_t page = begin; page < end;) {
    const std::size_t first = page;
    while (page < end && !segment.touched.test(page)) ++page;
    if (page > first &&
        !function(segment.base + (first << page_shift), (page - first) << page_shift)) {
      return false;
    }
    while (page < end && segment.touched.test(page)) ++page;
  }
  return true;
}

// Makes the untouched pages of [begin, end) accessible. Releases the free pages if the limit is
// reached. False, without a change here, if that does not help.
bool Pool::Impl::open_pages(Segment& segment, std::size_t begin, std::size_t end) noexcept {
  const auto open = [&](std::byte* address, std::size_t bytes) {
    return device.open_pages(address, bytes);
  };
  if (each_untouched(segment, begin, end, open)) return true;
  purge(0, Purge::kAllPages, Joins::kKeep);
  if (each_untouched(segment, begin, end, open)) return true;
  each_untouched(segment, begin, end, [&](std::byte* address, std::size_t bytes) {
    device.close_pages(address, bytes);
    return true;
  });
  return false;
}

// Releases every free page, and closes all free ranges, under a limit on the data of the process.
// From then on pages are opened when they are handed out. False if there is no such limit.
bool Pool::Impl::close_free_pages() noexcept {
  if (!returns_pages || !device.close_ranges()) return false;
  closes = true;
  purge(0, Purge::kAllPages, Joins::kKeep);
  for (std::size_t rank = 0; rank < segments.count(); ++rank) {
    const Segment& segment = segments[rank];
    segment.runs.visit_up(1, [&](std::size_t begin, std::size_t length) {
      const std::size_t last = std::min((begin + length) << granule_shift, segment.bytes);
      each_untouched(segment, round_up(begin << granule_shift, page_bytes) >> page_shift,
                     last >> page_shift, [&](std::byte* address, std::size_t bytes) {
                       device.close_pages(address, bytes);
                       return true;
                     });
      return true;
    });
  }
  return true;
}

// Moves huge pages inside free runs, highest first, to untouched huge pages of [begin, end), until
// `bytes` are moved or no movable page is left. Returns the bytes moved.
std::size_t Pool::Impl::move_pages(Segment& to, std::size_t begin, std::size_t end,
                                   std::size_t bytes) noexcept {
  if (device.capabilities().move_bytes == 0 || closes) return 0;
  // The kernel keeps moved pages in a mapping of their own, and a process can have 65530 mappings.
  constexpr std::size_t kMostApart = 8192;
  std::size_t apart = 0;
  for (std::size_t rank = 0; rank < segments.count(); ++rank) {
    apart += segments[rank].touched.moved();
  }
  if (apart >= kMostApart) return 0;
  const std::size_t huge = to.touched.pages_per_huge_page();
  const std::size_t huge_shift = static_cast<std::size_t>(std::countr_zero(huge_page_bytes));
  const std::size_t most =
      std::min(round_up(bytes, huge_page_bytes) >> huge_shift, kMostApart - apart);
  const std::size_t least = std::max<std::size_t>(huge_page_bytes >> granule_shift, 1);
  std::size_t next = round_up(begin, huge);
  end &= ~(huge - 1);
  std::size_t moved = 0;
  for (std::size_t rank = segments.count(); rank-- > 0 && moved < most && next < end;) {
    Segment& from = segments[rank];
    const std::size_t before = moved;
    from.runs.visit_down(least, kMovePages, [&](FreeRun& run) {
      const std::size_t more = move_run(from, run, to, &next, end, most - moved);
      if (more > 0) update_run(from, run);
      moved += more;
      return moved < most && next < end ? FreeRuns::Visit::kNext : FreeRuns::Visit::kStop;
    });
    if (moved != before) find_touched(from, 1);
  }
  return moved << huge_shift;
}

// Moves up to `most` huge pages of a free run to pages [*next, end) of `to`, and sets *next behind
// them. Returns the number of huge pages moved.
std::size_t Pool::Impl::move_run(Segment& from, const FreeRun& run, Segment& to, std::size_t* next,
                                 std::size_t end, std::size_t most) noexcept {
  const std::size_t huge = to.touched.pages_per_huge_page();
  const std::size_t at_once = device.capabilities().move_bytes >> page_shift;
  const auto [first, run_end] = pages_within(run, huge_page_bytes);
  std::size_t stop = std::min(run_end, round_up(from.touched.high(), huge));
  const auto is_source = [&](std::size_t page) {
    return from.touched.all_touched(page, page + huge) && !from.touched.is_split(page);
  };
  const auto is_target = [&](std::size_t page) {
    return to.touched.touched(page, page + huge) == 0;
  };
  std::size_t moved = 0;
  while (moved < most) {
    while (*next < end && !is_target(*next)) *next += huge;
    while (stop > first && !is_source(stop - huge)) stop -= huge;
    if (*next >= end || stop <= first) break;
    // One call moves as many as are adjacent on both sides and share a mapping.
    std::size_t pages = huge;
    while (moved + pages / huge < most && pages < at_once && stop - pages > first &&
           *next + pages < end && is_source(stop - pages - huge) && is_target(*next + pages) &&
           !from.touched.is_moved(stop - pages) && !from.touched.is_moved(stop - pages - huge) &&
           from.touched.is_plain(stop - pages) == from.touched.is_plain(stop - pages - huge)) {
      pages += huge;
    }
    const std::size_t source = stop - pages;
    if (!device.move_pages(from.base + (source << page_shift), to.base + (*next << page_shift),
                           pages << page_shift, !from.touched.is_plain(source))) {
      *next = end;  // a retry would fail, too
      break;
    }
    for (std::size_t page = 0; page < pages; page += huge) {
      to.touched.move(from.touched, source + page, *next + page);
    }
    emit_amid(EventKind::kPagesMove, to.base + (*next << page_shift), pages << page_shift);
    moved += pages / huge;
    stop = source;
    *next += pages;
  }
  return moved;
}

[[gnu::noinline]] void Pool::Impl::check_age() noexcept {
  const std::uint64_t now = coarse_now_ns();
  if (device.capabilities().joins_pages) join_pages(now);
  if (!window.advance(now, active)) return;
  const std::size_t limit = resident_limit();
  if (resident > limit) {
    const std::size_t gone = purge(limit, Purge::kWholeHugePages, Joins::kForget);
    if (gone > 0) {
      aged_out = gone;
      wanted_again = 0;
      aged_out_ns = now;
    }
  }
  // If address space is limited, the job can need it for other mappings.
  if (returns_pages && !device.capabilities().reserves_freely) release_free_segments();
}

// Releases free pages until only `target` bytes are resident or no page is left that `most` allows.
// Begins at the top, which keeps the rest dense. Returns the bytes released.
[[gnu::noinline]] std::size_t Pool::Impl::purge(std::size_t target, Purge most,
                                                Joins joins) noexcept {
  if (!returns_pages) return 0;
  const std::size_t before = resident;
  for (const Purge kind : {Purge::kBrokenHugePages, Purge::kWholeHugePages, Purge::kSplitHugePages,
                           Purge::kAllPages}) {
    if (kind > most) break;
    if (kind != Purge::kWholeHugePages && huge_page_bytes == page_bytes) continue;
    // Runs smaller than this contain no whole unit.
    const std::size_t unit = kind <= Purge::kWholeHugePages ? huge_page_bytes : page_bytes;
    const std::size_t least = std::max<std::size_t>(unit >> granule_shift, 1);
    for (std::size_t rank = segments.count(); rank-- > 0 && resident > target;) {
      Segment& segment = segments[rank];
      const std::size_t had = resident;
      segment.runs.visit_down(least, static_cast<unsigned>(kind), [&](FreeRun& run) {
        const std::size_t touched = segment.touched.count();
        const bool works = purge_run(segment, run, target, kind, joins);
        if (segment.touched.count() != touched) update_run(segment, run);
        return works && resident > target ? FreeRuns::Visit::kNext : FreeRuns::Visit::kStop;
      });
      if (resident != had) find_touched(segment, 1);  // now is better than in the next search
    }
  }
  return before - resident;
}

// Releases pages of one run. False if the device refused: further attempts are useless.
bool Pool::Impl::purge_run(Segment& segment, const FreeRun& run, std::size_t target, Purge kind,
                           Joins joins) noexcept {
  TouchedPages& touched = segment.touched;
  const std::size_t huge = touched.pages_per_huge_page();
  const std::size_t unit = kind <= Purge::kWholeHugePages ? huge : 1;  // pages
  const auto may_go = [&](std::size_t page) {
    if (kind == Purge::kBrokenHugePages) return touched.is_split(page) && !touched.is_plain(page);
    return kind != Purge::kSplitHugePages || touched.comes_singly(page);
  };
  auto [first, end] = pages_within(run, unit << page_shift);
  while (resident > target) {
    const std::size_t last = touched.last_touched(first, end);
    if (last == TouchedPages::kNone) return true;
    std::size_t low = last & ~(unit - 1);
    const std::size_t high = low + unit;
    if (!may_go(last)) {
      const std::size_t huge_begin = last & ~(huge - 1);
      if (huge_begin <= first) return true;
      end = huge_begin;
      continue;
    }
    const std::size_t excess = (resident - target + page_bytes - 1) >> page_shift;
    while (low > first && high - low < excess && touched.untouched(low - unit, low) < unit &&
           may_go(low - 1) && touched.is_plain(low - 1) == touched.is_plain(last)) {
      low -= unit;
    }
    if (!give_back(segment, low, high, joins)) return false;
    end = low;
  }
  return true;
}

// Releases pages [begin, end). All or none of their huge pages are plain. False if the device
// refused.
bool Pool::Impl::give_back(Segment& segment, std::size_t begin, std::size_t end,
                           Joins joins) noexcept {
  TouchedPages& touched = segment.touched;
  const std::size_t huge = touched.pages_per_huge_page();
  std::byte* const address = segment.base + (begin << page_shift);
  const bool whole =
      !touched.is_plain(begin) && (joins == Joins::kKeep || !device.capabilities().joins_pages);
  const Released released = device.release_pages(address, (end - begin) << page_shift, whole);
  if (released == Released::kNothing) return false;
  const std::size_t gone = touched.touched(begin, end) << page_shift;
  touched.clear(begin, end);
  for (std::size_t page = round_up(begin, huge); released == Released::kAnew && page + huge <= end;
       page += huge) {
    touched.set_plain(page, !whole);
  }
  resident -= gone;
  emit(EventKind::kPagesRelease, address, gone);
  return true;
}

}  // namespace pleat::allocator
