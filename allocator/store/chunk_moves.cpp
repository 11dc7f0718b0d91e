// How chunks of payloads go to a tier and come back. A chunk goes as a whole; its slots stay as
// they are, so that no record notices.
//
//   here -> send() -> on its way: block and room, payloads are read from the block
//        -> its copy is complete -> collect() -> in the tier: room, no block
//        -> pin() -> here, in another block
//
// A chunk that is pinned when its copy is complete stays. The device runs what is queued in order,
// so a block is freed once its copy is complete and its readers are queued
// (BlockMemory::note_use()).
#include <utility>

#include "allocator/store/payload_arena_impl.h"

namespace pleat::allocator {

// ---- the chunks of an arena ---------------------------------------------------------------------

void PayloadArena::Impl::link(PayloadChunk& chunk) noexcept {
  chunk.previous = newest;
  (newest != nullptr ? newest->next : oldest) = &chunk;
  newest = &chunk;
}

bool PayloadArena::Impl::leave(PayloadChunk& chunk) noexcept {
  if (chunk.room != nullptr && chunk.block != nullptr) {
    chunk.dropped = true;
    return false;
  }
  (chunk.previous != nullptr ? chunk.previous->next : oldest) = chunk.next;
  (chunk.next != nullptr ? chunk.next->previous : newest) = chunk.previous;
  if (chunk.room != nullptr) tier->give(chunk.room);
  return true;
}

// ---- out ----------------------------------------------------------------------------------------

bool PayloadArena::Impl::send(PayloadChunk& chunk) noexcept {
  auto* const place = std::find(on_their_way.begin(), on_their_way.end(), nullptr);
  if (chunk.block == nullptr || chunk.room != nullptr || chunk.pins != 0 ||
      place == on_their_way.end() || order->is_captured(chunk.stream)) {
    return false;
  }
  const std::size_t bytes = chunk.block->bytes;
  void* const room = tier->take(bytes);
  if (room == nullptr) {
    counters.no_room.fetch_add(1, std::memory_order_relaxed);
    return false;
  }
  if (!tier->copy_out(room, chunk.block->begin, bytes, chunk.stream, &chunk.copied)) {
    counters.refused.fetch_add(1, std::memory_order_relaxed);
    tier->give(room);
    return false;
  }
  chunk.room = room;
  if (Chunk* const of_several = shared(&chunk)) unlist(of_several);
  *place = &chunk;
  return true;
}

Block* PayloadArena::Impl::arrive(EventScope& scope, PayloadChunk& chunk) noexcept {
  *std::find(on_their_way.begin(), on_their_way.end(), &chunk) = nullptr;
  order->release(std::exchange(chunk.copied, {}));
  Chunk* const of_several = shared(&chunk);
  if (chunk.pins != 0 && !chunk.dropped) {
    tier->give(std::exchange(chunk.room, nullptr));
    if (of_several != nullptr && make_room()) list(of_several);
    return nullptr;
  }
  chunk.block_bytes = of_several != nullptr ? chunk.block->bytes : chunk.block->requested;
  if (of_several != nullptr) count_requested(scope, of_several->payload_bytes, 0);
  Block* const block = std::exchange(chunk.block, nullptr);
  counters.sent.fetch_add(1, std::memory_order_relaxed);
  if (chunk.dropped) (void)drop_chunk(&chunk);
  return block;
}

void PayloadArena::send(const PayloadSlot& slot) noexcept {
  Impl& a = *impl_;
  if (a.tier == nullptr) return;
  collect();
  const std::lock_guard<std::mutex> lock(a.mutex);
  (void)a.send(*slot.chunk);
}

void PayloadArena::collect() noexcept {
  Impl& a = *impl_;
  if (a.tier == nullptr) return;
  EventScope scope = a.scope();
  for (std::size_t i = 0; i < Impl::kMostOnTheirWay; ++i) {
    std::unique_lock<std::mutex> lock(a.mutex);
    PayloadChunk* const chunk = a.on_their_way[i];
    if (chunk == nullptr || !a.order->complete(chunk->copied)) continue;
    Block* const block = a.arrive(scope, *chunk);
    lock.unlock();
    if (block != nullptr) a.memory.free(block);
  }
}

std::size_t PayloadArena::demote(std::size_t bytes) noexcept {
  Impl& a = *impl_;
  if (a.tier == nullptr) return 0;
  collect();
  EventScope scope = a.scope();
  std::size_t freed = 0;
  std::unique_lock<std::mutex> lock(a.mutex);
  // A wait of the host: the allocation that needs the memory would fail.
  const auto await = [&](PayloadChunk& chunk) {
    a.order->synchronize(chunk.copied);
    if (Block* const block = a.arrive(scope, chunk)) {
      freed += block->bytes;
      lock.unlock();
      a.memory.free(block);
      lock.lock();
    }
  };
  for (std::size_t i = 0; i < Impl::kMostOnTheirWay && freed < bytes; ++i) {
    if (PayloadChunk* const chunk = a.on_their_way[i]) await(*chunk);
  }
  for (PayloadChunk* chunk = a.oldest; chunk != nullptr && freed < bytes;) {
    if (a.send(*chunk)) {
      await(*chunk);
      chunk = a.oldest;  // the list can have changed
    } else {
      chunk = chunk->next;
    }
  }
  return freed;
}

// ---- back ---------------------------------------------------------------------------------------

PayloadArena::Impl::Brought PayloadArena::Impl::bring(EventScope& scope, PayloadChunk& chunk,
                                                      std::unique_lock<std::mutex>& lock) noexcept {
  const bool is_shared = shared(&chunk) != nullptr;
  lock.unlock();
  Block* const block = is_shared ? memory.allocate_container(chunk.block_bytes, chunk.stream)
                                 : memory.allocate_packed(chunk.block_bytes, chunk.stream, {});
  lock.lock();
  if (block == nullptr) return Brought::kNoMemory;
  if (!tier->copy_in(block->begin, chunk.room, chunk.block_bytes, chunk.stream)) {
    counters.refused.fetch_add(1, std::memory_order_relaxed);
    lock.unlock();
    memory.free(block);
    lock.lock();
    return Brought::kRefused;
  }
  tier->give(std::exchange(chunk.room, nullptr));
  chunk.block = block;
  if (Chunk* const of_several = shared(&chunk)) {
    count_requested(scope, 0, of_several->payload_bytes);
    if (make_room()) list(of_several);
  }
  counters.brought.fetch_add(1, std::memory_order_relaxed);
  return Brought::kYes;
}

std::byte* PayloadArena::pin(const PayloadSlot& slot, StreamId stream) noexcept {
  Impl& a = *impl_;
  if (a.tier == nullptr) [[likely]]
    return slot.address();
  PayloadChunk& chunk = *slot.chunk;
  EventScope scope = a.scope();
  std::unique_lock<std::mutex> lock(a.mutex);
  ++chunk.pins;
  if (chunk.block == nullptr) {
    lock.unlock();
    const std::lock_guard<std::mutex> one_at_a_time(a.bringing);
    lock.lock();
    const bool captured = a.order->is_captured(stream) || a.order->is_captured(chunk.stream);
    while (chunk.block == nullptr) {
      const Impl::Brought brought =
          captured ? Impl::Brought::kRefused : a.bring(scope, chunk, lock);
      if (brought == Impl::Brought::kYes) break;
      lock.unlock();
      const bool again = brought == Impl::Brought::kNoMemory && demote(chunk.block_bytes) != 0;
      lock.lock();
      if (!again) {
        --chunk.pins;
        return nullptr;
      }
    }
  }
  if (stream != chunk.stream) a.memory.note_use(chunk.block, stream);
  return slot.address();
}

void PayloadArena::unpin(const PayloadSlot& slot) noexcept {
  if (impl_->tier == nullptr) [[likely]]
    return;
  const std::lock_guard<std::mutex> lock(impl_->mutex);
  --slot.chunk->pins;
}

void PayloadArena::attach(PayloadTier& tier, StreamOrder& order) noexcept {
  impl_->tier = &tier;
  impl_->order = &order;
}

const TierCounters& PayloadArena::tier_counters() const noexcept { return impl_->counters; }

}  // namespace pleat::allocator
