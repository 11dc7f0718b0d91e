// PayloadTier is memory outside of a device to which chunks of payloads can go, such as memory of
// the host. Records do not notice: they name slots of chunks. The arena decides which chunk goes
// and when it comes back (chunk_moves.cpp).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "allocator/ids.h"
#include "allocator/store/stream_order.h"

namespace pleat::allocator {

// Threads: any; the arena calls under its lock. No function waits on the host.
class PayloadTier {
 public:
  virtual ~PayloadTier() = default;
  // Room for a chunk of `bytes`; null: there is none now.
  [[nodiscard]] virtual void* take(std::size_t bytes) noexcept = 0;
  // Returns room. Queued copies can still use it: the tier orders its own copies.
  virtual void give(void* room) noexcept = 0;
  // Queues a copy after the earlier work of `stream`, and sets `done` to an event after the copy,
  // which the caller releases. False: nothing was queued.
  [[nodiscard]] virtual bool copy_out(void* room, const void* from, std::size_t bytes,
                                      StreamId stream, EventHandle* done) noexcept = 0;
  // Queues a copy that is complete for later work of `stream`. False: nothing was queued.
  [[nodiscard]] virtual bool copy_in(void* to, const void* room, std::size_t bytes,
                                     StreamId stream) noexcept = 0;
};

// Chunks that moved, and the reasons why others did not.
struct TierCounters {
  std::atomic<std::uint64_t> sent{0}, brought{0};
  std::atomic<std::uint64_t> no_room{0};  // in the tier
  std::atomic<std::uint64_t> refused{0};  // copies
};

}  // namespace pleat::allocator
