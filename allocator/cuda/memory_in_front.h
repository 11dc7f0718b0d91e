// Blocks over memory that another allocator hands out: that in force on a CUDA device. A block is
// known from the moment a storage on it is saved, or when it is ours. All else is that allocator's:
// which memory serves again, and when.
#pragma once

#include <atomic>
#include <cstddef>
#include <mutex>
#include <unordered_map>

#include "allocator/cuda/driver.h"
#include "allocator/cuda/raw_memory.h"
#include "allocator/residency/block_memory.h"

namespace pleat::allocator::cuda {

class MemoryInFront;

// The blocks of all devices, by address: no two devices have one in common. Innermost lock.
class BlockTable {
 public:
  struct Found {
    Block* block = nullptr;
    MemoryInFront* memory = nullptr;
  };
  // Whoever asks keeps the block from being freed meanwhile.
  [[nodiscard]] Found find(const void* pointer) const noexcept;
  // The block there, or a new one. Null if there is no memory for it.
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

// Statistics: kRequested counts the blocks that are known, kActive too (the allocator beneath tells
// nobody how it rounds); its own figures say the rest.
class MemoryInFront final : public BlockMemory {
 public:
  // All outlive this. Makes no CUDA call.
  MemoryInFront(DeviceIndex device, RawMemory& raw, BlockTable& blocks, const Driver& driver,
                DriverLife& life) noexcept
      : raw_(raw), blocks_(blocks), driver_(driver), life_(life), events_(device) {}

  // The block of a storage that lies at `pointer`, allocated by the allocator in force for
  // `stream`. Null if there is no memory for it.
  [[nodiscard]] Block* adopt(void* pointer, std::size_t bytes, StreamId stream) noexcept;

  [[nodiscard]] Statistics& statistics() const noexcept override { return statistics_; }
  [[nodiscard]] EventSource& events() const noexcept override { return events_; }
  [[nodiscard]] Block* allocate(std::size_t bytes, StreamId stream) noexcept override;
  [[nodiscard]] Block* allocate_packed(std::size_t bytes, StreamId stream) noexcept override;
  [[nodiscard]] Block* allocate_container(std::size_t bytes, StreamId stream) noexcept override;
  void count_requested(EventScope& scope, std::int64_t bytes) noexcept override;
  void free(Block* block) noexcept override;
  // The memory beneath stays whole; only what counts as requested gets less.
  void shrink(Block* block, std::size_t bytes) noexcept override;
  void note_use(Block* block, StreamId stream) noexcept override;
  [[nodiscard]] bool used_elsewhere(const Block* block) const noexcept override;
  void copy(void* to, const void* from, std::size_t bytes, StreamId stream) noexcept override;
  [[nodiscard]] Block* find(const void* address) const noexcept override;
  void lock_for_fork() noexcept override {}  // the table's owner sees to it
  void unlock_after_fork() noexcept override {}

 private:
  [[nodiscard]] Block* take(std::size_t bytes, std::size_t requested, StreamId stream) noexcept;
  void count(const Block& block, EventKind kind, std::int64_t sign) noexcept;
  [[nodiscard]] bool may_keep(StreamId stream) noexcept;  // whether payloads may be allocated now

  RawMemory& raw_;
  BlockTable& blocks_;
  const Driver& driver_;
  DriverLife& life_;
  mutable Statistics statistics_;
  mutable EventSource events_;
  std::atomic<std::uint64_t> last_id_{0};
  // After memory was not to be had, the allocator beneath has flushed its caches for nothing: no
  // payload is tried again before something was freed.
  std::atomic<bool> short_{false};
};

}  // namespace pleat::allocator::cuda
