// Internal to PayloadArena: the state that payload_arena.cpp and chunk_moves.cpp share.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <mutex>
#include <new>
#include <vector>

#include "allocator/blocks/free_runs.h"
#include "allocator/blocks/zeroed_mapping.h"
#include "allocator/store/payload_arena.h"

namespace pleat::allocator {

struct Chunk : PayloadChunk {
  FreeRuns runs;
  std::size_t payload_granules = 0;
  std::size_t payload_bytes = 0;  // requested
  std::size_t rank = 0;           // index in `chunks`
  bool listed = false;            // in `chunks`: payloads can be placed there
  ZeroedMapping metadata;
};

// The chunk as one that payloads share; null if it has one payload.
inline Chunk* shared(PayloadChunk* chunk) noexcept {
  return chunk->kind == PayloadChunk::Kind::kShared ? static_cast<Chunk*>(chunk) : nullptr;
}

struct PayloadArena::Impl {
  Impl(BlockMemory& the_memory, const Options& options) noexcept
      : memory(the_memory),
        least_chunk_bytes(std::max<std::size_t>(options.chunk_bytes, 4096)),
        most_chunk_bytes(std::max(options.most_chunk_bytes, least_chunk_bytes)),
        granule_bytes(std::bit_ceil(std::max<std::size_t>(options.granule_bytes, 64))) {}

  [[nodiscard]] EventScope scope() noexcept {
    return {memory.events(), memory.statistics(), EventScope::Begin::kAlways};
  }

  // Around bringing a chunk back; before `mutex`.
  std::mutex bringing;
  mutable std::mutex mutex;
  BlockMemory& memory;
  const std::size_t least_chunk_bytes, most_chunk_bytes;
  const std::size_t granule_bytes;
  std::size_t payload_bytes = 0;  // requested, in listed chunks
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

  // Counts a change of the requested bytes within a chunk; those in the tier count as none.
  void count(EventScope& scope, Chunk& chunk, std::size_t before, std::size_t after) noexcept {
    chunk.payload_bytes += after - before;
    if (chunk.listed) payload_bytes += after - before;
    if (chunk.block != nullptr) count_requested(scope, before, after);
  }
  void count_requested(EventScope& scope, std::size_t before, std::size_t after) noexcept {
    const auto change = static_cast<std::int64_t>(after) - static_cast<std::int64_t>(before);
    if (change != 0) memory.count_requested(scope, change);
  }

  void note(EventScope& scope, EventKind kind, const Chunk& chunk, const PayloadSlot& slot,
            RecordId owner = {}) noexcept {
    if (!scope.wanted()) [[likely]]
      return;
    Event event;
    event.kind = kind;
    event.stream = chunk.stream;
    if (chunk.block != nullptr) {
      event.block = chunk.block->id;
      event.address = reinterpret_cast<std::uint64_t>(slot.address());
    }
    event.bytes = slot.bytes;
    event.record = owner;
    scope.note(event);
  }

  [[nodiscard]] PayloadSlot allocate_block(std::size_t bytes, StreamId stream,
                                           RecordId owner) noexcept {
    Block* block = memory.allocate_packed(bytes, stream, owner);
    if (block == nullptr) return {};
    const PayloadSlot slot = own_chunk(PayloadChunk::Kind::kOwnBlock, block, stream, bytes);
    if (!slot) memory.free(block);
    return slot;
  }

  [[nodiscard]] PayloadSlot own_chunk(PayloadChunk::Kind kind, Block* block, StreamId stream,
                                      std::size_t bytes) noexcept {
    auto* const chunk = new (std::nothrow) PayloadChunk{kind, block, stream};
    if (chunk == nullptr) return {};
    if (tier != nullptr) [[unlikely]] {
      const std::lock_guard<std::mutex> lock(mutex);
      chunk->pins = 1;
      link(*chunk);
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
    static_cast<PayloadChunk&>(*chunk) = {};
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
    list(chunk);
    if (tier != nullptr) [[unlikely]]
      link(*chunk);
    return chunk;
  }

  // Makes a chunk one in which payloads are placed, after make_room().
  void list(Chunk* chunk) noexcept {
    all_chunk_bytes += chunk->block->bytes;
    payload_bytes += chunk->payload_bytes;
    const auto place = std::upper_bound(
        chunks.begin(), chunks.end(), chunk,
        [](const Chunk* a, const Chunk* b) { return a->block->begin < b->block->begin; });
    const std::size_t rank = static_cast<std::size_t>(place - chunks.begin());
    chunks.insert(place, chunk);  // within the capacity: does not throw
    largest.insert(largest.begin() + static_cast<std::ptrdiff_t>(rank),
                   static_cast<std::int32_t>(chunk->runs.largest()));
    renumber(rank);
    chunk->listed = true;
  }
  void unlist(Chunk* chunk) noexcept {
    const auto rank = static_cast<std::ptrdiff_t>(chunk->rank);
    chunks.erase(chunks.begin() + rank);
    largest.erase(largest.begin() + rank);
    renumber(static_cast<std::size_t>(rank));
    all_chunk_bytes -= chunk->block->bytes;
    payload_bytes -= chunk->payload_bytes;
    chunk->listed = false;
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
  // Discards a chunk whose last payload was freed. Returns its block, which the caller frees
  // without the lock; null if it has none, or once its copy is complete.
  [[nodiscard]] Block* drop_chunk(PayloadChunk* chunk) noexcept {
    Chunk* const of_several = shared(chunk);
    if (of_several != nullptr && of_several->listed) unlist(of_several);
    if (tier != nullptr && !leave(*chunk)) return nullptr;
    Block* const block = chunk->block;
    if (of_several != nullptr) {
      put_metadata(of_several);
    } else {
      delete chunk;
    }
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
    if (chunk.listed) largest[chunk.rank] = static_cast<std::int32_t>(chunk.runs.largest());
  }

  // ---- chunk_moves.cpp ----
  static constexpr std::size_t kMostOnTheirWay = 2;  // a slow link moves less, and stalls no stream
  void link(PayloadChunk& chunk) noexcept;
  // Takes a dropped chunk off the list of all. False if collect() discards it, on its way.
  [[nodiscard]] bool leave(PayloadChunk& chunk) noexcept;
  bool send(PayloadChunk& chunk) noexcept;
  // Ends the way of a chunk whose copy is complete: returns its block for the caller to free, or
  // null if it stays after all.
  [[nodiscard]] Block* arrive(EventScope& scope, PayloadChunk& chunk) noexcept;
  enum class Brought : std::uint8_t { kYes, kNoMemory, kRefused };
  [[nodiscard]] Brought bring(EventScope& scope, PayloadChunk& chunk,
                              std::unique_lock<std::mutex>& lock) noexcept;

  PayloadTier* tier = nullptr;  // constant once there are payloads
  StreamOrder* order = nullptr;
  std::array<PayloadChunk*, kMostOnTheirWay> on_their_way{};
  PayloadChunk *oldest = nullptr, *newest = nullptr;  // of all chunks
  TierCounters counters;
};

}  // namespace pleat::allocator
