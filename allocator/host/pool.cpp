#include "allocator/host/pool.h"

#include <cstring>

#include "allocator/host/pool_impl.h"

namespace pleat::allocator {
namespace {

constexpr std::size_t kFirstRoom = std::size_t{4} << 30;
constexpr std::size_t kLongRun = 4;  // huge pages

// The lane's share of room and steps. Payloads take about an eighth of their source bytes, and
// addresses mapped ahead count against a limit that the job can set later.
std::size_t share(std::size_t bytes, Lane lane) noexcept {
  return lane == Lane::kPacked ? bytes / 8 : bytes;
}

}  // namespace

// ---- Blocks ----

// Takes the place of a recently freed block of the same size, if its pages are still resident.
Pool::Impl::Place Pool::Impl::take_recent(std::size_t need, bool align) noexcept {
  const std::size_t mask = align ? (huge_page_bytes >> granule_shift) - 1 : 0;
  Place place;
  recent.take(need, [&](Segment& segment, std::size_t granule) {
    if ((granule & mask) != 0 || !segment.runs.is_free(granule, need) ||
        segment.lane != Lane::kWork ||
        !segment.touched.all_touched(first_page(granule), end_page(granule, need))) {
      return false;
    }
    segment.runs.take(granule, need);
    place = {&segment, granule};
    return true;
  });
  return place;
}

// Takes `need` granules from a segment's shortest known touched stretch below `below` granules.
Pool::Impl::Place Pool::Impl::take_touched(std::size_t need, Lane lane, std::size_t alignment,
                                           std::size_t below) noexcept {
  for (std::size_t rank = 0; rank < segments.count(); ++rank) {
    Segment& segment = segments[rank];
    if (segment.lane != lane) continue;
    const std::size_t granule = segment.runs.take_best_touched(need, alignment, below);
    if (granule != FreeRuns::kNone) return {&segment, granule};
  }
  return {};
}

// The lowest run with at least `need` granules.
Pool::Impl::Place Pool::Impl::find_lowest(std::size_t need, Lane lane) noexcept {
  for (std::size_t rank = 0; rank < segments.count(); ++rank) {
    Segment& segment = segments[rank];
    if (segment.lane != lane) continue;
    const std::size_t granule = segment.runs.first_fit(need);
    if (granule == FreeRuns::kNone) continue;
    const std::size_t end = (granule + need) << granule_shift;
    if (end <= segment.bytes || reach(rank, end)) [[likely]]
      return {&segment, granule};
    segment.runs.resize(segment.bytes >> granule_shift);
    ++met;
  }
  return {};
}

bool Pool::Impl::may_have_fresh(std::size_t bytes) noexcept {
  return bytes <= device.capabilities().memory_bytes / 2 || device.would_promise(bytes);
}

// Takes granules whose pages are not yet resident.
[[gnu::noinline]] Pool::Impl::Place Pool::Impl::take_untouched(std::size_t need, Lane lane,
                                                               bool align) noexcept {
  if (!may_have_fresh(need << granule_shift)) return {};
  Place place;
  if (align) place = take_aligned(need);
  if (place.segment == nullptr) place = take_most_touched(need, lane);
  // No more addresses are available: take any room there is, else replace idle segments.
  if (place.segment == nullptr && aligned_from != SIZE_MAX) {
    place = take_most_touched(need, lane == Lane::kWork ? Lane::kPacked : Lane::kWork);
  }
  if (place.segment == nullptr && release_free_segments() > 0) {
    place = take_most_touched(need, lane);
  }
  if (place.segment == nullptr && !closes && close_free_pages()) {
    place = take_most_touched(need, lane);
  }
  return place;
}

Block* Pool::Impl::allocate(std::size_t bytes, std::size_t counted, StreamId stream, Lane lane,
                            RecordId owner) noexcept {
  if (bytes == 0 || bytes > (FreeRuns::kMaxGranules << granule_shift)) return nullptr;
  const std::size_t need = (bytes + granule_bytes - 1) >> granule_shift;
  const std::size_t rounded = need << granule_shift;

  const Section section(*this);
  tick();
  Block* block = blocks.get();
  if (block == nullptr) [[unlikely]]
    return nullptr;
  const bool align = lane == Lane::kWork && rounded >= aligned_from;
  const bool recycles = lane == Lane::kWork && is_remembered(rounded);
  if (aligned_from == SIZE_MAX) lane = Lane::kWork;  // without moves one lane is enough
  const std::size_t huge = huge_page_bytes >> granule_shift;
  Place place;
  const std::size_t unwritten =
      lane == Lane::kWork && is_looked_at(rounded) ? density.unwritten(need) : 0;
  if (unwritten != 0) [[unlikely]]
    place = take_fresh(need);
  const bool fresh = place.segment != nullptr;
  if (!fresh && recycles) place = take_recent(need, align);
  if (place.segment == nullptr) place = take_touched(need, lane, align ? huge : 1);
  if (place.segment == nullptr && lane == Lane::kPacked) {  // longer stretches suit kWork blocks
    place = take_touched(need, Lane::kWork, 1, kLongRun * huge);
  }
  const bool touched = place.segment != nullptr && !fresh;
  if (place.segment == nullptr) [[unlikely]] {
    place = take_untouched(need, lane, align);
    if (place.segment == nullptr) {
      blocks.put(block);
      emit(EventKind::kOutOfMemory, nullptr, bytes, {}, stream);
      return nullptr;
    }
  }

  const auto [segment, granule] = place;
  active += rounded;
  window.raise(active);
  if (!touched) [[unlikely]] {
    // A payload's size is exact, so all of the block is written.
    const bool dense = lane == Lane::kPacked || density.is_dense(need);
    const std::size_t first = first_page(granule), end = end_page(granule, need);
    if (!want_pages(*segment, first, end, {fresh ? unwritten : 0, dense})) {
      active -= rounded;
      segment->runs.give(granule, need);
      update_runs(*segment, first, end);
      blocks.put(block);
      emit(EventKind::kOutOfMemory, nullptr, bytes, {}, stream);
      return nullptr;
    }
  }
  const std::size_t offset = granule << granule_shift;
  block->begin = segment->base + offset;
  block->bytes = rounded;
  block->requested = counted;
  block->id = BlockId{++last_id};
  block->stream = stream;
  block->segment = segment;
  block->record.store(nullptr, std::memory_order_relaxed);
  segment->in_use[granule].store(block, std::memory_order_release);

  ++blocks_in_use;
  requested += counted;

  count_requested(static_cast<std::int64_t>(counted));
  emit(counted != 0 ? EventKind::kAllocate : EventKind::kChunkAllocate, block->begin, bytes,
       block->id, stream, owner);
  return block;
}

void Pool::Impl::free(Block* block) noexcept {
  Segment& segment = *block->segment;
  const std::size_t granule = granule_of(segment, block->begin);
  __builtin_prefetch(&segment.in_use[granule], 1);  // the access most likely to miss the cache
  const Section section(*this);
  assert(segment.in_use[granule].load(std::memory_order_relaxed) == block);
  segment.in_use[granule].store(nullptr, std::memory_order_release);
  const std::size_t granules = block->bytes >> granule_shift;
  --blocks_in_use;
  requested -= block->requested;
  active -= block->bytes;
  const bool is_large = is_looked_at(block->bytes);
  Looked looked;
  if (is_large && density.is_look_due(granules)) looked = look_at(segment, granule, granules);
  segment.runs.give(granule, granules);
  if (looked.absent != 0) [[unlikely]]
    update_runs(segment, first_page(granule), end_page(granule, granules));
  if (segment.lane == Lane::kWork) {
    const std::size_t pages = end_page(0, granules);
    if (2 * looked.pages >= pages) [[unlikely]]
      density.note(granules, pages, looked.absent);
    if (is_large && density.unwritten(granules) != 0) [[unlikely]] {
      give_back_sparse(segment, granule, granules);
    } else if (is_remembered(block->bytes)) {
      recent.add(segment, granule, granules);
    }
  }
  count_requested(-static_cast<std::int64_t>(block->requested));
  emit(block->requested != 0 ? EventKind::kFree : EventKind::kChunkFree, block->begin,
       block->requested != 0 ? block->requested : block->bytes, block->id, block->stream);
  blocks.put(block);
  tick();
}

void Pool::Impl::shrink(Block* block, std::size_t bytes) noexcept {
  assert(bytes > 0 && bytes <= block->requested);
  const std::size_t keep = (bytes + granule_bytes - 1) >> granule_shift;
  const Section section(*this);
  const std::size_t had = block->bytes >> granule_shift;
  const std::size_t less = block->requested - bytes;
  requested -= less;
  block->requested = bytes;
  count_requested(-static_cast<std::int64_t>(less));
  if (keep < had) {
    Segment& segment = *block->segment;
    segment.runs.give(granule_of(segment, block->begin) + keep, had - keep);
    block->bytes = keep << granule_shift;
    active -= (had - keep) << granule_shift;
  }
  emit(EventKind::kShrink, block->begin, bytes, block->id, block->stream);
  tick();
}

// ---- Segments ----

// Makes room for a block of `bytes` (a multiple of the granule). If addresses are free, adds a
// segment that grows in place as far as it can. Else adds a fixed segment, whose size rises with
// the number of segments; if that is refused, adds one of just `bytes`.
[[gnu::noinline]] bool Pool::Impl::grow(std::size_t bytes, Lane lane) noexcept {
  const std::size_t unit = std::max(huge_page_bytes, granule_bytes);
  const std::size_t most = (FreeRuns::kMaxGranules << granule_shift) & ~(unit - 1);
  if (bytes > most) return false;
  const std::size_t need = round_up(bytes, unit);
  const auto size = [&](std::size_t wanted) {
    return std::clamp(round_up(std::min(wanted, most), unit), need, most);
  };
  const std::size_t growth = size(options.growth_bytes);
  const DeviceCapabilities& capabilities = device.capabilities();

  // If the kernel fills gaps from below (ulimit -s unlimited), the next mapping begins right behind
  // a segment, which then cannot grow.
  constexpr std::size_t kTries = 3;
  if (capabilities.reserves_freely && capabilities.returns_pages && met < kTries) {
    const std::size_t first =
        share(options.reserve_bytes != 0 ? options.reserve_bytes : kFirstRoom, lane);
    const std::size_t enough = std::max(4 * capabilities.memory_bytes, first);
    std::size_t& before = rooms[static_cast<std::size_t>(lane)];
    std::size_t room = std::min(first << std::min<std::size_t>(before, 20), enough);
    for (; room > 0; room = room / 2 > share(growth, lane) ? room / 2 : 0) {
      const std::size_t step = std::min(size(share(options.extend_bytes, lane)), size(room));
      if (add_segment(step, size(room), lane)) {
        ++before;
        return true;
      }
    }
  }
  if (lane == Lane::kPacked) return false;  // fixed segments serve both lanes: see allocate()
  const std::size_t larger = size(options.growth_bytes << std::min<std::size_t>(grown / 16, 6));
  if ((larger > growth && add_segment(larger, larger, lane)) || add_segment(growth, growth, lane) ||
      (need < growth && add_segment(need, need, lane))) {
    ++grown;
    return true;
  }
  return false;
}

// Lengthens a segment to at least `end` bytes.
[[gnu::noinline]] bool Pool::Impl::reach(std::size_t rank, std::size_t end) noexcept {
  const Segment& segment = segments[rank];
  const std::size_t unit = std::max(huge_page_bytes, granule_bytes);
  const std::size_t least = round_up(end, unit);
  const std::size_t more = share(options.extend_bytes, segment.lane);
  const std::size_t wanted =
      std::min(std::max(least, segment.bytes + round_up(more, unit)), segment.room);
  const std::size_t before = segment.bytes;
  if (!segments.extend(device, rank, wanted, granule_bytes) &&
      !segments.extend(device, rank, least, granule_bytes)) {
    return false;
  }
  emit(EventKind::kSegmentReserve, segment.base + before, segment.bytes - before);
  return true;
}

bool Pool::Impl::add_segment(std::size_t bytes, std::size_t room, Lane lane) noexcept {
  Segment* segment = segments.add(device, bytes, room, granule_bytes);
  if (segment == nullptr) return false;
  segment->lane = lane;
  if (!returns_pages) {  // all pages came with the range
    segment->touched.touch(0, bytes >> page_shift);
    update_runs(*segment, 0, bytes >> page_shift);
    resident += bytes;
  }
  emit(EventKind::kSegmentReserve, segment->base, bytes);
  return true;
}

// Releases the segments that hold no block to the device. Returns their bytes.
std::size_t Pool::Impl::release_free_segments() noexcept {
  std::size_t released = 0;
  for (std::size_t rank = segments.count(); rank-- > 0;) {
    const Segment& segment = segments[rank];
    if (!segment.runs.all_free()) continue;
    released += segment.bytes;
    forget_segment(rank);
  }
  return released;
}

void Pool::Impl::forget_segment(std::size_t rank) noexcept {
  Segment& segment = segments[rank];
  resident -= segment.touched.count() << page_shift;
  segment.touched.reset();
  update_runs(segment, 0, segment.touched.pages());
  emit(EventKind::kSegmentRelease, segment.base, segment.bytes);
  segments.remove(device, rank);
}

// ---- The interface ----

Pool::Pool(Device& device, const PoolOptions& options, Statistics& statistics)
    : impl_(std::make_unique<Impl>(device, options, statistics)) {}

Pool::~Pool() {
  Impl& p = *impl_;
  const Impl::Section section(p);
  p.count_requested(-static_cast<std::int64_t>(p.requested));
  p.active = 0;
  while (p.segments.count() > 0) p.forget_segment(p.segments.count() - 1);
}

Block* Pool::allocate(std::size_t bytes, StreamId stream) noexcept {
  return impl_->allocate(bytes, bytes, stream, Lane::kWork);
}

Block* Pool::allocate_packed(std::size_t bytes, StreamId stream, RecordId owner) noexcept {
  return impl_->allocate(bytes, bytes, stream, Lane::kPacked, owner);
}

Block* Pool::allocate_container(std::size_t bytes, StreamId stream) noexcept {
  return impl_->allocate(bytes, 0, stream, Lane::kPacked);
}

void Pool::count_requested(EventScope& scope, std::int64_t bytes) noexcept {
  const std::lock_guard<std::mutex> lock(impl_->mutex);
  scope.change_exclusive(StatKind::kRequested, bytes);
}

void Pool::copy(void* to, const void* from, std::size_t bytes, StreamId /*stream*/) noexcept {
  std::memcpy(to, from, bytes);
}

void Pool::free(Block* block) noexcept { impl_->free(block); }

void Pool::shrink(Block* block, std::size_t bytes) noexcept { impl_->shrink(block, bytes); }

bool Pool::owns(const void* address) const noexcept {
  return impl_->segments.locate(address).slot != SegmentTable::kNone;
}

Block* Pool::find(const void* address) const noexcept {
  const Impl& p = *impl_;
  const SegmentTable::Location found = p.segments.locate(address);
  if (found.slot == SegmentTable::kNone || (found.offset & (p.granule_bytes - 1)) != 0)
    return nullptr;
  return p.segments.at_slot(found.slot)
      .in_use[found.offset >> p.granule_shift]
      .load(std::memory_order_acquire);
}

void Pool::tell_segments() noexcept {
  Impl& p = *impl_;
  const Impl::Section section(p);
  for (std::size_t rank = 0; rank < p.segments.count(); ++rank) {
    const Segment& segment = p.segments[rank];
    p.emit(EventKind::kSegmentReserve, segment.base, segment.bytes);
  }
}

std::size_t Pool::trim() noexcept {
  Impl& p = *impl_;
  const Impl::Section section(p);
  const std::size_t before = p.resident;
  if (!p.device.capabilities().reserves_freely) p.release_free_segments();
  p.purge(0, Impl::Purge::kAllPages, Impl::Joins::kForget);
  p.window.restart(p.active);
  p.aged_out = 0;
  return before - p.resident;
}

bool Pool::make_room_for_others() noexcept {
  const Impl::Section section(*impl_);
  return impl_->close_free_pages();
}

void Pool::lock_for_fork() noexcept { impl_->mutex.lock(); }

void Pool::unlock_after_fork() noexcept { impl_->mutex.unlock(); }

Device& Pool::device() const noexcept { return impl_->device; }

Statistics& Pool::statistics() const noexcept { return impl_->statistics; }

EventSource& Pool::events() const noexcept { return impl_->events; }

}  // namespace pleat::allocator
