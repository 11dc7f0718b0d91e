#include "allocator/store/payload_arena.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstdint>
#include <limits>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "allocator/blocks/free_runs.h"
#include "allocator/blocks/zeroed_mapping.h"

namespace pleat::allocator {
namespace {

struct Chunk : PayloadChunk {
  FreeRuns runs;
  std::size_t payload_granules = 0;
  std::size_t rank = 0;  // index in `chunks`
  ZeroedMapping metadata;
};

// The chunk of a slot; null if the payload has a block of its own.
Chunk* shared(const PayloadSlot& slot) noexcept {
  return slot.chunk->kind == PayloadChunk::Kind::kShared ? static_cast<Chunk*>(slot.chunk)
                                                         : nullptr;
}

}  // namespace

struct PayloadArena::Impl {
  Impl(BlockMemory& the_memory, const Options& options) noexcept
      : memory(the_memory),
        least_chunk_bytes(std::max<std::size_t>(options.chunk_bytes, 4096)),
        most_chunk_bytes(std::max(options.most_chunk_bytes, least_chunk_bytes)),
        granule_bytes(std::bit_ceil(std::max<std::size_t>(options.granule_bytes, 64))) {}

  [[nodiscard]] EventScope scope() noexcept {
    return {memory.events(), memory.statistics(), EventScope::Begin::kAlways};
  }

  mutable std::mutex mutex;
  BlockMemory& memory;
  const std::size_t least_chunk_bytes, most_chunk_bytes;
  const std::size_t granule_bytes;
  std::size_t payload_bytes = 0;  // requested, in chunks
  std::size_t all_chunk_bytes = 0;

  // Size of the next chunk.
  [[nodiscard]] std::size_t next_chunk_bytes() const noexcept {
    return std::clamp(std::bit_floor(all_chunk_bytes / 4 | 1), least_chunk_bytes, most_chunk_bytes);
  }

  // In address order. largest[i] is chunks[i]->runs.largest(), in an array of its own, so that the
  // search for a chunk reads one array.
  std::vector<Chunk*> chunks;
  std::vector<std::int32_t> largest;

  [[nodiscard]] std::size_t granules(std::size_t bytes) const noexcept {
    return (bytes + granule_bytes - 1) / granule_bytes;
  }

  void count(EventScope& scope, std::size_t before, std::size_t after) noexcept {
    const auto change = static_cast<std::int64_t>(after) - static_cast<std::int64_t>(before);
    payload_bytes += after - before;
    if (change != 0) memory.count_requested(scope, change);
  }

  void note(EventScope& scope, EventKind kind, const Chunk& chunk, const PayloadSlot& slot,
            RecordId owner = {}) noexcept {
    if (!scope.wanted()) [[likely]]
      return;
    Event event;
    event.kind = kind;
    event.stream = chunk.stream;
    event.block = chunk.block->id;
    event.address = reinterpret_cast<std::uint64_t>(slot.address());
    event.bytes = slot.bytes;
    event.record = owner;
    scope.note(event);
  }

  [[nodiscard]] PayloadSlot allocate_block(std::size_t bytes, StreamId stream,
                                           RecordId owner) noexcept {
    Block* block = memory.allocate_packed(bytes, stream, owner);
    if (block == nullptr) return {};
    auto* const chunk =
        new (std::nothrow) PayloadChunk{PayloadChunk::Kind::kOwnBlock, block, stream};
    if (chunk == nullptr) {
      memory.free(block);
      return {};
    }
    return {chunk, 0, bytes};
  }

  // Metadata of freed chunks, with all granules free. A few are kept, because chunks come and go
  // within every step and a mapping costs microseconds.
  static constexpr std::size_t kMaxSpare = 64;
  Chunk* spare[kMaxSpare] = {};
  std::size_t spare_count = 0;

  [[nodiscard]] Chunk* get_metadata() noexcept {
    if (spare_count > 0) return spare[--spare_count];
    auto* chunk = new (std::nothrow) Chunk;
    if (chunk == nullptr) return nullptr;
    const std::size_t most = most_chunk_bytes / granule_bytes;
    if (!chunk->metadata.map(FreeRuns::metadata_bytes(most))) {
      delete chunk;
      return nullptr;
    }
    chunk->runs.attach(chunk->metadata.data(), most);
    return chunk;
  }
  void put_metadata(Chunk* chunk) noexcept {
    if (spare_count < kMaxSpare) {
      spare[spare_count++] = chunk;
    } else {
      delete chunk;
    }
  }

  // Returns nullptr if the pool cannot grow or memory for metadata is short. The allocation runs
  // without the lock: its side effects (observers of a shortage, for example) can free payloads.
  [[nodiscard]] Chunk* add_chunk(StreamId stream, std::unique_lock<std::mutex>& lock) noexcept {
    const std::size_t bytes = next_chunk_bytes();
    lock.unlock();
    Block* const block = memory.allocate_container(bytes, stream);
    lock.lock();
    if (block == nullptr) return nullptr;
    Chunk* const chunk = make_room() ? get_metadata() : nullptr;
    if (chunk == nullptr) {
      lock.unlock();
      memory.free(block);
      lock.lock();
      return nullptr;
    }
    chunk->stream = stream;
    chunk->block = block;
    chunk->runs.resize(bytes / granule_bytes);
    all_chunk_bytes += chunk->block->bytes;
    const auto place = std::upper_bound(
        chunks.begin(), chunks.end(), chunk,
        [](const Chunk* a, const Chunk* b) { return a->block->begin < b->block->begin; });
    const std::size_t rank = static_cast<std::size_t>(place - chunks.begin());
    chunks.insert(place, chunk);  // within the capacity: does not throw
    largest.insert(largest.begin() + static_cast<std::ptrdiff_t>(rank),
                   static_cast<std::int32_t>(chunk->runs.largest()));
    renumber(rank);
    return chunk;
  }

  [[nodiscard]] bool make_room() noexcept {
    if (chunks.size() < chunks.capacity() && largest.size() < largest.capacity()) return true;
    try {
      const std::size_t room = std::max<std::size_t>(64, 2 * chunks.size());
      chunks.reserve(room);
      largest.reserve(room);
      return true;
    } catch (...) {
      return false;
    }
  }

  void renumber(std::size_t from) noexcept {
    for (std::size_t i = from; i < chunks.size(); ++i) chunks[i]->rank = i;
  }

  // Empty chunks are not kept: taking a new one costs about a hundred nanoseconds, while keeping
  // one withholds chunk_bytes from blocks.
  // Returns the chunk's block, which the caller frees without the lock.
  [[nodiscard]] Block* drop_chunk(Chunk* chunk) noexcept {
    const auto rank = static_cast<std::ptrdiff_t>(chunk->rank);
    chunks.erase(chunks.begin() + rank);
    largest.erase(largest.begin() + rank);
    renumber(static_cast<std::size_t>(rank));
    Block* const block = chunk->block;
    all_chunk_bytes -= block->bytes;
    put_metadata(chunk);
    return block;
  }

  // The stream's first chunk, by address, with `need` free granules in a row, else nullptr.
  [[nodiscard]] Chunk* find(std::size_t need, StreamId stream) noexcept {
    const auto wanted = static_cast<std::int32_t>(need);
    for (std::size_t i = 0;; ++i) {
      const auto fits = std::find_if(largest.begin() + static_cast<std::ptrdiff_t>(i),
                                     largest.end(), [=](std::int32_t n) { return n >= wanted; });
      if (fits == largest.end()) return nullptr;
      i = static_cast<std::size_t>(fits - largest.begin());
      if (chunks[i]->stream == stream) [[likely]]
        return chunks[i];
    }
  }

  void note_largest(const Chunk& chunk) noexcept {
    largest[chunk.rank] = static_cast<std::int32_t>(chunk.runs.largest());
  }
};

PayloadArena::PayloadArena(BlockMemory& memory, const Options& options)
    : impl_(std::make_unique<Impl>(memory, options)) {}

PayloadArena::PayloadArena(BlockMemory& memory) : PayloadArena(memory, Options{}) {}

PayloadArena::~PayloadArena() {
  Impl& a = *impl_;
  EventScope scope = a.scope();
  a.count(scope, a.payload_bytes, 0);
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
  a.note_largest(*chunk);
  const PayloadSlot slot{chunk, granule * a.granule_bytes, bytes};
  a.count(scope, 0, bytes);
  a.note(scope, EventKind::kPayloadAllocate, *chunk, slot, owner);
  return slot;
}

void PayloadArena::shrink(PayloadSlot& slot, std::size_t bytes) noexcept {
  assert(slot && bytes > 0 && bytes <= slot.bytes);
  Impl& a = *impl_;
  Chunk* const chunk = shared(slot);
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
  a.count(scope, slot.bytes, bytes);
  slot.bytes = bytes;
  a.note(scope, EventKind::kPayloadShrink, *chunk, slot);
}

void PayloadArena::free(PayloadSlot& slot) noexcept {
  assert(slot);
  Impl& a = *impl_;
  Chunk* const chunk = shared(slot);
  if (chunk == nullptr) {
    a.memory.free(slot.chunk->block);
    delete std::exchange(slot, {}).chunk;
    return;
  }
  EventScope scope = a.scope();
  std::unique_lock<std::mutex> lock(a.mutex);
  const std::size_t length = a.granules(slot.bytes);
  chunk->runs.give(slot.begin / a.granule_bytes, length);
  chunk->payload_granules -= length;
  a.count(scope, slot.bytes, 0);
  a.note(scope, EventKind::kPayloadFree, *chunk, slot);
  slot = {};
  if (chunk->payload_granules == 0) {
    Block* const block = a.drop_chunk(chunk);
    lock.unlock();
    a.memory.free(block);
  } else {
    a.note_largest(*chunk);
  }
}

void PayloadArena::describe(const PayloadSlot& slot, Event& event) noexcept {
  static constexpr PayloadPlace kPlaces[] = {PayloadPlace::kChunk, PayloadPlace::kOwnBlock,
                                             PayloadPlace::kInPlace};
  event.place = kPlaces[static_cast<std::size_t>(slot.chunk->kind)];
  event.block = slot.chunk->block->id;
  event.address = reinterpret_cast<std::uint64_t>(slot.address());
}

void PayloadArena::lock_for_fork() noexcept { impl_->mutex.lock(); }

void PayloadArena::unlock_after_fork() noexcept { impl_->mutex.unlock(); }

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
