// Dense storage for payloads: small payloads share chunks, chunks are blocks of the same pool, and
// a chunk goes back to the pool when its last payload is dropped. Large payloads are blocks
// themselves.
//
// kLive counts the bytes of payloads, not of chunks; kReserved counts whole chunks, for they are in
// use. Lock order: arena, then pool.
#pragma once

#include <cstddef>
#include <memory>

#include "allocator/host/pool.h"

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
    // Payloads above half of this are blocks. Small chunks fill holes that large ones leave: of 256
    // KiB to 4 MiB, half a MiB kept resident memory closest to live memory
    // (tools/bench/pool_bench.cpp).
    std::size_t chunk_bytes = 512u << 10;
    std::size_t granule_bytes = 256;
  };
  PayloadArena(Pool& pool, const Options& options);
  explicit PayloadArena(Pool& pool);
  ~PayloadArena();
  PayloadArena(const PayloadArena&) = delete;
  PayloadArena& operator=(const PayloadArena&) = delete;

  // Room for `bytes` (> 0); an empty slot if the pool cannot grow. Thread-safe, never throws.
  [[nodiscard]] PayloadSlot allocate(std::size_t bytes) noexcept;
  // Gives the tail beyond `bytes` (> 0) back; the data stays where it is.
  void shrink(PayloadSlot& slot, std::size_t bytes) noexcept;
  void free(PayloadSlot& slot) noexcept;

  void lock_for_fork() noexcept;
  void unlock_after_fork() noexcept;
  [[nodiscard]] const char* check_invariants() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pleat::allocator
