// PayloadArena packs payloads densely: small payloads share chunks, large payloads are blocks
// themselves. Chunks are blocks of the same memory; dropping the last payload of a chunk frees the
// chunk. A chunk belongs to one stream, like a block: its payloads are written on that stream.
//
// kRequested counts the bytes of payloads, not of chunks. kActive counts whole chunks: they are in
// use. Lock order: arena, then the memory's.
#pragma once

#include <cstddef>
#include <memory>

#include "allocator/store/block_memory.h"
#include "allocator/store/payload_tier.h"

namespace pleat::allocator {

// A block that holds payloads. Slots name a chunk and no address, so that a chunk can move.
struct PayloadChunk {
  // kInPlace: the block that the payload was encoded from, which the arena owns from then on.
  enum class Kind : std::uint8_t { kShared, kOwnBlock, kInPlace };
  Kind kind = Kind::kShared;
  Block* block = nullptr;  // null: the bytes are in the tier
  StreamId stream{};
  // Moves; guarded by the arena's lock. `room` without `block`: in the tier. With it: on its way.
  void* room = nullptr;
  EventHandle copied{};          // after the copy out, on its way
  std::size_t block_bytes = 0;   // in the tier
  std::uint32_t pins = 0;        // while not 0, it does not go
  bool dropped = false;          // its last payload was freed on its way
  PayloadChunk* next = nullptr;  // of all chunks, the oldest first; only with a tier
  PayloadChunk* previous = nullptr;
};

struct PayloadSlot {
  PayloadChunk* chunk = nullptr;
  std::size_t begin = 0;  // in the chunk: 64-byte aligned
  std::size_t bytes = 0;  // requested
  explicit operator bool() const noexcept { return chunk != nullptr; }
  // While the slot is pinned.
  [[nodiscard]] std::byte* address() const noexcept { return chunk->block->begin + begin; }
};

class PayloadArena {
 public:
  struct Options {
    // Payloads above half of a new chunk become blocks. Small chunks fill the holes that large ones
    // leave: among sizes from 256 KiB to 4 MiB, half a MiB kept resident memory closest to live
    // memory (tools/bench/pool_bench.cpp).
    std::size_t chunk_bytes = 512u << 10;
    std::size_t granule_bytes = 256;
    // A new chunk has a quarter of the bytes of all chunks so far, but at least chunk_bytes and at
    // most this. Set above chunk_bytes for an allocator that packs large blocks better than many
    // sizes.
    std::size_t most_chunk_bytes = 0;
  };
  PayloadArena(BlockMemory& memory, const Options& options);
  explicit PayloadArena(BlockMemory& memory);
  ~PayloadArena();
  PayloadArena(const PayloadArena&) = delete;
  PayloadArena& operator=(const PayloadArena&) = delete;

  // Room for `bytes` (> 0) written on `stream`, pinned; empty if memory is short. The event of the
  // room names `owner`, the record whose payload goes there. Thread-safe, never throws.
  [[nodiscard]] PayloadSlot allocate(std::size_t bytes, StreamId stream = {},
                                     RecordId owner = {}) noexcept;
  // Frees the tail beyond `bytes` (> 0); the data stays in place.
  void shrink(PayloadSlot& slot, std::size_t bytes) noexcept;
  // Earlier work on the slot's stream can still use the slot. Work of other streams must be
  // complete, or ordered before later work on the slot's stream.
  void free(PayloadSlot& slot) noexcept;
  // A pinned slot over the head of `block`, which the caller gives up; empty if memory is short. If
  // no payload is written there, disown() gives the block back.
  [[nodiscard]] PayloadSlot adopt(Block* block) noexcept;
  void disown(PayloadSlot& slot) noexcept;
  // Writes the slot's place, block and address into an event.
  void describe(const PayloadSlot& slot, Event& event) const noexcept;

  // ---- chunks in a tier (chunk_moves.cpp); without one, these have no effect ----
  // Both outlive the arena. Before the first payload.
  void attach(PayloadTier& tier, StreamOrder& order) noexcept;
  // The address of the slot for work that the caller queues on `stream` before unpin(). A chunk in
  // the tier comes back, and others go if memory is short. Null: there is no memory, or the stream
  // is captured.
  [[nodiscard]] std::byte* pin(const PayloadSlot& slot, StreamId stream) noexcept;
  void unpin(const PayloadSlot& slot) noexcept;
  // Queues the way of the slot's chunk to the tier, if the tier takes it. collect() frees its block
  // once the bytes are there.
  void send(const PayloadSlot& slot) noexcept;
  void collect() noexcept;
  // Sends the oldest chunks until `bytes` are free; waits for the copies. Returns the bytes freed.
  std::size_t demote(std::size_t bytes) noexcept;
  [[nodiscard]] const TierCounters& tier_counters() const noexcept;

  void lock_for_fork() noexcept;
  void unlock_after_fork() noexcept;
  [[nodiscard]] const char* check_invariants() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pleat::allocator
