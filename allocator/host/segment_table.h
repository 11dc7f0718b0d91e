// SegmentTable holds a pool's address ranges, with their free runs, blocks in use and touched
// pages. All metadata are out of band. The pool's lock guards every member except
// SegmentTable::locate() and Segment::in_use, which owns() and find() use without it.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>

#include "allocator/blocks/block.h"
#include "allocator/blocks/free_runs.h"
#include "allocator/blocks/zeroed_mapping.h"
#include "allocator/host/device.h"
#include "allocator/host/touched_pages.h"

namespace pleat::allocator {

// The kinds of blocks that a segment provides fresh pages for.
enum class Lane : std::uint8_t {
  kWork,    // blocks that are worked on: large ones begin at a huge page
  kPacked,  // blocks that are kept (payloads): packed closely, whatever their size
};
constexpr std::size_t kLanes = 2;

struct Segment {
  std::byte* base = nullptr;  // nullptr: released, the metadata wait for a segment of the same size
  std::size_t slot = 0;       // slot of SegmentTable
  std::size_t bytes = 0;      // usable; grows up to room
  std::size_t room = 0;       // the size that the metadata cover
  Lane lane = Lane::kWork;
  FreeRuns runs;  // runs of all the room, until the segment cannot grow any further
  TouchedPages touched;
  std::atomic<Block*>* in_use = nullptr;  // by first granule; nullptr: no block in use begins there
  ZeroedMapping metadata;
  std::size_t runs_end = 0;  // bytes of the metadata for `runs`
  std::size_t opened = 0;    // granules whose metadata are accessible

  // Maps the metadata of a segment that has no memory yet. False if memory for them is short.
  [[nodiscard]] bool prepare(std::size_t room_bytes, std::size_t granule_bytes,
                             const DeviceCapabilities& capabilities) noexcept {
    const std::size_t granules = room_bytes / granule_bytes;
    const std::size_t pages = room_bytes / capabilities.page_bytes;
    const std::size_t runs_bytes = FreeRuns::metadata_bytes(granules);
    const std::size_t map_bytes = granules * sizeof(std::atomic<Block*>);
    const std::size_t all_bytes = runs_bytes + map_bytes + TouchedPages::metadata_bytes(pages);
    if (!metadata.reserve(all_bytes)) return false;
    room = room_bytes;
    opened = 0;
    runs_end = runs_bytes;
    if (!metadata.open(FreeRuns::leaf_bytes(granules), runs_bytes) ||
        !metadata.open(runs_bytes + map_bytes, all_bytes) || !open(granule_bytes, granule_bytes)) {
      metadata.reset();
      return false;
    }
    runs.attach(metadata.data(), granules);
    // Zero pages are null pointers already; constructors would touch every page.
    static_assert(std::atomic<Block*>::is_always_lock_free);
    in_use = reinterpret_cast<std::atomic<Block*>*>(metadata.data() + runs_bytes);
    touched.attach(metadata.data() + runs_bytes + map_bytes, pages,
                   std::max<std::size_t>(capabilities.huge_page_bytes / capabilities.page_bytes, 1),
                   capabilities.huge_pages_rejoin, capabilities.joins_pages);
    return true;
  }
  // Makes the metadata of the first `usable_bytes` accessible, which grow with the segment. False
  // if memory is short.
  [[nodiscard]] bool open(std::size_t usable_bytes, std::size_t granule_bytes) noexcept {
    const std::size_t granules = usable_bytes / granule_bytes;
    if (granules <= opened) return true;
    const std::size_t leaves =
        std::min(FreeRuns::leaf_bytes(granules + 2), FreeRuns::leaf_bytes(room / granule_bytes));
    const bool done = metadata.open(0, leaves) &&
                      metadata.open(runs_end, runs_end + granules * sizeof(std::atomic<Block*>));
    if (done) opened = granules;
    return done;
  }
};

class SegmentTable {
 public:
  static constexpr std::size_t kMaxSegments = 512;
  static constexpr std::size_t kNone = SIZE_MAX;

  SegmentTable() noexcept = default;
  SegmentTable(const SegmentTable&) = delete;
  SegmentTable& operator=(const SegmentTable&) = delete;
  ~SegmentTable() {
    for (Segment* segment : segments_) delete segment;
  }

  struct Location {
    std::size_t slot;  // kNone: outside all segments
    std::size_t offset;
  };
  // The segment and offset of `address`. Takes no lock and waits for no other thread. A slot's
  // metadata are written once. Its base changes only after the segment was released and a later one
  // with the same room takes the slot; until then its size only grows. So a lookup of a block in
  // use always reads a base and a size that contain it.
  [[nodiscard]] Location locate(const void* address) const noexcept {
    const auto a = reinterpret_cast<std::uintptr_t>(address);
    for (;;) {
      const std::size_t version = version_.load(std::memory_order_acquire);
      const Index& index = index_[version % 2];
      std::size_t rank = 0;  // rank of the last segment that begins at or below the address, else 0
      for (std::size_t n = index.count.load(std::memory_order_acquire); n > 1;) {
        const std::size_t half = n / 2;
        if (index.base[rank + half].load(std::memory_order_acquire) <= a) rank += half;
        n -= half;
      }
      const std::uintptr_t base = index.base[rank].load(std::memory_order_acquire);
      const std::size_t slot = index.slot[rank].load(std::memory_order_acquire);
      const std::size_t bytes = bytes_[slot].load(std::memory_order_acquire);
      // The second change from now overwrites this copy of the index.
      if (version_.load(std::memory_order_relaxed) != version) [[unlikely]]
        continue;
      if (a - base < bytes) return {slot, a - base};
      return {kNone, 0};
    }
  }
  [[nodiscard]] Segment& at_slot(std::size_t slot) const noexcept { return *segments_[slot]; }

  // Segments that hold memory, lowest address first.
  [[nodiscard]] std::size_t count() const noexcept { return active_; }
  [[nodiscard]] Segment& operator[](std::size_t rank) const noexcept {
    return *segments_[by_address_[rank]];
  }

  // Reserves a segment of `bytes` that can grow to `room`. nullptr if the device refuses, memory
  // for metadata is short, or there are kMaxSegments already.
  [[nodiscard]] Segment* add(Device& device, std::size_t bytes, std::size_t room,
                             std::size_t granule_bytes) noexcept {
    std::size_t slot = 0;
    while (slot < slots_ && (segments_[slot]->base != nullptr || segments_[slot]->room != room)) {
      ++slot;
    }
    if (slot == kMaxSegments) return nullptr;
    const bool fresh = slot == slots_;
    if (fresh) {
      if (segments_[slot] == nullptr) segments_[slot] = new (std::nothrow) Segment;
      if (segments_[slot] == nullptr) return nullptr;
      if (!segments_[slot]->prepare(room, granule_bytes, device.capabilities())) return nullptr;
    }
    Segment& segment = *segments_[slot];
    segment.slot = slot;
    if (segment.open(bytes, granule_bytes)) {
      segment.base = static_cast<std::byte*>(device.reserve_segment(bytes, room));
    }
    if (segment.base == nullptr) {
      if (fresh) segment.metadata.reset();
      return nullptr;
    }
    segment.bytes = bytes;
    segment.runs.resize(room / granule_bytes);
    std::size_t rank = active_++;
    for (; rank > 0 && (*this)[rank - 1].base > segment.base; --rank) {
      by_address_[rank] = by_address_[rank - 1];
    }
    by_address_[rank] = slot;
    bytes_[slot].store(bytes, std::memory_order_relaxed);
    if (fresh) ++slots_;
    publish();
    return &segment;
  }

  // Lengthens a segment in place to `bytes`, at most its room. False, unchanged, if the device
  // cannot.
  bool extend(Device& device, std::size_t rank, std::size_t bytes,
              std::size_t granule_bytes) noexcept {
    Segment& segment = (*this)[rank];
    if (!segment.open(bytes, granule_bytes)) return false;
    if (!device.extend_segment(segment.base, segment.bytes, bytes - segment.bytes)) return false;
    segment.bytes = bytes;
    bytes_[by_address_[rank]].store(bytes, std::memory_order_release);
    return true;
  }

  // Releases a segment to the device. It must hold no blocks, and its pages count as untouched.
  void remove(Device& device, std::size_t rank) noexcept {
    const std::size_t slot = by_address_[rank];
    std::copy(by_address_ + rank + 1, by_address_ + active_, by_address_ + rank);
    --active_;
    publish();
    device.release_segment(segments_[slot]->base, segments_[slot]->bytes);
    segments_[slot]->base = nullptr;
  }

 private:
  // A base without addresses: it is not canonical, so address - kNowhere exceeds any segment's
  // size.
  static constexpr std::uintptr_t kNowhere = std::uintptr_t{1} << 63;

  // The segments by address, for locate(). There are two copies. A change is made in the one that
  // readers do not use; the new version, stored last, sends readers there.
  struct Index {
    std::atomic<std::size_t> count{0};
    std::atomic<std::uintptr_t> base[kMaxSegments] = {kNowhere};
    std::atomic<std::uint16_t> slot[kMaxSegments] = {};
  };
  void publish() noexcept {
    const std::size_t version = version_.load(std::memory_order_relaxed) + 1;
    Index& index = index_[version % 2];
    index.base[0].store(kNowhere, std::memory_order_release);
    for (std::size_t rank = 0; rank < active_; ++rank) {
      const Segment& segment = (*this)[rank];
      index.base[rank].store(reinterpret_cast<std::uintptr_t>(segment.base),
                             std::memory_order_release);
      index.slot[rank].store(static_cast<std::uint16_t>(segment.slot), std::memory_order_release);
    }
    index.count.store(active_, std::memory_order_release);
    version_.store(version, std::memory_order_release);
  }

  std::atomic<std::size_t> version_{0};
  Index index_[2];
  std::atomic<std::size_t> bytes_[kMaxSegments] = {};  // by slot
  Segment* segments_[kMaxSegments] = {};               // by slot
  std::size_t slots_ = 0;
  std::size_t by_address_[kMaxSegments] = {};  // slots
  std::size_t active_ = 0;
};

}  // namespace pleat::allocator
