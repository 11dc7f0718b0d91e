// BlockMemory is the interface of residency and the payload arena to the memory that blocks come
// from. The host's pool implements it. On a device whose work completes later, a block belongs to
// the stream it was allocated for.
//
// Threads: any thread can call every function; implementations never call back.
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

  // A block of at least `bytes` (> 0) for work on `stream`: work queued on the stream from now on
  // can use it. nullptr if memory is short.
  [[nodiscard]] virtual Block* allocate(std::size_t bytes, StreamId stream) noexcept = 0;
  // Like allocate(), for bytes that are kept and not worked on: packed closely, whatever its size.
  // The block's event names `owner`, the record whose payload goes there.
  [[nodiscard]] virtual Block* allocate_packed(std::size_t bytes, StreamId stream,
                                               RecordId owner) noexcept = 0;
  // A packed block whose owner counts its contents as requested piece by piece: requested == 0.
  [[nodiscard]] virtual Block* allocate_container(std::size_t bytes, StreamId stream) noexcept = 0;
  // Counts in `scope` a change of the requested bytes within a container, by its owner.
  virtual void count_requested(EventScope& scope, std::int64_t bytes) noexcept = 0;

  // The pointer is dangling afterwards. The memory is reused once its stream, and the streams of
  // note_use(), have completed the work queued before this call. Never fails.
  virtual void free(Block* block) noexcept = 0;
  // Shortens a block in use to `bytes` (> 0, <= its requested size). The tail is free for the
  // block's stream at once, so no other stream may use it at that time.
  virtual void shrink(Block* block, std::size_t bytes) noexcept = 0;

  // Records a use by `stream`, not the block's own. The work is queued before the block is freed.
  virtual void note_use(Block* block, StreamId stream) noexcept = 0;
  // True if note_use() was called for the block.
  [[nodiscard]] virtual bool used_elsewhere(const Block* block) const noexcept = 0;
  // Copies bytes between blocks, queued on `stream`.
  virtual void copy(void* to, const void* from, std::size_t bytes, StreamId stream) noexcept = 0;

  // The block in use that begins at `address`, nullptr if there is no such block. The caller must
  // make sure that the block is not freed meanwhile.
  [[nodiscard]] virtual Block* find(const void* address) const noexcept = 0;

  // Around fork(): locks the memory's mutex, the innermost of all.
  virtual void lock_for_fork() noexcept = 0;
  virtual void unlock_after_fork() noexcept = 0;
};

}  // namespace pleat::allocator
