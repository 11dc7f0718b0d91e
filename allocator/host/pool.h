// Pool cuts blocks from segments of the host's memory. A block takes the place of a block of its
// size that was just freed, else the best fit on resident pages. Free runs coalesce, metadata are
// out of band, and the free pages kept resident are bounded. The pool manages blocks and pages
// only; residency.h manages their contents.
//
// Threads: any. One mutex guards the structure; owns() and find() take no lock.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "allocator/blocks/block.h"
#include "allocator/event_sink.h"
#include "allocator/host/device.h"
#include "allocator/ids.h"
#include "allocator/statistics.h"
#include "allocator/store/block_memory.h"

namespace pleat::allocator {

struct PoolOptions {
  std::size_t granule_bytes = 4096;  // blocks are multiples of this; a power of two
  // If addresses are free: the first segment can grow in place to this size, in steps of
  // extend_bytes; each next one to twice as much, up to four times physical memory. 0: 4 GiB.
  std::size_t reserve_bytes = 0;
  std::size_t extend_bytes = 64u << 20;
  std::size_t growth_bytes = 256u << 20;  // size of segments where addresses are limited
  // Resident bytes can exceed the recent high-water mark of live bytes by this share plus this many
  // bytes before free pages are released. See docs/design.md for the measurement behind it.
  double resident_slack_fraction = 0.01;
  std::size_t resident_slack_bytes = 1u << 20;
  // "Recent" is the last four epochs of this length. It doubles (up to 16 times) whenever pages
  // released because of age are soon needed again, so that steps of many seconds do not refault.
  std::uint64_t epoch_ns = 1'000'000'000;
  // If the device joins pages: the largest share of elapsed time spent on joining small pages.
  double join_share = 0.03;
  // If the device joins pages: blocks of unknown density, of up to a third of this size, get huge
  // pages at once, until this many bytes were handed out so. This spares a small job page faults; a
  // job that writes little of its blocks wastes no more than this.
  std::size_t guessed_bytes = 48u << 20;
};

class Pool final : public BlockMemory {
 public:
  Pool(Device& device, const PoolOptions& options, Statistics& statistics);
  ~Pool() override;  // releases every segment; blocks still in use become invalid
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // A block of at least `bytes` (> 0), aligned to the granule; nullptr if there is no room for it.
  [[nodiscard]] Block* allocate(std::size_t bytes, StreamId stream = {}) noexcept override;
  [[nodiscard]] Block* allocate_packed(std::size_t bytes, StreamId stream = {},
                                       RecordId owner = {}) noexcept override;
  [[nodiscard]] Block* allocate_container(std::size_t bytes,
                                          StreamId stream = {}) noexcept override;
  void count_requested(EventScope& scope, std::int64_t bytes) noexcept override;

  // Frees a block. The pointer dangles afterwards. Never fails.
  void free(Block* block) noexcept override;

  // Shortens a block in use to `bytes` (> 0, <= its requested size). The tail becomes free at once.
  void shrink(Block* block, std::size_t bytes) noexcept override;

  // The host's work is complete when a call returns.
  void note_use(Block* /*block*/, StreamId /*stream*/) noexcept override {}
  [[nodiscard]] bool used_elsewhere(const Block* /*block*/) const noexcept override {
    return false;
  }
  void copy(void* to, const void* from, std::size_t bytes, StreamId stream) noexcept override;

  // True if the address is inside one of the pool's segments. Lock-free, a handful of instructions.
  [[nodiscard]] bool owns(const void* address) const noexcept;

  // The block in use that begins at `address`, nullptr if there is no such block. Lock-free; the
  // caller must make sure that the block is not freed meanwhile.
  [[nodiscard]] Block* find(const void* address) const noexcept override;

  // Emits an event for each present segment, as if it were reserved now: for a sink attached later.
  // A segment that is reserved meanwhile can appear twice.
  void tell_segments() noexcept;

  // Releases every whole free page. Returns the bytes released.
  std::size_t trim() noexcept;

  // Memory is short outside of the pool. Under a limit on the data of the process, releases every
  // free page, and no free range counts against the limit from now on. False if there is none.
  bool make_room_for_others() noexcept;

  // Holds the pool's lock over fork(); unlock in the parent and in the child.
  void lock_for_fork() noexcept override;
  void unlock_after_fork() noexcept override;

  // For tests. Walks the whole structure and checks three facts: blocks and free runs tile the
  // segments, no two free runs touch, and the statistics equal recomputed sums. Returns a message
  // about the first fault, an empty string if all is consistent.
  [[nodiscard]] const char* check_invariants() const;

  // For tests: number of free runs that the searches for places and for pages have visited so far.
  [[nodiscard]] std::size_t runs_looked_at() const noexcept;

  [[nodiscard]] Device& device() const noexcept;
  [[nodiscard]] Statistics& statistics() const noexcept override;
  [[nodiscard]] EventSource& events() const noexcept override;

  // Every block, in address order; for reports and snapshots. Called with the lock held.
  struct BlockView {
    const void* begin;
    std::size_t bytes;
    std::size_t requested;
    bool in_use;
    bool saved;
  };
  using Visitor = void (*)(void* context, const BlockView& view);
  void visit_blocks(Visitor visitor, void* context) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pleat::allocator
