// Where the bytes of a saved block are, and when they move: tag -> release -> compress -> restore.
// Decides nothing about bits and knows nothing of tensors.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "allocator/event_sink.h"
#include "allocator/fork_gate.h"
#include "allocator/host/pool.h"
#include "allocator/residency/block_codec.h"
#include "allocator/residency/payload_arena.h"
#include "allocator/residency/pending_records.h"
#include "allocator/residency/record.h"
#include "allocator/statistics.h"

namespace pleat::allocator {

struct ResidencyOptions {
  bool compress = true;         // false: released blocks are held raw
  bool at_forward_end = false;  // hold raw, encode everything in forward_end()
  bool in_place = false;        // payload over the head of its own block
};

// Counts of what happened to records; relaxed atomics.
struct ResidencyCounters {
  std::atomic<std::uint64_t> tagged{0};
  std::atomic<std::uint64_t> released{0};
  std::atomic<std::uint64_t> encoded{0};
  std::atomic<std::uint64_t> encoded_in_place{0};
  // Stored as a function of another record's payload.
  std::atomic<std::uint64_t> worked_out{0}, worked_out_bytes{0};
  std::atomic<std::uint64_t> double_encodes{0};  // a record encoded twice: must stay 0
  std::atomic<std::uint64_t> held{0};
  std::atomic<std::uint64_t> kept{0};  // storage resized or swapped while saved
  std::atomic<std::uint64_t> restored{0};
  std::atomic<std::uint64_t> adopted{0};
  std::atomic<std::uint64_t> copied{0};   // bytes copied out, the block never came to free
  std::atomic<std::uint64_t> dropped{0};  // records gone
  std::atomic<std::uint64_t> dropped_unreleased{0};  // hooks gone before the storage was freed
  std::atomic<std::uint64_t> source_bytes{0};        // of encoded blocks and of those worked out
  std::atomic<std::uint64_t> payload_bytes{0};       // of their payloads
  std::atomic<std::uint64_t> encode_ns{0};
  std::atomic<std::uint64_t> decode_ns{0};
  std::atomic<std::uint64_t> decoded_bytes{0};
};

class Residency {
 public:
  Residency(Pool& pool, PayloadArena& arena, BlockCodec& codec, const ResidencyOptions& options,
            EventSink* sink = nullptr);
  Residency(const Residency&) = delete;
  Residency& operator=(const Residency&) = delete;

  // The free of every block of the pool comes through here. An untagged block goes straight back; a
  // saved block whose storage is gone is compressed (or held) first. Any thread; never throws.
  void release(Block* block) noexcept {
    if (block->record.load(std::memory_order_acquire) == nullptr) [[likely]] {
      pool_.free(block);
    } else {
      release_saved(block);
    }
  }

  // Runs `body(Record*)` with the record linked to `block` (nullptr if none) under the link lock.
  // The body may merge ranges and choice into a tagged record, call add_reference(), or return a
  // new record to link. Returns what the body returned.
  template <class Body>
  Record* with_linked(Block* block, Body&& body) {
    const std::lock_guard<std::mutex> guard(link_mutex_);
    Record* const present = block->record.load(std::memory_order_relaxed);
    Record* const result = body(present);
    if (result != nullptr && result != present) {
      link_new(block, result);
    }
    return result;
  }
  // Only inside with_linked().
  void add_reference(Record& record) noexcept { ++record.references_; }

  // The bytes of a tagged record are `function` of origin's, element by element, unless the record
  // knows better when it is encoded. The first that is set stays; in vain unless origin has a
  // payload of its own in the arena by now. Both must be referred to by the caller, who holds
  // neither's mutex.
  void set_origin(Record& record, Record& origin, std::uint64_t function) noexcept;

  // Gives up one reference; the last one drops payload, held block and the record itself. `body`
  // runs before, under the link lock.
  template <class Body>
  void drop(Record* record, Body&& body) noexcept {
    std::unique_lock<std::mutex> link(link_mutex_);
    body();
    drop_locked(record, std::move(link));
  }
  void drop(Record* record) noexcept {
    drop(record, [] {});
  }

  // Holds a record's mutex, and fork() off meanwhile. One at a time in a thread.
  class RecordGuard {
   public:
    RecordGuard(Residency& residency, Record& record)
        : section_(residency.fork_gate_), guard_(record.mutex) {}

   private:
    ForkGate::Section section_;
    std::lock_guard<std::mutex> guard_;
  };

  // Makes the bytes of a released record available in a block of its own, which the caller wraps
  // into a storage whose free is release(). The caller has a RecordGuard. nullptr if there is no
  // memory for it (status kOutOfMemory) or the payload is damaged.
  enum class RestoreStatus : std::uint8_t { kOk, kOutOfMemory, kDamaged, kWrongState };
  [[nodiscard]] Block* restore_locked(Record& record, StreamId stream,
                                      RestoreStatus* status) noexcept;

  // As restore_locked(), into a block that the record knows nothing of: whoever gets it may keep it
  // and write to it. A raw block stays the record's own.
  [[nodiscard]] Block* copy_locked(Record& record, StreamId stream, RestoreStatus* status) noexcept;

  // How many hooks have the record, the caller's among them.
  [[nodiscard]] std::uint32_t hooks(const Record& record) noexcept;
  // True while other hooks than the caller's exist.
  [[nodiscard]] bool shared(const Record& record) noexcept { return hooks(record) > 1; }

  // The whole-forward signal: encodes what is pending, in release order.
  void forward_end() noexcept;
  // Moves the clock that Record::wait_until is on, and encodes what is due. Any thread.
  void advance() noexcept {
    // Two threads may count one: it measures a wait, roughly.
    clock_.store(clock_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    if (!pending_.empty()) [[unlikely]] {
      encode_due();
    }
  }
  [[nodiscard]] std::uint64_t clock() const noexcept {
    return clock_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] bool any_pending() const noexcept { return !pending_.empty(); }
  [[nodiscard]] bool forward_end_wanted() const noexcept {
    return at_forward_end_.load(std::memory_order_relaxed);
  }

  // A forked child or a process past exit: from now on nothing is encoded.
  void stop_encoding() noexcept { stopped_.store(true, std::memory_order_relaxed); }
  [[nodiscard]] bool stopped() const noexcept { return stopped_.load(std::memory_order_relaxed); }

  void set_options(const ResidencyOptions& options) noexcept;
  [[nodiscard]] const ResidencyCounters& counters() const noexcept { return counters_; }
  [[nodiscard]] Pool& pool() noexcept { return pool_; }

  // Waits for running encodes and restores, but not for ever: see ForkGate.
  void lock_for_fork() noexcept;
  void unlock_after_fork(ForkSide side) noexcept;

 private:
  void link_new(Block* block, Record* record) noexcept;
  void drop_locked(Record* record, std::unique_lock<std::mutex> link) noexcept;
  void count_raw(Record& record, bool counted) noexcept;
  void release_saved(Block* block) noexcept;
  void release_restored(Record& record, Block* block) noexcept;
  void release_original(Record& record, Block* block, bool kept) noexcept;
  // Encodes record.block; true if the block is ours no more. record.mutex held.
  bool encode_locked(Record& record) noexcept;
  void encode_due() noexcept;
  // The first that is pending and due, with a reference of ours; nullptr if there is none.
  Record* take_pending(std::uint64_t due) noexcept;
  void encode_pending(std::uint64_t due) noexcept;
  bool follows_from_origin(Record& record) noexcept;
  bool encode_to_arena(Record& record, const EncodeRequest& request, PayloadSlot slot) noexcept;
  bool encode_over_head(Record& record, const EncodeRequest& request) noexcept;
  bool decode_locked(const Record& record, Block* target, StreamId stream) noexcept;
  void emit(EventKind kind, const Record& record, const Block* block, std::size_t bytes) noexcept;

  Pool& pool_;
  PayloadArena& arena_;
  BlockCodec& codec_;
  EventSink* sink_;
  std::atomic<bool> compress_, at_forward_end_, in_place_;
  std::atomic<bool> stopped_{false};
  ForkGate fork_gate_;      // around Record::mutex
  std::mutex link_mutex_;   // Block::record and Record::references_
  PendingRecords pending_;  // for forward_end() and advance()
  std::atomic<std::uint64_t> clock_{0};
  ResidencyCounters counters_;
};

}  // namespace pleat::allocator
