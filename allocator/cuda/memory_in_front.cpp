#include "allocator/cuda/memory_in_front.h"

#include <cassert>

namespace pleat::allocator::cuda {
namespace {

Event event_of(const Block& block, EventKind kind) noexcept {
  Event event;
  event.kind = kind;
  event.stream = block.stream;
  event.block = block.id;
  event.address = reinterpret_cast<std::uint64_t>(block.begin);
  event.bytes = block.requested != 0 ? block.requested : block.bytes;
  return event;
}

}  // namespace

// ---- the table ----------------------------------------------------------------------------------

BlockTable::Found BlockTable::find(const void* pointer) const noexcept {
  if (size() == 0) return {};
  const std::lock_guard<std::mutex> guard(mutex_);
  const auto at = entries_.find(pointer);
  if (at == entries_.end()) return {};
  return {const_cast<Block*>(&at->second.block), at->second.memory};
}

Block* BlockTable::find_or_add(void* pointer, MemoryInFront& memory, bool& is_new) noexcept {
  try {
    const std::lock_guard<std::mutex> guard(mutex_);
    const auto [at, added] = entries_.try_emplace(pointer);
    is_new = added;
    if (added) {
      at->second.block.begin = static_cast<std::byte*>(pointer);
      at->second.memory = &memory;
      size_.store(entries_.size(), std::memory_order_relaxed);
    }
    return &at->second.block;
  } catch (...) {
    return nullptr;
  }
}

void BlockTable::erase(const void* pointer) noexcept {
  const std::lock_guard<std::mutex> guard(mutex_);
  entries_.erase(pointer);
  size_.store(entries_.size(), std::memory_order_relaxed);
}

// ---- memory -------------------------------------------------------------------------------------

void MemoryInFront::count(const Block& block, EventKind kind, std::int64_t sign,
                          RecordId owner) noexcept {
  EventScope scope(events_, statistics_, EventScope::Begin::kIfWanted);
  scope.change(StatKind::kRequested, sign * static_cast<std::int64_t>(block.requested));
  scope.change(StatKind::kActive, sign * static_cast<std::int64_t>(block.bytes));
  scope.change(StatKind::kReserved, sign * static_cast<std::int64_t>(block.bytes));
  Event event = event_of(block, kind);
  event.record = owner;
  scope.note(event);
}

Block* MemoryInFront::adopt(void* pointer, std::size_t bytes, StreamId stream) noexcept {
  bool is_new = false;
  Block* const block = blocks_.find_or_add(pointer, *this, is_new);
  if (block != nullptr && is_new) {
    block->bytes = block->requested = bytes;
    block->stream = stream;
    block->id = BlockId{last_id_.fetch_add(1, std::memory_order_relaxed) + 1};
    count(*block, EventKind::kAllocate, 1);
  }
  return block;
}

Block* MemoryInFront::take(std::size_t bytes, std::size_t requested, StreamId stream,
                           RecordId owner) noexcept {
  void* const pointer = raw_.allocate(events_.device(), bytes, stream);
  if (pointer == nullptr) {
    short_.store(true, std::memory_order_relaxed);
    return nullptr;
  }
  bool is_new = false;
  Block* const block = blocks_.find_or_add(pointer, *this, is_new);
  if (block == nullptr) {
    raw_.free(pointer);
    return nullptr;
  }
  assert(is_new);
  block->bytes = bytes;
  block->requested = requested;
  block->stream = stream;
  block->id = BlockId{last_id_.fetch_add(1, std::memory_order_relaxed) + 1};
  count(*block, requested != 0 ? EventKind::kAllocate : EventKind::kChunkAllocate, 1, owner);
  return block;
}

Block* MemoryInFront::allocate(std::size_t bytes, StreamId stream) noexcept {
  return take(bytes, bytes, stream);
}

bool MemoryInFront::may_keep(StreamId stream) noexcept {
  return !short_.load(std::memory_order_relaxed) && !raw_.is_private(events_.device(), stream);
}

Block* MemoryInFront::allocate_packed(std::size_t bytes, StreamId stream, RecordId owner) noexcept {
  return may_keep(stream) ? take(bytes, bytes, stream, owner) : nullptr;
}

Block* MemoryInFront::allocate_container(std::size_t bytes, StreamId stream) noexcept {
  return may_keep(stream) ? take(bytes, 0, stream) : nullptr;
}

void MemoryInFront::count_requested(EventScope& scope, std::int64_t bytes) noexcept {
  scope.change(StatKind::kRequested, bytes);
}

void MemoryInFront::free(Block* block) noexcept {
  count(*block, block->requested != 0 ? EventKind::kFree : EventKind::kChunkFree, -1);
  void* const pointer = block->begin;
  blocks_.erase(pointer);  // before another allocation reuses the address
  short_.store(false, std::memory_order_relaxed);
  raw_.free(pointer);
}

void MemoryInFront::shrink(Block* block, std::size_t bytes) noexcept {
  EventScope scope(events_, statistics_, EventScope::Begin::kIfWanted);
  scope.change(StatKind::kRequested,
               static_cast<std::int64_t>(bytes) - static_cast<std::int64_t>(block->requested));
  block->requested = bytes;
  scope.note(event_of(*block, EventKind::kShrink));
}

void MemoryInFront::note_use(Block* block, StreamId stream) noexcept {
  raw_.note_use(events_.device(), block->begin, stream);
}

// Other users of a storage's block are unknown: assume that there are some.
bool MemoryInFront::used_elsewhere(const Block* /*block*/) const noexcept { return true; }

void MemoryInFront::copy(void* to, const void* from, std::size_t bytes, StreamId stream) noexcept {
  const DeviceContext context(driver_, life_, events_.device().value);
  if (!context) return;
  life_.note(driver_.copy(reinterpret_cast<std::uint64_t>(to),
                          reinterpret_cast<std::uint64_t>(from), bytes,
                          reinterpret_cast<void*>(stream.value)));
}

Block* MemoryInFront::find(const void* address) const noexcept {
  const BlockTable::Found found = blocks_.find(address);
  return found.memory == this ? found.block : nullptr;
}

}  // namespace pleat::allocator::cuda
