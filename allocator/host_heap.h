// HostHeap is the heap of the host: a pool on the host's pages. A timer returns the pool's free
// pages to the system after a while without use.
#pragma once

#include "allocator/heap.h"
#include "allocator/host/host_device.h"
#include "allocator/host/idle_trimmer.h"
#include "allocator/host/pool.h"

namespace pleat::allocator {

class HostHeap {
 public:
  HostHeap(BlockCodec& codec, const ResidencyOptions& options,
           HugePages huge_pages = HugePages::kAuto)
      : device_(DeviceIndex{HeapTable::kHost}, huge_pages),
        pool_(device_, PoolOptions{}, statistics_),
        heap_(pool_, order_, codec, options) {}

  [[nodiscard]] Heap& heap() noexcept { return heap_; }
  [[nodiscard]] Pool& pool() noexcept { return pool_; }

  // Like Heap::allocate().
  [[nodiscard]] Block* allocate(std::size_t bytes) noexcept {
    idle_trimmer_.note_use();
    return heap_.allocate(bytes);
  }

  // Around fork(): locks idle_trimmer, then residency and all locks below it.
  void lock_for_fork() noexcept {
    idle_trimmer_.lock_for_fork();
    heap_.residency().lock_for_fork();
  }
  void unlock_after_fork(ForkSide side) noexcept {
    heap_.residency().unlock_after_fork(side);
    idle_trimmer_.unlock_after_fork();
  }

 private:
  HostDevice device_;
  Statistics statistics_;
  Pool pool_;
  IdleTrimmer idle_trimmer_{pool_};
  SynchronousOrder order_;
  Heap heap_;
};

}  // namespace pleat::allocator
