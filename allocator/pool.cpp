#include "allocator/pool.h"

#include <time.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <mutex>

#include "allocator/block_store.h"
#include "allocator/live_window.h"
#include "allocator/segment_table.h"

namespace pleat::allocator {
namespace {

constexpr std::uint64_t kOperationsPerClockCheck = 64;

constexpr std::size_t round_up(std::size_t bytes, std::size_t unit) noexcept {
  return (bytes + unit - 1) & ~(unit - 1);
}

std::uint64_t coarse_now_ns() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u +
         static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace

struct Pool::Impl {
  Impl(Device& the_device, const PoolOptions& the_options, Statistics& the_statistics,
       EventSink* the_sink) noexcept
      : device(the_device),
        options(the_options),
        statistics(the_statistics),
        sink(the_sink),
        returns_pages(the_device.capabilities().returns_pages),
        granule_bytes(std::bit_ceil(std::max<std::size_t>(the_options.granule_bytes, 64))),
        granule_shift(std::countr_zero(granule_bytes)),
        page_bytes(the_device.capabilities().page_bytes),
        page_shift(std::countr_zero(page_bytes)),
        window(std::max<std::uint64_t>(the_options.epoch_ns, 1)) {
    assert(std::has_single_bit(page_bytes));
  }

  SegmentTable segments;  // locate() without the lock; all else below under it
  mutable std::mutex mutex;
  Device& device;
  const PoolOptions options;
  Statistics& statistics;
  EventSink* const sink;
  const bool returns_pages;
  const std::size_t granule_bytes;
  const int granule_shift;
  const std::size_t page_bytes;
  const int page_shift;

  std::size_t grown = 0;  // segments taken beyond the first large range
  BlockStore blocks;
  std::uint64_t last_id = 0;
  std::size_t blocks_in_use = 0;

  // What the statistics were last told; cached is resident - reserved, because a block in use lies
  // on touched pages only.
  std::size_t requested = 0;
  std::size_t reserved = 0;
  std::size_t resident = 0;
  std::int64_t published_reserved = 0;
  std::int64_t published_resident = 0;
  std::int64_t published_cached = 0;

  LiveWindow window;
  std::uint64_t operations = 0;
  // Pages given back only because of age, and how many were wanted again since (see want_pages).
  std::size_t aged_out = 0;
  std::size_t wanted_again = 0;
  std::uint64_t aged_out_ns = 0;

  void emit(EventKind kind, const void* address, std::size_t bytes, BlockId id = {},
            StreamId stream = {}) noexcept {
    if (sink == nullptr) [[likely]]
      return;
    Event event;
    event.device = device.index();
    event.kind = kind;
    event.block = id;
    event.stream = stream;
    event.address = reinterpret_cast<std::uint64_t>(address);
    event.bytes = bytes;
    sink->on_event(event);
  }

  void publish(StatKind kind, std::int64_t& published, std::size_t value) noexcept {
    const auto now = static_cast<std::int64_t>(value);
    if (now == published) return;
    statistics.add_exclusive(kind, now - published);
    published = now;
  }
  void publish_all() noexcept {
    publish(StatKind::kReserved, published_reserved, reserved);
    publish(StatKind::kResident, published_resident, resident);
    publish(StatKind::kCached, published_cached, resident - reserved);
  }

  void count_live(std::int64_t bytes) noexcept {
    if (bytes != 0) statistics.add_exclusive(StatKind::kLive, bytes);
  }

  [[nodiscard]] std::size_t resident_limit() const noexcept {
    const std::size_t high = window.high();
    return high +
           static_cast<std::size_t>(static_cast<double>(high) * options.resident_slack_fraction) +
           options.resident_slack_bytes;
  }

  Block* allocate(std::size_t bytes, std::size_t counted, StreamId stream) noexcept;
  void free(Block* block) noexcept;
  void shrink(Block* block, std::size_t bytes) noexcept;

  void tick() noexcept {
    if (++operations % kOperationsPerClockCheck == 0) [[unlikely]]
      check_age();
  }
  void check_age() noexcept;
  void want_pages(Segment& segment, std::size_t begin, std::size_t end) noexcept;

  std::size_t purge(std::size_t target) noexcept;
  bool purge_run(Segment& segment, std::size_t begin, std::size_t length,
                 std::size_t target) noexcept;

  [[nodiscard]] Segment* take(std::size_t need, std::size_t* granule) noexcept;
  bool grow(std::size_t bytes) noexcept;
  bool add_segment(std::size_t bytes) noexcept;
  std::size_t release_free_segments() noexcept;
  void forget_segment(std::size_t rank) noexcept;

  const char* check(const Segment& segment, std::size_t* in_use, std::size_t* requested_bytes,
                    std::size_t* reserved_bytes) const;
};

// ---- Blocks
// --------------------------------------------------------------------------------------

// Takes granules from the lowest run that has `need` of them.
Segment* Pool::Impl::take(std::size_t need, std::size_t* granule) noexcept {
  for (std::size_t rank = 0; rank < segments.count(); ++rank) {
    *granule = segments[rank].runs.take_first_fit(need);
    if (*granule != FreeRuns::kNone) return &segments[rank];
  }
  return nullptr;
}

Block* Pool::Impl::allocate(std::size_t bytes, std::size_t counted, StreamId stream) noexcept {
  if (bytes == 0 || bytes > (FreeRuns::kMaxGranules << granule_shift)) return nullptr;
  const std::size_t need = (bytes + granule_bytes - 1) >> granule_shift;
  const std::size_t rounded = need << granule_shift;

  const std::lock_guard<std::mutex> lock(mutex);
  tick();
  Block* block = blocks.get();
  if (block == nullptr) [[unlikely]] {
    publish_all();
    return nullptr;
  }
  std::size_t granule = 0;
  Segment* segment = take(need, &granule);
  if (segment == nullptr) [[unlikely]] {
    if (!grow(rounded) || (segment = take(need, &granule)) == nullptr) {
      blocks.put(block);
      publish_all();
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
  block->record.store(nullptr, std::memory_order_relaxed);
  segment->in_use[granule].store(block, std::memory_order_release);

  ++blocks_in_use;
  requested += counted;
  reserved += rounded;
  window.raise(reserved);
  const std::size_t first_page = offset >> page_shift;
  const std::size_t end_page = ((offset + rounded - 1) >> page_shift) + 1;
  if (!segment->touched.all_touched(first_page, end_page)) [[unlikely]] {
    want_pages(*segment, first_page, end_page);
  }

  count_live(static_cast<std::int64_t>(counted));
  publish_all();
  emit(EventKind::kAllocate, block->begin, bytes, block->id, stream);
  return block;
}

void Pool::Impl::free(Block* block) noexcept {
  const SegmentTable::Location found = segments.locate(block->begin);
  assert(found.slot != SegmentTable::kNone);
  Segment& segment = segments.at_slot(found.slot);
  const std::size_t granule = found.offset >> granule_shift;
  __builtin_prefetch(&segment.in_use[granule], 1);  // the one access that misses, if any does
  const std::lock_guard<std::mutex> lock(mutex);
  assert(segment.in_use[granule].load(std::memory_order_relaxed) == block);
  emit(EventKind::kFree, block->begin, block->requested, block->id, block->stream);

  segment.in_use[granule].store(nullptr, std::memory_order_release);
  segment.runs.give(granule, block->bytes >> granule_shift);
  --blocks_in_use;
  requested -= block->requested;
  reserved -= block->bytes;
  count_live(-static_cast<std::int64_t>(block->requested));
  blocks.put(block);
  tick();
  publish_all();
}

void Pool::Impl::shrink(Block* block, std::size_t bytes) noexcept {
  assert(bytes > 0 && bytes <= block->requested);
  const std::size_t keep = (bytes + granule_bytes - 1) >> granule_shift;
  const std::lock_guard<std::mutex> lock(mutex);
  const std::size_t had = block->bytes >> granule_shift;
  const std::size_t less = block->requested - bytes;
  requested -= less;
  block->requested = bytes;
  count_live(-static_cast<std::int64_t>(less));
  if (keep < had) {
    const SegmentTable::Location found = segments.locate(block->begin);
    assert(found.slot != SegmentTable::kNone);
    segments.at_slot(found.slot).runs.give((found.offset >> granule_shift) + keep, had - keep);
    block->bytes = keep << granule_shift;
    reserved -= (had - keep) << granule_shift;
  }
  tick();
  publish_all();
}

// ---- Pages
// ---------------------------------------------------------------------------------------

// Counts the untouched pages of [begin, end) as touched: the caller of allocate() will write them.
// Before that, free pages elsewhere go back as far as the limit asks for it.
[[gnu::noinline]] void Pool::Impl::want_pages(Segment& segment, std::size_t begin,
                                              std::size_t end) noexcept {
  const std::size_t more = segment.touched.untouched(begin, end) << page_shift;
  const std::size_t limit = resident_limit();
  if (resident + more > limit) purge(limit > more ? limit - more : 0);
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
    const std::size_t gone = purge(limit);
    if (gone > 0) {
      aged_out = gone;
      wanted_again = 0;
      aged_out_ns = now;
    }
  }
  // Where address space is short, others want it back too.
  if (returns_pages && !device.capabilities().reserves_freely) release_free_segments();
}

// Gives free pages back, highest first, because first fit will want the low ones soonest, until
// `target` bytes are resident or nothing whole is left. Returns the bytes given back.
[[gnu::noinline]] std::size_t Pool::Impl::purge(std::size_t target) noexcept {
  if (!returns_pages) return 0;
  const std::size_t before = resident;
  // Smaller runs hold no whole page.
  const std::size_t least = std::max<std::size_t>(page_bytes >> granule_shift, 1);
  for (std::size_t rank = segments.count(); rank-- > 0 && resident > target;) {
    Segment& segment = segments[rank];
    segment.runs.visit_down(least, [&](std::size_t begin, std::size_t length) {
      return purge_run(segment, begin, length, target) && resident > target;
    });
  }
  return before - resident;
}

// False if the device gave nothing back: further attempts are useless.
bool Pool::Impl::purge_run(Segment& segment, std::size_t begin, std::size_t length,
                           std::size_t target) noexcept {
  const std::size_t first = ((begin << granule_shift) + page_bytes - 1) >> page_shift;
  std::size_t end = ((begin + length) << granule_shift) >> page_shift;
  while (resident > target) {
    const std::size_t last = segment.touched.last_touched(first, end);
    if (last == TouchedPages::kNone) return true;
    const std::size_t excess = (resident - target + page_bytes - 1) >> page_shift;
    std::size_t low = last;
    while (low > first && last + 1 - low < excess && segment.touched.test(low - 1)) --low;
    const std::size_t bytes = (last + 1 - low) << page_shift;
    std::byte* address = segment.base + (low << page_shift);
    if (!device.release_pages(address, bytes)) return false;
    segment.touched.clear(low, last + 1);
    resident -= bytes;
    emit(EventKind::kPagesRelease, address, bytes);
    end = low;
  }
  return true;
}

// ---- Segments
// ------------------------------------------------------------------------------------

// Makes room for a block of `bytes` (a multiple of the granule). One range for everything where
// that is free; else pieces, larger as there are more of them, down to just what is asked for.
[[gnu::noinline]] bool Pool::Impl::grow(std::size_t bytes) noexcept {
  const std::size_t unit = std::max(page_bytes, granule_bytes);
  const std::size_t most = (FreeRuns::kMaxGranules << granule_shift) & ~(unit - 1);
  if (bytes > most) return false;
  const std::size_t need = round_up(bytes, unit);
  const auto size = [&](std::size_t wanted) {
    return std::clamp(round_up(std::min(wanted, most), unit), need, most);
  };
  const std::size_t growth = size(options.growth_bytes);
  const DeviceCapabilities& capabilities = device.capabilities();

  if (segments.pristine() && capabilities.reserves_freely) {
    std::size_t wanted = options.reserve_bytes;
    if (wanted == 0) wanted = 4 * capabilities.memory_bytes;
    for (; wanted > 0; wanted = wanted / 2 > growth ? wanted / 2 : 0) {
      if (add_segment(size(wanted))) return true;
    }
  }
  const std::size_t larger = size(options.growth_bytes << std::min<std::size_t>(grown / 16, 6));
  if ((larger > growth && add_segment(larger)) || add_segment(growth) ||
      (need < growth && add_segment(need))) {
    ++grown;
    return true;
  }
  // Perhaps segments that lie idle stand in the way.
  if (release_free_segments() > 0 && add_segment(need)) {
    ++grown;
    return true;
  }
  return false;
}

bool Pool::Impl::add_segment(std::size_t bytes) noexcept {
  Segment* segment = segments.add(device, bytes, granule_bytes);
  if (segment == nullptr) return false;
  if (!returns_pages) {  // memory came with the range
    segment->touched.touch(0, segment->touched.pages());
    resident += bytes;
  }
  emit(EventKind::kSegmentReserve, segment->base, bytes);
  return true;
}

// Gives segments without a block back to the device. Returns their bytes.
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
  segment.touched.clear(0, segment.touched.pages());
  emit(EventKind::kSegmentRelease, segment.base, segment.bytes);
  segments.remove(device, rank);
}

// ---- The interface
// -------------------------------------------------------------------------------

Pool::Pool(Device& device, const PoolOptions& options, Statistics& statistics, EventSink* sink)
    : impl_(std::make_unique<Impl>(device, options, statistics, sink)) {}

Pool::~Pool() {
  Impl& p = *impl_;
  p.count_live(-static_cast<std::int64_t>(p.requested));
  p.reserved = 0;
  while (p.segments.count() > 0) p.forget_segment(p.segments.count() - 1);
  p.publish_all();
}

Block* Pool::allocate(std::size_t bytes, StreamId stream) noexcept {
  return impl_->allocate(bytes, bytes, stream);
}

Block* Pool::allocate_container(std::size_t bytes) noexcept {
  return impl_->allocate(bytes, 0, {});
}

void Pool::count_live(std::int64_t bytes) noexcept {
  const std::lock_guard<std::mutex> lock(impl_->mutex);
  impl_->count_live(bytes);
}

void Pool::free(Block* block) noexcept {
  impl_->free(block);
}

void Pool::shrink(Block* block, std::size_t bytes) noexcept {
  impl_->shrink(block, bytes);
}

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

std::size_t Pool::trim() noexcept {
  Impl& p = *impl_;
  const std::lock_guard<std::mutex> lock(p.mutex);
  const std::size_t before = p.resident;
  if (!p.device.capabilities().reserves_freely) p.release_free_segments();
  p.purge(0);
  p.window.restart(p.reserved);
  p.aged_out = 0;
  p.publish_all();
  return before - p.resident;
}

void Pool::lock_for_fork() noexcept {
  impl_->mutex.lock();
}

void Pool::unlock_after_fork() noexcept {
  impl_->mutex.unlock();
}

Device& Pool::device() const noexcept {
  return impl_->device;
}

Statistics& Pool::statistics() const noexcept {
  return impl_->statistics;
}

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
        // The last run may be terabytes; only what of it is resident is worth a line.
        view.bytes =
            std::min(segment.runs.length_at(granule) << p.granule_shift, resident_end - offset);
      }
      visitor(context, view);
      offset += view.bytes;
    }
  }
}

// ---- Invariants
// ----------------------------------------------------------------------------------

const char* Pool::Impl::check(const Segment& segment, std::size_t* in_use,
                              std::size_t* requested_bytes, std::size_t* reserved_bytes) const {
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
    *reserved_bytes += block->bytes;
    granule += block->bytes >> granule_shift;
  }
  if (granule != segment.runs.granules()) return "a block reaches beyond its segment";
  if (runs != segment.runs.run_count()) return "the free index differs from the set of free runs";
  std::size_t touched = 0;
  for (std::size_t page = 0; page < segment.touched.pages(); ++page) {
    touched += segment.touched.test(page) ? 1 : 0;
  }
  if (touched != segment.touched.count()) return "wrong number of touched pages";
  return nullptr;
}

const char* Pool::check_invariants() const {
  const Impl& p = *impl_;
  const std::lock_guard<std::mutex> lock(p.mutex);
  std::size_t in_use = 0;
  std::size_t requested = 0;
  std::size_t reserved = 0;
  std::size_t resident = 0;
  const std::byte* previous_end = nullptr;
  for (std::size_t rank = 0; rank < p.segments.count(); ++rank) {
    const Segment& segment = p.segments[rank];
    if (segment.base == nullptr || segment.base < previous_end) return "segments out of order";
    previous_end = segment.base + segment.bytes;
    if (const char* error = p.check(segment, &in_use, &requested, &reserved)) return error;
    resident += segment.touched.count() << p.page_shift;
  }
  if (in_use != p.blocks_in_use) return "wrong number of blocks in use";
  if (requested != p.requested) return "wrong sum of requested bytes";
  if (reserved != p.reserved) return "wrong sum of reserved bytes";
  if (resident != p.resident) return "wrong sum of resident bytes";
  const auto equals = [&p](StatKind kind, std::size_t value) {
    return p.statistics.current(kind) == static_cast<std::int64_t>(value);
  };
  if (!equals(StatKind::kReserved, reserved)) return "statistics: reserved";
  if (!equals(StatKind::kResident, resident)) return "statistics: resident";
  if (!equals(StatKind::kCached, resident - reserved)) return "statistics: cached";
  return "";
}

}  // namespace pleat::allocator
