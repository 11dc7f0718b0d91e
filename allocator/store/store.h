// Store turns the bytes of saved blocks into payloads and back. It knows no record: put() takes a
// block and returns where its bytes are, get() takes that and fills a block. The caller owns both,
// and decides when.
//
// Streams: put() queues its work on the stream on which the block is complete, get() on the
// reader's. Where streams differ, the later waits for the earlier, and the host does not wait.
// Threads: any. One thread at a time uses a Stored; threads may read one Payload at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>

#include "allocator/ids.h"
#include "allocator/store/block_codec.h"
#include "allocator/store/block_memory.h"
#include "allocator/store/payload_arena.h"
#include "allocator/store/stored.h"
#include "allocator/store/stream_order.h"

namespace pleat::allocator {

// The forms that a store gives blocks.
enum class StoreForm : std::uint8_t {
  kRaw,              // released blocks are held raw
  kPlanned,          // held raw, next to the size that the payload would have
  kPayload,          // a payload, and the block is freed
  kInPlace,          // the payload over the head of its own block, where that is possible
  kPayloadAndBlock,  // both, until the record is dropped: a restore can return either
};

// A block to store.
struct Put {
  Block* block = nullptr;
  std::size_t bytes = 0;               // of the storage
  const ByteRanges* ranges = nullptr;  // that its views cover; outlives the payload
  CodecWords choice{};
  std::uint64_t nonce = 0;
  TensorKey key{};
  StreamId stream{};
  RecordId owner{};
  StoreForm form = StoreForm::kPayload;
  Tier tier = Tier::kDevice;
  // The bytes can equal `function` of those of `argument`. Null: they do not.
  Payload* argument = nullptr;
  std::uint64_t function = 0;
  // Set by put(). With Payload and Recomputed, the block is then the caller's to free, unless it is
  // kept (block_beside()) or holds the payload (Payload::is_in_place()).
  Stored stored{};
};

// The bytes that a restore returns.
struct Reading {
  const DisturbanceWords* noise = nullptr;  // to add, in a pass that measures its effect
  bool original = false;                    // the saved bytes, if block_beside() has them
};

// A block to fill.
struct Get {
  Stored* from = nullptr;  // not Nothing
  StreamId written{};      // stream in whose order the bytes of a block are complete
  const ByteRanges* ranges = nullptr;
  Block* target = nullptr;
  std::size_t bytes = 0;  // of the storage
  StreamId stream{};      // for whose later work the target is complete
  Reading reading{};
  // Set by get().
  CodecStatus status = CodecStatus::kOk;
  bool decoded = false;          // else copied
  bool short_of_memory = false;  // there is no memory to bring the payload back
  bool stays = false;            // a captured graph reads the payload again: it must not be freed
};

// A payload whose chunk stays while this lives. Without data there is no memory to bring it back.
class PinnedPayload {
 public:
  PinnedPayload() = default;
  PinnedPayload(PayloadArena& arena, const Payload& payload, StreamId stream) noexcept
      : arena_(&arena), slot_(payload.slot) {
    const void* const data = arena.pin(slot_, stream);
    if (data == nullptr) arena_ = nullptr;
    view_ = {data, payload.bytes, payload.form, payload.ranges->data(), payload.ranges->size()};
  }
  ~PinnedPayload() {
    if (arena_ != nullptr) arena_->unpin(slot_);
  }
  PinnedPayload(const PinnedPayload&) = delete;
  PinnedPayload& operator=(const PinnedPayload&) = delete;
  [[nodiscard]] const PayloadView& view() const noexcept { return view_; }
  void keep_for_ever() noexcept { arena_ = nullptr; }

 private:
  PayloadArena* arena_ = nullptr;
  PayloadSlot slot_;
  PayloadView view_;
};

class Store {
 public:
  Store(BlockMemory& memory, StreamOrder& order, PayloadArena& arena, BlockCodec& codec) noexcept
      : memory_(memory), order_(order), arena_(arena), codec_(codec) {}
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  // Stores each block. Raw where there is no shorter form or no memory.
  void put(std::span<Put> puts) noexcept;
  // Fills each target.
  void get(std::span<Get> gets) noexcept;

  // Collects the verdict of an encode in flight: Payload as after put(), or Raw. Still InFlight:
  // the verdict has not arrived. With `may_wait` the call waits for it, but not for ever.
  [[nodiscard]] Stored verdict(const InFlight& encode, bool may_wait) noexcept;
  [[nodiscard]] bool is_decided(const InFlight& encode) noexcept {
    return codec_.is_decided(encode.ticket);
  }
  // Gives an encode in flight up: its block holds the bytes.
  [[nodiscard]] Raw forget(const InFlight& encode) noexcept;
  // Pins a payload for work on `stream`, queued before the result is destroyed.
  [[nodiscard]] PinnedPayload pin(const Payload& payload, StreamId stream) noexcept {
    return {arena_, payload, stream};
  }
  // Frees the blocks of payloads that have arrived in the tier.
  void collect() noexcept { arena_.collect(); }
  // Sends payloads to the tier until `bytes` are free. True if any are.
  [[nodiscard]] bool demote(std::size_t bytes) noexcept { return arena_.demote(bytes) != 0; }
  void describe(const Payload& payload, Event& event) const noexcept {
    arena_.describe(payload.slot, event);
  }
  // Frees a payload once its readers have read it, and the block beside it.
  void free(Stored& stored) noexcept;

  // Around fork(): locks the arena and all locks below it.
  void lock_for_fork() noexcept;
  void unlock_after_fork() noexcept;

 private:
  [[nodiscard]] Stored stored(const Put& put) noexcept;
  [[nodiscard]] Stored encoded(const Put& put, EncodeRequest& request,
                               CodecStatus* status) noexcept;
  [[nodiscard]] bool encode_in_place(const Put& put, const EncodeRequest& request,
                                     const EncodePlan& plan, Stored* stored,
                                     CodecStatus* status) noexcept;
  void discard(PayloadSlot slot) noexcept;
  [[nodiscard]] Payload finished(const InFlight& encode, const EncodeResult& result) noexcept;
  void copy(Get& get, Block* from) noexcept;
  void decode(Get& get, Payload& payload, std::uint64_t function) noexcept;
  [[nodiscard]] CodecStatus decode(DecodeRequest& request) noexcept;
  void note_reader(Payload& payload, StreamId stream) noexcept;

  BlockMemory& memory_;
  StreamOrder& order_;
  PayloadArena& arena_;
  BlockCodec& codec_;
  std::mutex readers_mutex_;  // Payload::readers; innermost
};

}  // namespace pleat::allocator
