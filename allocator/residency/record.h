// What is known of one saved storage, and its life from tag to drop. A record says nothing of what
// a storage is: the bridge derives from it and answers the two questions only it can answer.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "allocator/host/pool.h"
#include "allocator/ids.h"
#include "allocator/residency/block_codec.h"
#include "allocator/residency/byte_ranges.h"
#include "allocator/residency/payload_arena.h"

namespace pleat::allocator {

// A block is live before it has a record; from the first pack on:
//
//   state      the bytes are in              leaves by
//   kTagged    the block, storage alive      release -> kReleasing | keep -> kKept
//   kReleasing the block, storage gone       encode -> kEncoding | hold -> kHeld
//   kEncoding  the block, codec reading      done -> kPacked | gave up -> kHeld
//   kHeld      the block, owned by us        encode -> kEncoding (forward end) | adopt -> kRestored
//   kPacked    the payload, ours or origin's restore -> kRestored
//   kRestored  payload and/or a restored     storage freed -> kPacked (payload) or kHeld (adopted)
//              storage that is alive
//   kKept      the original storage, which   -
//              we now hold strongly
//   any        last hook dropped -> kDead
enum class RecordState : std::uint8_t {
  kTagged,
  kReleasing,
  kEncoding,
  kHeld,
  kPacked,
  kRestored,
  kKept,
  kDead,
};

enum class RecordAction : std::uint8_t {
  kRelease,        // the allocator's free arrived, the storage is gone
  kKeep,           // ... but the storage lives (resized, data pointer swapped)
  kHold,           // keep the raw block
  kEncode,         // the codec starts
  kEncoded,        // the payload is complete
  kRestore,        // decoded into a new block, or the raw block was adopted
  kRestoredFreed,  // the restored storage is gone, a payload remains
  kAdoptedFreed,   // the adopted raw block came back
  kDrop,
};

[[nodiscard]] const char* record_state_name(RecordState state) noexcept;

// The only place where states change. False (and no change) for a transition the table above lacks.
[[nodiscard]] bool apply(RecordState& state, RecordAction action) noexcept;

class Record {
 public:
  Record() = default;
  virtual ~Record() = default;
  Record(const Record&) = delete;
  Record& operator=(const Record&) = delete;

  // False once the last strong reference to the storage is gone. Any thread, no lock needed.
  [[nodiscard]] virtual bool storage_alive() const noexcept = 0;
  // The block is freed, but the storage may live on with other bytes: takes strong references, for
  // good, to what the record's hooks will read. The number of hooks that do not need the block,
  // kEveryHook if none does. `link` is held before and after, but not while references are taken or
  // given up; Record::mutex is not.
  static constexpr std::uint32_t kEveryHook = ~std::uint32_t{0};
  [[nodiscard]] virtual std::uint32_t keep_storage(std::unique_lock<std::mutex>& link) noexcept = 0;

  // About to be encoded, under `mutex`: may still choose more careful a codec.
  virtual void before_encode() noexcept {}
  // Then, if there is an `origin`: the bytes are still function(origin's), so need no payload.
  virtual bool follows_from_origin() noexcept { return false; }

  // `mutex` guards everything below it. Whoever waits for an encode waits for this mutex: it is
  // held while the codec runs (the pool's lock never is). Taken through Residency::RecordGuard.
  // Lock order: Record::mutex, then Residency's link lock, then arena, then pool.
  std::mutex mutex;
  RecordState state = RecordState::kTagged;
  Block* block = nullptr;     // the saved block while its bytes are raw (or an in-place payload)
  Block* restored = nullptr;  // block of the restored storage, while that lives
  PayloadSlot payload{};
  std::size_t payload_bytes = 0;
  bool payload_in_block = false;     // place:inplace: `block` holds the payload
  bool counted_raw = false;          // the bytes of `block` count as saved raw
  std::atomic<bool> pending{false};  // in the list of the two below
  Record* pending_next = nullptr;
  Record* pending_previous = nullptr;
  std::uint32_t encodes = 0;
  CodecStatistics statistics{};  // of the last encode that gave the payload
  bool worked_out = false;       // in place of a payload: `function` of what `origin` has in its

  // Its bytes can be had without what happens to the storage: from a payload.
  [[nodiscard]] bool packed() const noexcept { return payload_bytes != 0 || worked_out; }

  // Written while tagging (under the link lock), constant once released, but for before_encode().
  std::size_t bytes = 0;     // of the storage
  ByteRanges ranges;         // what the views cover
  std::uint64_t choice = 0;  // codec choice, see BlockCodec
  std::uint64_t wait_until =
      0;  // on Residency::clock(): not encoded earlier, but for forward_end()
  std::uint64_t nonce = 0;
  TensorKey key{};
  StreamId stream{};
  // What the bytes are an elementwise function of, with a reference of ours:
  // Residency::set_origin().
  Record* origin = nullptr;
  std::uint64_t function = 0;  // BlockCodec::decode_function()

 private:
  friend class Residency;
  // Guarded by the link lock: hooks and followers, and of these the records it is the origin of.
  std::uint32_t references_ = 1;
  std::uint32_t followers_ = 0;
};

}  // namespace pleat::allocator
