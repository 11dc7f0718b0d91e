// Heap joins one device's memory, payload arena, residency and statistics, and makes room on a
// shortage. The process has one heap per device; a heap does not depend on the others.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>

#include "allocator/event_sink.h"
#include "allocator/ids.h"
#include "allocator/lifecycle/residency.h"
#include "allocator/statistics.h"
#include "allocator/store/block_codec.h"
#include "allocator/store/block_memory.h"
#include "allocator/store/payload_arena.h"
#include "allocator/store/stream_order.h"

namespace pleat::allocator {

class Heap {
 public:
  // `memory`, `order` and `codec` outlive the heap.
  Heap(BlockMemory& memory, StreamOrder& order, BlockCodec& codec, const ResidencyOptions& options,
       const PayloadArena::Options& arena = {})
      : memory_(memory), arena_(memory, arena), residency_(memory, order, arena_, codec, options) {}
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  // A block of at least `bytes` for work on `stream`. nullptr if memory is short, although
  // make_room() has done all it can. Must not be called under a lock of residency.
  [[nodiscard]] Block* allocate(std::size_t bytes, StreamId stream = {}) noexcept {
    Block* block = memory_.allocate(bytes, stream);
    while (block == nullptr && make_room(bytes)) [[unlikely]] {
        block = memory_.allocate(bytes, stream);
      }
    return block;
  }
  // If an allocation of `bytes` failed: Residency::make_room(), then the caches. True if memory was
  // freed, so that the caller tries again. Not under a lock of residency.
  [[nodiscard]] bool make_room(std::size_t bytes) noexcept {
    if (residency_.make_room(bytes)) return true;
    const DropCaches drop = drop_caches_.load(std::memory_order_acquire);
    return drop != nullptr && drop(device());
  }
  // Sets the function that frees what other code keeps only to save work. Returns true if it freed
  // anything. Any thread, without a lock of the heap.
  using DropCaches = bool (*)(DeviceIndex device) noexcept;
  void set_caches(DropCaches drop) noexcept { drop_caches_.store(drop, std::memory_order_release); }
  // Frees a block that allocate() or a restore returned: Residency::release(). From any thread.
  void release(Block* block) noexcept { residency_.release(block); }

  [[nodiscard]] DeviceIndex device() const noexcept { return memory_.events().device(); }
  [[nodiscard]] BlockMemory& memory() noexcept { return memory_; }
  [[nodiscard]] Residency& residency() noexcept { return residency_; }
  [[nodiscard]] const Residency& residency() const noexcept { return residency_; }
  [[nodiscard]] Statistics& statistics() const noexcept { return memory_.statistics(); }
  [[nodiscard]] EventSource& events() const noexcept { return memory_.events(); }

 private:
  BlockMemory& memory_;
  PayloadArena arena_;
  Residency residency_;
  std::atomic<DropCaches> drop_caches_{nullptr};
};

// The heaps of a process, by device. A heap may be added while others are in use; none is removed.
class HeapTable {
 public:
  static constexpr std::int32_t kHost = -1;
  static constexpr std::int32_t kMostDevices = 64;  // torch's limit for one kind of device

  // False if the device already has a heap or the table has no room for it.
  bool add(Heap& heap) noexcept {
    Heap* expected = nullptr;
    const std::int32_t device = heap.device().value;
    return in_range(device) &&
           slot(device).compare_exchange_strong(expected, &heap, std::memory_order_release);
  }
  // The heap of `device`; nullptr if the device has no heap.
  [[nodiscard]] Heap* at(DeviceIndex device) const noexcept {
    return in_range(device.value) ? heaps_[static_cast<std::size_t>(device.value - kHost)].load(
                                        std::memory_order_acquire)
                                  : nullptr;
  }
  // Calls visit(Heap&) for each heap, the host's first.
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (const std::atomic<Heap*>& slot : heaps_) {
      if (Heap* const heap = slot.load(std::memory_order_acquire)) visit(*heap);
    }
  }

 private:
  static bool in_range(std::int32_t device) noexcept {
    return device >= kHost && device < kMostDevices;
  }
  std::atomic<Heap*>& slot(std::int32_t device) noexcept {
    return heaps_[static_cast<std::size_t>(device - kHost)];
  }
  std::array<std::atomic<Heap*>, kMostDevices + 1> heaps_{};
};

}  // namespace pleat::allocator
