// Pool::Impl is the inside of Pool, shared by its four .cpp files. They are pool.cpp (blocks,
// segments), pool_pages.cpp (resident pages), pool_density.cpp (written pages) and pool_check.cpp
// (walks over the whole structure).
#pragma once

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstddef>
#include <mutex>
#include <utility>

#include "allocator/blocks/block_store.h"
#include "allocator/host/density_by_size.h"
#include "allocator/host/live_window.h"
#include "allocator/host/pool.h"
#include "allocator/host/segment_table.h"

namespace pleat::allocator {

struct Segment;

// RecentPlaces remembers the places of the last few large blocks that were freed. Memory that the
// job has just used is probably still in a cache. A block of the same size that is written there
// costs no memory traffic. Not thread-safe.
class RecentPlaces {
 public:
  void add(Segment& segment, std::size_t granule, std::size_t granules) noexcept {
    places_[next_++ % kPlaces] = {&segment, granule, granules};
  }

  // Calls accept(segment, granule) for the remembered places of `granules` granules, the latest
  // first, until it returns true; then discards that place. False if none was accepted.
  template <typename Accept>
  bool take(std::size_t granules, Accept&& accept) noexcept {
    for (std::size_t back = 1; back <= kPlaces; ++back) {
      Place& place = places_[(next_ - back) % kPlaces];
      if (place.granules == granules && accept(*place.segment, place.granule)) {
        place = {};
        return true;
      }
    }
    return false;
  }

 private:
  static constexpr std::size_t kPlaces = 8;
  struct Place {
    Segment* segment = nullptr;
    std::size_t granule = 0;
    std::size_t granules = 0;  // 0: empty entry
  };
  Place places_[kPlaces];
  std::size_t next_ = 0;
};

// `unit`: a power of two.
constexpr std::size_t round_up(std::size_t bytes, std::size_t unit) noexcept {
  return (bytes + unit - 1) & ~(unit - 1);
}

// Progress and time budget of the search for pages to join.
struct Joining {
  std::size_t rank = 0;           // rank of the segment
  std::size_t page = 0;           // a huge page begins there
  std::uint64_t resumes_ns = 0;   // earliest begin of the next round
  std::uint64_t refilled_ns = 0;  // 0: never
  double allowance_ns = 0;
  bool only_plain = false;  // the device cannot join split huge pages
};

struct Pool::Impl {
  Impl(Device& the_device, const PoolOptions& the_options, Statistics& the_statistics) noexcept
      : device(the_device),
        options(the_options),
        statistics(the_statistics),
        events(the_device.index()),
        returns_pages(the_device.capabilities().returns_pages),
        granule_bytes(std::bit_ceil(std::max<std::size_t>(the_options.granule_bytes, 64))),
        granule_shift(std::countr_zero(granule_bytes)),
        page_bytes(the_device.capabilities().page_bytes),
        page_shift(std::countr_zero(page_bytes)),
        huge_page_bytes(std::max(the_device.capabilities().huge_page_bytes, page_bytes)),
        aligned_from(the_device.capabilities().move_bytes != 0 ? huge_page_bytes : SIZE_MAX),
        window(std::max<std::uint64_t>(the_options.epoch_ns, 1)) {
    assert(std::has_single_bit(page_bytes));
  }

  SegmentTable segments;  // locate() takes no lock; `mutex` guards all other members
  mutable std::mutex mutex;
  Device& device;
  const PoolOptions options;
  Statistics& statistics;
  EventSource events;
  EventScope* scope = nullptr;  // scope of the Section that holds the lock
  const bool returns_pages;
  const std::size_t granule_bytes;
  const int granule_shift;
  const std::size_t page_bytes;
  const int page_shift;
  const std::size_t huge_page_bytes;  // page_bytes if the device has no huge pages
  const std::size_t aligned_from;     // blocks from this size on are aligned; SIZE_MAX: no blocks
  // Whether the pool remembers the place of a freed block of `bytes`. Smaller blocks are not worth
  // the search, larger ones fit no cache.
  [[nodiscard]] static bool is_remembered(std::size_t bytes) noexcept {
    return bytes >= (std::size_t{64} << 10) && bytes <= (std::size_t{32} << 20);
  }

  std::size_t grown = 0;           // segments taken where addresses are limited
  std::size_t rooms[kLanes] = {};  // segments that can grow in place
  std::size_t met = 0;             // number of those whose following addresses were taken
  BlockStore blocks;
  std::uint64_t last_id = 0;
  std::size_t blocks_in_use = 0;

  // The sums, and the sums last published to the statistics. Cached is resident - active, because a
  // block in use has touched pages only.
  std::size_t requested = 0;
  std::size_t active = 0;
  std::size_t resident = 0;
  std::int64_t published_active = 0;
  std::int64_t published_reserved = 0;
  std::int64_t published_cached = 0;

  bool closes = false;  // free ranges without pages are inaccessible: Device::close_ranges()
  RecentPlaces recent;
  DensityBySize density;  // for Lane::kWork
  LiveWindow window;
  Joining joining;
  std::size_t guessed = 0;  // see PoolOptions::guessed_bytes
  std::uint64_t operations = 0;
  // Bytes released only because of age, and bytes needed again since (see want_pages).
  std::size_t aged_out = 0;
  std::size_t wanted_again = 0;
  std::uint64_t aged_out_ns = 0;

  // Holds the lock. Events of the section are delivered after the lock is released.
  class Section {
   public:
    explicit Section(Impl& impl) noexcept
        : impl_(impl),
          scope_(impl.events, impl.statistics, EventScope::Begin::kIfWanted),
          lock_(impl.mutex) {
      impl.scope = &scope_;
    }
    ~Section() {
      impl_.publish_all();
      impl_.scope = nullptr;
    }
    Section(const Section&) = delete;
    Section& operator=(const Section&) = delete;

   private:
    Impl& impl_;
    EventScope scope_;
    std::lock_guard<std::mutex> lock_;
  };

  // Records an event with all changes of the statistics up to now.
  void emit(EventKind kind, const void* address, std::size_t bytes, BlockId id = {},
            StreamId stream = {}, RecordId owner = {}) noexcept {
    if (!scope->wanted()) [[likely]]
      return;
    publish_all();
    note(kind, address, bytes, id, stream, owner);
  }
  // Records an event amid an allocation. The event of the allocation carries the changes.
  void emit_amid(EventKind kind, const void* address, std::size_t bytes) noexcept {
    if (!scope->wanted()) [[likely]]
      return;
    note(kind, address, bytes, {}, {}, {});
  }
  void note(EventKind kind, const void* address, std::size_t bytes, BlockId id, StreamId stream,
            RecordId owner) noexcept {
    Event event;
    event.kind = kind;
    event.block = id;
    event.record = owner;
    event.stream = stream;
    event.address = reinterpret_cast<std::uint64_t>(address);
    event.bytes = bytes;
    scope->note(event);
  }

  void publish(StatKind kind, std::int64_t& published, std::size_t value) noexcept {
    const auto now = static_cast<std::int64_t>(value);
    if (now == published) return;
    scope->change_exclusive(kind, now - published);
    published = now;
  }
  void publish_all() noexcept {
    publish(StatKind::kActive, published_active, active);
    publish(StatKind::kReserved, published_reserved, resident);
    publish(StatKind::kCached, published_cached, resident - active);
  }

  void count_requested(std::int64_t bytes) noexcept {
    if (bytes != 0) scope->change_exclusive(StatKind::kRequested, bytes);
  }

  [[nodiscard]] std::size_t resident_limit() const noexcept {
    const std::size_t high = window.high();
    return high +
           static_cast<std::size_t>(static_cast<double>(high) * options.resident_slack_fraction) +
           options.resident_slack_bytes;
  }

  [[nodiscard]] std::size_t granule_of(const Segment& segment,
                                       const std::byte* address) const noexcept {
    return static_cast<std::size_t>(address - segment.base) >> granule_shift;
  }
  // The pages of granules [granule, granule + need).
  [[nodiscard]] std::size_t first_page(std::size_t granule) const noexcept {
    return (granule << granule_shift) >> page_shift;
  }
  [[nodiscard]] std::size_t end_page(std::size_t granule, std::size_t need) const noexcept {
    return ((((granule + need) << granule_shift) - 1) >> page_shift) + 1;
  }

  [[nodiscard]] std::size_t granules_below(std::size_t page) const noexcept {
    return ((page << page_shift) + granule_bytes - 1) >> granule_shift;
  }
  // The pages [first, second) of the units of `unit_bytes` (aligned to it) inside a run.
  [[nodiscard]] std::pair<std::size_t, std::size_t> pages_within(
      const FreeRun& run, std::size_t unit_bytes) const noexcept {
    const auto begin = static_cast<std::size_t>(run.begin) << granule_shift;
    const auto end = static_cast<std::size_t>(run.begin + run.length) << granule_shift;
    return {round_up(begin, unit_bytes) >> page_shift, (end & ~(unit_bytes - 1)) >> page_shift};
  }

  // If pages can be moved, large blocks of Lane::kWork begin at a huge page, so freeing one frees
  // whole huge pages. Blocks of Lane::kPacked can use touched pages anywhere, but take fresh pages
  // only in their own segments, where they break up no huge page of a large block. If no segment
  // can be added, they go anywhere. `counted`: bytes that count as requested; 0 for a chunk.
  Block* allocate(std::size_t bytes, std::size_t counted, StreamId stream, Lane lane,
                  RecordId owner = {}) noexcept;
  void free(Block* block) noexcept;
  void shrink(Block* block, std::size_t bytes) noexcept;

  void tick() noexcept {
    constexpr std::uint64_t kOperationsPerClockCheck = 64;
    if (++operations % kOperationsPerClockCheck == 0) [[unlikely]]
      check_age();
  }
  void check_age() noexcept;

  // Whether the pages of a block of `bytes` are examined when it is freed.
  [[nodiscard]] bool is_looked_at(std::size_t bytes) const noexcept {
    return bytes >= std::max(huge_page_bytes, std::size_t{1} << 20);
  }
  // The number of examined pages, and how many of those were absent.
  struct Looked {
    std::size_t pages = 0;
    std::size_t absent = 0;
  };
  Looked look_at(Segment& segment, std::size_t granule, std::size_t need) noexcept;
  [[nodiscard]] std::size_t kinds() const noexcept;
  std::size_t expect_whole(Segment& segment, std::size_t begin, std::size_t end) noexcept;
  void join_pages(std::uint64_t now_ns) noexcept;
  bool join_next() noexcept;
  void join(Segment& segment, std::size_t page) noexcept;
  // Expectations about a block before it is written.
  struct Expected {
    std::size_t unwritten = 0;  // pages that will probably stay unwritten
    bool dense = false;
  };
  [[nodiscard]] bool want_pages(Segment& segment, std::size_t begin, std::size_t end,
                                const Expected& expected) noexcept;
  template <class Function>
  bool each_untouched(const Segment& segment, std::size_t begin, std::size_t end,
                      Function&& function) const;
  [[nodiscard]] bool open_pages(Segment& segment, std::size_t begin, std::size_t end) noexcept;
  bool close_free_pages() noexcept;

  std::size_t move_pages(Segment& to, std::size_t begin, std::size_t end,
                         std::size_t bytes) noexcept;
  std::size_t move_run(Segment& from, const FreeRun& run, Segment& to, std::size_t* next,
                       std::size_t end, std::size_t most) noexcept;

  // Pages that purge() can release; each value includes those before it. Without huge pages all are
  // equal.
  //   kBrokenHugePages  split huge pages that are entirely free (they become whole the next time)
  //   kWholeHugePages   any entirely free huge pages
  //   kSplitHugePages   also parts of split huge pages
  //   kAllPages         any free page
  enum class Purge { kBrokenHugePages, kWholeHugePages, kSplitHugePages, kAllPages };
  // Whether huge pages that were joined once become resident whole when they are next needed.
  enum class Joins : bool { kForget, kKeep };
  std::size_t purge(std::size_t target, Purge most, Joins joins) noexcept;
  bool purge_run(Segment& segment, const FreeRun& run, std::size_t target, Purge kind,
                 Joins joins) noexcept;
  bool give_back(Segment& segment, std::size_t begin, std::size_t end, Joins joins) noexcept;
  void give_back_sparse(Segment& segment, std::size_t granule, std::size_t need) noexcept;
  // A purpose of FreeRuns::visit_down(). The values of Purge are the other purposes.
  static constexpr unsigned kMovePages = 4;

  // A place for granules in a segment; segment == nullptr: no place found.
  struct Place {
    Segment* segment = nullptr;
    std::size_t granule = 0;
  };
  [[nodiscard]] Place take_recent(std::size_t need, bool align) noexcept;
  [[nodiscard]] Place take_touched(std::size_t need, Lane lane, std::size_t alignment = 1,
                                   std::size_t below = FreeRuns::kNone) noexcept;
  [[nodiscard]] Place take_untouched(std::size_t need, Lane lane, bool align) noexcept;
  [[nodiscard]] Place take_fresh(std::size_t need) noexcept;
  [[nodiscard]] bool may_have_fresh(std::size_t bytes) noexcept;
  [[nodiscard]] Place find_lowest(std::size_t need, Lane lane) noexcept;
  [[nodiscard]] Place take_aligned(std::size_t need) noexcept;
  [[nodiscard]] Place take_most_touched(std::size_t need, Lane lane) noexcept;
  // Limit on the runs that a search visits, low ones first. A better place only saves page faults.
  static constexpr std::size_t kMostLooks = 1024;
  [[nodiscard]] std::pair<std::size_t, std::size_t> longest_touched(
      const Segment& segment, std::size_t begin, std::size_t length) const noexcept;
  void find_touched(Segment& segment, std::size_t least) noexcept;
  void update_runs(Segment& segment, std::size_t begin, std::size_t end) noexcept;
  void update_run(const Segment& segment, FreeRun& run) const noexcept;
  bool grow(std::size_t bytes, Lane lane) noexcept;
  bool add_segment(std::size_t bytes, std::size_t room, Lane lane) noexcept;
  bool reach(std::size_t rank, std::size_t end) noexcept;
  std::size_t release_free_segments() noexcept;
  void forget_segment(std::size_t rank) noexcept;

  const char* check(const Segment& segment, std::size_t* in_use, std::size_t* requested_bytes,
                    std::size_t* active_bytes) const;
};

}  // namespace pleat::allocator
