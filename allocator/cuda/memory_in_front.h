// MemoryInFront provides blocks over memory that the allocator in force on a CUDA device hands out.
// A block is registered when Pleat allocates it, or when a storage in it is saved. The allocator
// beneath decides which memory it reuses, and when.
#pragma once

#include <atomic>
#include <cstddef>
#include <mutex>
#include <unordered_map>

#include "allocator/cuda/driver.h"
#include "allocator/cuda/raw_memory.h"
#include "allocator/store/block_memory.h"

namespace pleat::allocator::cuda {

class MemoryInFront;

// The blocks of all devices, by address; addresses are unique across devices. Innermost lock.
class BlockTable {
 public:
  struct Found {
    Block* block = nullptr;
    MemoryInFront* memory = nullptr;
  };
  // The caller must keep the block from being freed while it uses the result.
  [[nodiscard]] Found find(const void* pointer) const noexcept;
  // The block at `pointer`, or a new one. Null if memory is short.
  [[nodiscard]] Block* find_or_add(void* pointer, MemoryInFront& memory, bool& is_new) noexcept;
  void erase(const void* pointer) noexcept;
  [[nodiscard]] std::size_t size() const noexcept { return size_.load(std::memory_order_relaxed); }

  void lock_for_fork() noexcept { mutex_.lock(); }
  void unlock_after_fork() noexcept { mutex_.unlock(); }

 private:
  struct Entry {
    Block block;
    MemoryInFront* memory = nullptr;
  };
  mutable std::mutex mutex_;
  std::unordered_map<const void*, Entry> entries_;  // its nodes do not move
  std::atomic<std::size_t> size_{0};
};

// Statistics: kRequested and kActive both count the registered blocks by requested bytes, because
// the allocator beneath does not report its rounding; its own statistics cover the rest.
class MemoryInFront final : public BlockMemory {
 public:
  // All arguments outlive this object. Makes no CUDA call.
  MemoryInFront(DeviceIndex device, RawMemory& raw, BlockTable& blocks, const Driver& driver,
                DriverLife& life) noexcept
      : raw_(raw), blocks_(blocks), driver_(driver), life_(life), events_(device) {}

  // Registers the block of a storage at `pointer`, which the allocator in force allocated for
  // `stream`. Null if memory is short.
  [[nodiscard]] Block* adopt(void* pointer, std::size_t bytes, StreamId stream) noexcept;

  [[nodiscard]] Statistics& statistics() const noexcept override { return statistics_; }
  [[nodiscard]] EventSource& events() const noexcept override { return events_; }
  [[nodiscard]] Block* allocate(std::size_t bytes, StreamId stream) noexcept override;
  [[nodiscard]] Block* allocate_packed(std::size_t bytes, StreamId stream,
                                       RecordId owner) noexcept override;
  [[nodiscard]] Block* allocate_container(std::size_t bytes, StreamId stream) noexcept override;
  void count_requested(EventScope& scope, std::int64_t bytes) noexcept override;
  void free(Block* block) noexcept override;
  // The memory beneath stays whole; only the requested bytes shrink.
  void shrink(Block* block, std::size_t bytes) noexcept override;
  void note_use(Block* block, StreamId stream) noexcept override;
  [[nodiscard]] bool used_elsewhere(const Block* block) const noexcept override;
  void copy(void* to, const void* from, std::size_t bytes, StreamId stream) noexcept override;
  [[nodiscard]] Block* find(const void* address) const noexcept override;
  void lock_for_fork() noexcept override {}  // the table's owner locks it
  void unlock_after_fork() noexcept override {}

 private:
  [[nodiscard]] Block* take(std::size_t bytes, std::size_t requested, StreamId stream,
                            RecordId owner = {}) noexcept;
  void count(const Block& block, EventKind kind, std::int64_t sign, RecordId owner = {}) noexcept;
  [[nodiscard]] bool may_keep(StreamId stream) noexcept;  // whether payloads may be allocated now

  RawMemory& raw_;
  BlockTable& blocks_;
  const Driver& driver_;
  DriverLife& life_;
  mutable Statistics statistics_;
  mutable EventSource events_;
  std::atomic<std::uint64_t> last_id_{0};
  // Set when the allocator beneath fails: it has then flushed its caches without success. Payloads
  // are not tried again until a block has been freed.
  std::atomic<bool> short_{false};
};

}  // namespace pleat::allocator::cuda
