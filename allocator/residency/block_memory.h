// What residency and the payload arena need of the memory that blocks come from. The host's pool is
// one; on a device whose work completes later, a block belongs to the stream it was allocated for.
//
// Threads: every function may be called from any thread; none calls back.
#pragma once

#include <cstddef>
#include <cstdint>

#include "allocator/blocks/block.h"
#include "allocator/event_sink.h"
#include "allocator/ids.h"
#include "allocator/statistics.h"

namespace pleat::allocator {

class BlockMemory {
 public:
  virtual ~BlockMemory() = default;

  [[nodiscard]] virtual Statistics& statistics() const noexcept = 0;
  [[nodiscard]] virtual EventSource& events() const noexcept = 0;

  // A block of at least `bytes` (> 0) for work on `stream`: what the stream is given from now on
  // may use it. nullptr if there is no memory.
  [[nodiscard]] virtual Block* allocate(std::size_t bytes, StreamId stream) noexcept = 0;
  // As allocate(), for what is kept and not worked on: lies close to others whatever its size.
  [[nodiscard]] virtual Block* allocate_packed(std::size_t bytes, StreamId stream) noexcept = 0;
  // Such a block whose contents its owner counts as requested piece by piece: requested == 0.
  [[nodiscard]] virtual Block* allocate_container(std::size_t bytes, StreamId stream) noexcept = 0;
  // The owner of a container counts in `scope` by how much the requested bytes changed.
  virtual void count_requested(EventScope& scope, std::int64_t bytes) noexcept = 0;

  // The pointer is dangling afterwards. The memory is used again once its stream, and those of
  // note_use(), have done what they were given before this call. Never fails.
  virtual void free(Block* block) noexcept = 0;
  // Shortens a block in use to `bytes` (> 0, <= its requested size). The tail is free for its
  // stream at once: nobody else may be using it.
  virtual void shrink(Block* block, std::size_t bytes) noexcept = 0;

  // Says that `stream`, which is not the block's own, uses the block. Its work is queued before the
  // block is freed.
  virtual void note_use(Block* block, StreamId stream) noexcept = 0;
  // True if note_use() has named a stream for the block.
  [[nodiscard]] virtual bool used_elsewhere(const Block* block) const noexcept = 0;
  // Copies bytes between blocks, queued on `stream`.
  virtual void copy(void* to, const void* from, std::size_t bytes, StreamId stream) noexcept = 0;

  // The block in use that begins at `address`, nullptr if none does. The caller must know that the
  // block cannot be freed meanwhile.
  [[nodiscard]] virtual Block* find(const void* address) const noexcept = 0;

  // Around fork(): its lock, the innermost of all.
  virtual void lock_for_fork() noexcept = 0;
  virtual void unlock_after_fork() noexcept = 0;
};

}  // namespace pleat::allocator
