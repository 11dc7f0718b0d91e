// Dense storage for payloads: small payloads share chunks, chunks are blocks of the same memory,
// and a chunk goes back when its last payload is dropped. Large payloads are blocks themselves. A
// chunk belongs to one stream, like a block: what lies in it is written on that stream.
//
// kRequested counts the bytes of payloads, not of chunks. kActive counts whole chunks: they are in
// use. Lock order: arena, then the memory's.
#pragma once

#include <cstddef>
#include <memory>

#include "allocator/residency/block_memory.h"

namespace pleat::allocator {

struct PayloadSlot {
  std::byte* data = nullptr;  // 64-byte aligned
  std::size_t bytes = 0;      // requested
  void* chunk = nullptr;      // arena's own
  explicit operator bool() const noexcept { return data != nullptr; }
};

class PayloadArena {
 public:
  struct Options {
    // Payloads above half of a new chunk are blocks. Small chunks fill holes that large ones leave:
    // of 256 KiB to 4 MiB, half a MiB kept resident memory closest to live memory
    // (tools/bench/pool_bench.cpp).
    std::size_t chunk_bytes = 512u << 10;
    std::size_t granule_bytes = 256;
    // A new chunk has a quarter of what all chunks have by then, but at least chunk_bytes and at
    // most this. Above chunk_bytes where memory comes from an allocator that packs large blocks
    // better than many sizes.
    std::size_t most_chunk_bytes = 0;
  };
  PayloadArena(BlockMemory& memory, const Options& options);
  explicit PayloadArena(BlockMemory& memory);
  ~PayloadArena();
  PayloadArena(const PayloadArena&) = delete;
  PayloadArena& operator=(const PayloadArena&) = delete;

  // Room for `bytes` (> 0) that are written on `stream`; an empty slot if there is no memory.
  // Thread-safe, never throws.
  [[nodiscard]] PayloadSlot allocate(std::size_t bytes, StreamId stream = {}) noexcept;
  // Gives the tail beyond `bytes` (> 0) back; the data stays where it is.
  void shrink(PayloadSlot& slot, std::size_t bytes) noexcept;
  // Work that the slot's stream was given before may still use the slot. Work of other streams must
  // be over, or ordered before what the slot's stream is given from now on.
  void free(PayloadSlot& slot) noexcept;

  void lock_for_fork() noexcept;
  void unlock_after_fork() noexcept;
  [[nodiscard]] const char* check_invariants() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pleat::allocator
