// Residency is the lifecycle of saved blocks: tag -> release -> store -> restore -> drop. It
// decides when a block is stored and who still needs it; the store (allocator/store/store.h) has
// the bytes. It does not choose bits, and it does not depend on tensors or on the kind of memory
// that provides the blocks.
//
// Streams: a pack names the stream on which the block was in use. The block is encoded on the
// stream of its last pack, and restored on the stream of the caller. Where these differ, the later
// stream waits for the earlier, and the host does not wait. On the host all work is on one stream.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "allocator/event_sink.h"
#include "allocator/fork_gate.h"
#include "allocator/lifecycle/record.h"
#include "allocator/lifecycle/waiting_records.h"
#include "allocator/statistics.h"
#include "allocator/store/block_memory.h"
#include "allocator/store/payload_arena.h"
#include "allocator/store/store.h"
#include "allocator/store/stream_order.h"

namespace pleat::allocator {

struct ResidencyOptions {
  StoreForm form = StoreForm::kPayload;
  // Limits as a fraction 1/n of the peak of requested bytes so far. The first is for all records
  // that wait for a proof or a verdict, the second for those that wait for a verdict. Beyond it the
  // oldest wait ends, unless only two such records are left. 0: no limit.
  std::size_t waiting_part_of_peak = 0, judged_part_of_peak = 0;
};

// Counts of the actions on records; relaxed atomics.
struct ResidencyCounters {
  std::atomic<std::uint64_t> tagged{0};
  std::atomic<std::uint64_t> released{0};
  std::atomic<std::uint64_t> encoded{0};
  std::atomic<std::uint64_t> encoded_in_place{0};
  std::atomic<std::uint64_t> not_in_place{0};  // elsewhere, although StoreForm::kInPlace
  // Stored as a function of another record's payload.
  std::atomic<std::uint64_t> recomputed{0}, recomputed_bytes{0};
  std::atomic<std::uint64_t> held{0};
  std::atomic<std::uint64_t> kept{0};    // storage resized or swapped while saved
  std::atomic<std::uint64_t> queued{0};  // encodes whose verdict the record had to wait for
  std::atomic<std::uint64_t> restored{0};
  std::atomic<std::uint64_t> adopted{0};
  std::atomic<std::uint64_t> copied{0};              // copies of bytes whose block was not freed
  std::atomic<std::uint64_t> dropped{0};             // records discarded
  std::atomic<std::uint64_t> dropped_unreleased{0};  // hooks gone before the storage was freed
  std::atomic<std::uint64_t> source_bytes{0};        // bytes of encoded and recomputed blocks
  std::atomic<std::uint64_t> payload_bytes{0};       // bytes of their payloads
  std::atomic<std::uint64_t> encode_ns{0};
  std::atomic<std::uint64_t> decode_ns{0};
  std::atomic<std::uint64_t> decoded_bytes{0};
};

class Residency {
 public:
  Residency(BlockMemory& memory, StreamOrder& order, PayloadArena& arena, BlockCodec& codec,
            const ResidencyOptions& options);
  Residency(const Residency&) = delete;
  Residency& operator=(const Residency&) = delete;

  // Every block of the memory is freed through this function. An untagged block is freed at once; a
  // saved block whose storage is gone is compressed (or held) first. Any thread; never throws.
  void release(Block* block) noexcept {
    if (block->record.load(std::memory_order_acquire) == nullptr) [[likely]] {
      memory_.free(block);
    } else {
      release_saved(block);
    }
  }

  // Runs `body(Record*)` with the record linked to `block` (nullptr if none) under the link lock.
  // The body can merge ranges into a tagged record, call add_reference(), or return a
  // new record to link; it takes no lock. Returns the body's result. The call is a pack: the block
  // is in use on `stream`.
  template <class Body>
  Record* with_linked(Block* block, StreamId stream, Body&& body) {
    EventScope scope(memory_.events(), memory_.statistics(), EventScope::Begin::kAlways);
    const std::lock_guard<std::mutex> guard(link_mutex_);
    Record* const present = block->record.load(std::memory_order_relaxed);
    Record* const result = body(present);
    if (result != nullptr) {
      if (result != present) link_new(scope, block, result);
      note_pack(*result, block, stream);
    }
    return result;
  }
  // Runs `body()`, which takes no lock, under the link lock, to change fields that it guards.
  template <class Body>
  void under_link_lock(Body&& body) {
    const std::lock_guard<std::mutex> guard(link_mutex_);
    body();
  }
  // Only inside with_linked() and under_link_lock(), by a caller with a reference to the record.
  void add_reference(Record& record) noexcept { ++record.references_; }

  // Lets `record`, tagged and not released yet, be recomputed: its bytes are `function` of the
  // bytes of `argument`, element by element. Record::decide() and the codec make the final decision
  // when the block is released. No effect if the record has an argument, or `argument` no payload
  // of its own apart from its block by now. The caller holds references to both and neither's
  // mutex.
  void set_argument(Record& record, Record& argument, std::uint64_t function) noexcept;

  // Ends the wait of a record for its proof: a released record is encoded now.
  // Record::waits_for() must already return kNone. Any thread with a reference; can be repeated.
  void start(Record& record) noexcept;

  // Gives up one reference; the last one frees payload, held block and the record itself. `body`
  // runs first, under the link lock.
  template <class Body>
  void drop(Record* record, Body&& body) noexcept {
    EventScope scope(memory_.events(), memory_.statistics(), EventScope::Begin::kAlways);
    std::unique_lock<std::mutex> link(link_mutex_);
    body();
    drop_locked(record, std::move(link), scope);
  }
  void drop(Record* record) noexcept {
    drop(record, [] {});
  }

  // Holds a record's mutex once no thread encodes the record, and keeps fork() out meanwhile. A
  // thread must hold at most one guard.
  class RecordGuard {
   public:
    RecordGuard(Residency& residency, Record& record)
        : scope_(residency.memory_.events(), residency.memory_.statistics(),
                 EventScope::Begin::kAlways),
          section_(residency.fork_gate_),
          lock_(record.mutex) {
      while (record.state.load(std::memory_order_relaxed) == RecordState::kStoring) [[unlikely]] {
          lock_.unlock();
          record.state.wait(RecordState::kStoring, std::memory_order_acquire);
          lock_.lock();
        }
    }

   private:
    friend class Residency;
    EventScope scope_;
    ForkGate::Section section_;
    std::unique_lock<std::mutex> lock_;
  };

  // Makes the bytes of a released record available for work on `stream`, in a block of its own,
  // which the caller wraps into a storage whose free is release(). nullptr if memory is short
  // (status kOutOfMemory) or the payload is damaged.
  //   spare  if given, the block to restore into, of record.bytes for `stream`; the call takes it
  //   if it needs a block. If it needs one and *spare is null, the status is kNeedsBlock, and the
  //   caller retries with a block. The caller allocates without the record's mutex, because an
  //   allocation can take other locks. If `spare` is null, this function allocates.
  //   reading  the bytes that a payload restores to; an adopted block keeps its own
  enum class RestoreStatus : std::uint8_t { kOk, kOutOfMemory, kDamaged, kWrongState, kNeedsBlock };
  [[nodiscard]] Block* restore_locked(RecordGuard& guard, Record& record, StreamId stream,
                                      const Reading& reading, RestoreStatus* status,
                                      Block** spare = nullptr) noexcept;
  // False if the live restored storage cannot be used on `stream` as well, but needs another
  // restore.
  [[nodiscard]] bool may_share_restored_locked(RecordGuard& guard, Record& record,
                                               StreamId stream) noexcept;
  // Records that the live restored storage is used on `stream` as well.
  void share_restored_locked(RecordGuard& guard, Record& record, StreamId stream) noexcept;

  // Like restore_locked(), into a block that the record does not track: the receiver can keep it
  // and write to it. A raw block stays the record's own.
  [[nodiscard]] Block* copy_locked(RecordGuard& guard, Record& record, StreamId stream,
                                   const Reading& reading, RestoreStatus* status,
                                   Block** spare = nullptr) noexcept;

  // Where the bytes of a released record are; a lossy encode in flight is waited for. Complete in
  // the order of the record's stream; valid while the guard lives. Nothing: in Record::restored.
  [[nodiscard]] const Stored& stored_locked(RecordGuard& guard, Record& record) noexcept;
  // The payload of stored_locked(), pinned for work on `stream`. Without data: there is none, or no
  // memory to bring it back.
  [[nodiscard]] PinnedPayload pinned_locked(RecordGuard& guard, Record& record,
                                            StreamId stream) noexcept;

  // Number of hooks that refer to the record, the caller's included.
  [[nodiscard]] std::uint32_t hooks(const Record& record) noexcept;
  // True while other hooks in addition to the caller's exist.
  [[nodiscard]] bool shared(const Record& record) noexcept { return hooks(record) > 1; }

  // The whole-forward signal: encodes the records that wait for it, in release order.
  void forward_end() noexcept;
  // Collects arrived verdicts, and ends waits that take too much memory. Called often, by any
  // thread.
  void advance() noexcept {
    if (!waiting_.empty()) [[unlikely]] {
      collect_verdicts();
      keep_within_bound();
    }
  }
  [[nodiscard]] bool any_waiting() const noexcept { return !waiting_.empty(); }
  // Collects the verdicts that have arrived. Does not wait.
  void collect_verdicts() noexcept;
  // If memory is short by `bytes`, in this order until as many are free: collects and awaits
  // verdicts, encodes the records that wait, sends payloads to the tier. True if it freed any, so
  // that the caller tries again; false once all of these are done.
  bool make_room(std::size_t bytes) noexcept;

  // For a forked child or a process past exit: from now on no block is encoded.
  void stop_encoding() noexcept { stopped_.store(true, std::memory_order_relaxed); }
  [[nodiscard]] bool stopped() const noexcept { return stopped_.load(std::memory_order_relaxed); }

  void set_options(const ResidencyOptions& options) noexcept;
  [[nodiscard]] const ResidencyCounters& counters() const noexcept { return counters_; }
  [[nodiscard]] BlockMemory& memory() noexcept { return memory_; }
  [[nodiscard]] const WaitingRecords& waiting() const noexcept { return waiting_; }

  // Waits for running encodes and restores, but not for ever: see ForkGate.
  void lock_for_fork() noexcept;
  void unlock_after_fork(ForkSide side) noexcept;

 private:
  // ---- residency.cpp ----
  void link_new(EventScope& scope, Block* block, Record* record) noexcept;
  void note_pack(Record& record, Block* block, StreamId stream) noexcept;
  void drop_locked(Record* record, std::unique_lock<std::mutex> link, EventScope& scope) noexcept;
  void free_stored(Record& record) noexcept;
  void release_saved(Block* block) noexcept;
  void release_restored(EventScope& scope, Record& record, Block* block) noexcept;
  void release_original(RecordGuard& guard, Record& record, Block* block, bool kept) noexcept;

  // ---- restoring.cpp ----
  void await_verdict_locked(RecordGuard& guard, Record& record) noexcept;
  Block* adopt_locked(Record& record, StreamId stream) noexcept;
  Block* filled_locked(Record& record, StreamId stream, const Reading& reading,
                       RestoreStatus* status, Block** spare) noexcept;

  // ---- encoding.cpp: start, in flight, finish; waits and their end ----
  // Stores a released record that is on no list. The codec runs without the record's mutex.
  void encode(RecordGuard& guard, Record& record, Start start) noexcept;
  void finish(EventScope& scope, Record& record, Stored&& stored, std::uint64_t took_ns) noexcept;
  // Collects the verdict of a record in flight. False if it has not arrived.
  [[nodiscard]] bool finish_in_flight(EventScope& scope, Record& record, bool may_wait) noexcept;
  void wait(EventScope& scope, Record& record, Hold hold) noexcept;
  void hold(EventScope& scope, Record& record, std::uint64_t took_ns = 0) noexcept;
  [[nodiscard]] bool is_compressing() const noexcept {
    return form_.load(std::memory_order_relaxed) != StoreForm::kRaw && !stopped();
  }
  [[nodiscard]] bool is_decided(const Record& record) noexcept {
    const auto* const in_flight = std::get_if<InFlight>(&record.stored);
    return in_flight != nullptr && store_.is_decided(*in_flight);
  }
  // The only function that ends a wait. `record` is off the list; the call gives up one reference
  // to it. False if the record keeps waiting, because its verdict takes too long.
  bool end_wait(Record& record, Start start, bool may_wait, std::size_t* freed = nullptr) noexcept;
  // Takes the first waiting record with `due(record)` off the list, adds a reference; else nullptr.
  template <class Due>
  Record* take_waiting(Due&& due) noexcept;
  // State of ending waits because the waiting records take too much memory. Once one verdict has
  // taken too long, the host waits for no other.
  struct Shortage {
    bool patient = true;
    std::size_t freed = 0;  // bytes
  };
  // Ends the wait of the first record with `due(record)` that can be ended. False if none can.
  template <class Due>
  bool end_oldest_wait(Shortage& shortage, Due&& due) noexcept;
  void keep_within_bound() noexcept;

  void emit(EventScope& scope, EventKind kind, const Record& record, const Block* block,
            std::size_t bytes, std::uint64_t took_ns = 0) noexcept;
  void emit_encoded(EventScope& scope, const Record& record, std::uint64_t took_ns) noexcept;
  void emit_planned(EventScope& scope, const Record& record, std::size_t payload_bytes,
                    bool recomputed) noexcept;
  // True if the saved block counts as saved raw: it has the bytes, and no storage.
  [[nodiscard]] static bool counts_raw(const Record& record) noexcept {
    const Block* const raw = raw_block(record.stored);
    return raw != nullptr && raw != record.restored;
  }
  // Counts the change since counts_raw() returned `before`.
  static void recount_raw(EventScope& scope, const Record& record, bool before) noexcept;

  BlockMemory& memory_;
  StreamOrder& order_;
  Store store_;
  std::atomic<StoreForm> form_;
  std::atomic<std::size_t> waiting_part_of_peak_, judged_part_of_peak_;
  std::atomic<bool> stopped_{false};
  ForkGate fork_gate_;         // around Record::mutex
  std::mutex link_mutex_;      // Block::record and Record::references_
  std::uint64_t last_id_ = 0;  // guarded by the link lock
  WaitingRecords waiting_;
  ResidencyCounters counters_;
};

}  // namespace pleat::allocator
