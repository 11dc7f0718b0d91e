#include "allocator/store/payload_arena.h"

#include <cassert>
#include <utility>

#include "allocator/store/payload_arena_impl.h"

namespace pleat::allocator {
PayloadArena::PayloadArena(BlockMemory& memory, const Options& options)
    : impl_(std::make_unique<Impl>(memory, options)) {}

PayloadArena::PayloadArena(BlockMemory& memory) : PayloadArena(memory, Options{}) {}

PayloadArena::~PayloadArena() {
  Impl& a = *impl_;
  EventScope scope = a.scope();
  a.count_requested(scope, a.payload_bytes, 0);
  while (!a.chunks.empty()) {
    a.memory.free(a.chunks.back()->block);
    delete a.chunks.back();
    a.chunks.pop_back();
  }
  while (a.spare_count > 0) delete a.spare[--a.spare_count];
}

PayloadSlot PayloadArena::allocate(std::size_t bytes, StreamId stream, RecordId owner) noexcept {
  Impl& a = *impl_;
  if (bytes == 0) return {};
  if (bytes > a.most_chunk_bytes / 2) return a.allocate_block(bytes, stream, owner);
  const std::size_t need = a.granules(bytes);

  EventScope scope = a.scope();
  std::unique_lock<std::mutex> lock(a.mutex);
  Chunk* chunk = a.find(need, stream);
  if (chunk == nullptr && bytes <= a.next_chunk_bytes() / 2) chunk = a.add_chunk(stream, lock);
  if (chunk == nullptr) {
    lock.unlock();
    return a.allocate_block(bytes, stream, owner);  // a smaller hole can still fit
  }
  const std::size_t granule = chunk->runs.take_first_fit(need);
  chunk->payload_granules += need;
  if (a.tier != nullptr) ++chunk->pins;
  a.note_largest(*chunk);
  const PayloadSlot slot{chunk, granule * a.granule_bytes, bytes};
  a.count(scope, *chunk, 0, bytes);
  a.note(scope, EventKind::kPayloadAllocate, *chunk, slot, owner);
  return slot;
}

void PayloadArena::shrink(PayloadSlot& slot, std::size_t bytes) noexcept {
  assert(slot && bytes > 0 && bytes <= slot.bytes);
  Impl& a = *impl_;
  Chunk* const chunk = shared(slot.chunk);
  if (chunk == nullptr) {
    a.memory.shrink(slot.chunk->block, bytes);
    slot.bytes = bytes;
    return;
  }
  EventScope scope = a.scope();
  const std::lock_guard<std::mutex> lock(a.mutex);
  const std::size_t had = a.granules(slot.bytes);
  const std::size_t keep = a.granules(bytes);
  if (keep < had) {
    chunk->runs.give(slot.begin / a.granule_bytes + keep, had - keep);
    chunk->payload_granules -= had - keep;
    a.note_largest(*chunk);
  }
  a.count(scope, *chunk, slot.bytes, bytes);
  slot.bytes = bytes;
  a.note(scope, EventKind::kPayloadShrink, *chunk, slot);
}

void PayloadArena::free(PayloadSlot& slot) noexcept {
  assert(slot);
  Impl& a = *impl_;
  Chunk* const chunk = shared(slot.chunk);
  if (chunk == nullptr) {
    PayloadChunk* const own = std::exchange(slot, {}).chunk;
    std::unique_lock<std::mutex> lock(a.mutex, std::defer_lock);
    if (a.tier != nullptr) lock.lock();
    Block* const block = a.drop_chunk(own);
    if (lock.owns_lock()) lock.unlock();
    if (block != nullptr) a.memory.free(block);
    return;
  }
  EventScope scope = a.scope();
  std::unique_lock<std::mutex> lock(a.mutex);
  const std::size_t length = a.granules(slot.bytes);
  chunk->runs.give(slot.begin / a.granule_bytes, length);
  chunk->payload_granules -= length;
  a.count(scope, *chunk, slot.bytes, 0);
  a.note(scope, EventKind::kPayloadFree, *chunk, slot);
  slot = {};
  if (chunk->payload_granules == 0) {
    Block* const block = a.drop_chunk(chunk);
    lock.unlock();
    if (block != nullptr) a.memory.free(block);
  } else {
    a.note_largest(*chunk);
  }
}

PayloadSlot PayloadArena::adopt(Block* block) noexcept {
  return impl_->own_chunk(PayloadChunk::Kind::kInPlace, block, block->stream, block->requested);
}

void PayloadArena::disown(PayloadSlot& slot) noexcept {
  const std::lock_guard<std::mutex> lock(impl_->mutex);
  slot.chunk->pins = 0;
  (void)impl_->drop_chunk(std::exchange(slot, {}).chunk);
}

void PayloadArena::describe(const PayloadSlot& slot, Event& event) const noexcept {
  static constexpr PayloadPlace kPlaces[] = {PayloadPlace::kChunk, PayloadPlace::kOwnBlock,
                                             PayloadPlace::kInPlace};
  const std::lock_guard<std::mutex> lock(impl_->mutex);
  event.place = kPlaces[static_cast<std::size_t>(slot.chunk->kind)];
  if (slot.chunk->block == nullptr) return;
  event.block = slot.chunk->block->id;
  event.address = reinterpret_cast<std::uint64_t>(slot.address());
}

void PayloadArena::lock_for_fork() noexcept {
  impl_->bringing.lock();
  impl_->mutex.lock();
}

void PayloadArena::unlock_after_fork() noexcept {
  impl_->mutex.unlock();
  impl_->bringing.unlock();
}

const char* PayloadArena::check_invariants() const {
  const Impl& a = *impl_;
  const std::lock_guard<std::mutex> lock(a.mutex);
  if (a.chunks.size() != a.largest.size()) return "arena: index and chunks differ in number";
  const std::byte* previous_end = nullptr;
  std::size_t payload_granules = 0;
  for (std::size_t i = 0; i < a.chunks.size(); ++i) {
    const Chunk& chunk = *a.chunks[i];
    if (chunk.rank != i) return "arena: wrong rank of a chunk";
    if (chunk.block->begin < previous_end) return "arena: chunks out of order";
    previous_end = chunk.block->begin + chunk.block->bytes;
    if (a.memory.find(chunk.block->begin) != chunk.block)
      return "arena: chunk is not a block in use";
    if (a.largest[i] != static_cast<std::int32_t>(chunk.runs.largest()))
      return "arena: wrong largest run";
    if (const char* error = chunk.runs.check()) return error;
    std::size_t free = 0;
    chunk.runs.visit_up(1, [&free](std::size_t, std::size_t length) {
      free += length;
      return true;
    });
    if (free + chunk.payload_granules != chunk.runs.granules()) return "arena: granules lost";
    if (chunk.payload_granules == 0) return "arena: an empty chunk is kept";
    payload_granules += chunk.payload_granules;
  }
  if (a.payload_bytes > payload_granules * a.granule_bytes) return "arena: wrong sum of payloads";
  return "";
}

}  // namespace pleat::allocator
