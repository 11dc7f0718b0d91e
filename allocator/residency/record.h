// Record describes one saved storage from tag to drop. It does not depend on the kind of storage:
// the bridge derives from it and answers the questions about torch.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "allocator/blocks/block.h"
#include "allocator/ids.h"
#include "allocator/residency/block_codec.h"
#include "allocator/residency/byte_ranges.h"
#include "allocator/residency/payload_arena.h"

namespace pleat::allocator {

// A block is live before it has a record. The states from the first pack on:
//
//   state       the bytes are in                  leaves by
//   kTagged     the block, storage alive          release -> kReleasing | keep -> kKept
//                                                 copied out -> kRestored
//   kReleasing  the block, storage gone           encode -> kEncoding | wait -> kWaiting
//                                                 hold -> kHeld
//   kWaiting    the block, owned by Pleat         encode -> kEncoding | done -> kPacked
//                                                 hold -> kHeld | adopt -> kRestored
//   kEncoding   the block, codec reading          done -> kPacked | queued -> kWaiting
//                                                 gave up -> kHeld
//   kHeld       the block, owned by Pleat         adopt -> kRestored
//   kPacked     its or the argument's payload     restore -> kRestored
//   kRestored   a restored storage that lives,    storage freed -> kPacked (payload)
//               and maybe a payload               or kHeld (adopted)
//   kKept       the original storage, with a      -
//               strong reference of Pleat's
//   any                                           last hook dropped -> kDead
//
// A record in kWaiting has a reason (Hold) and is on one list; Residency::end_wait() ends the wait.
enum class RecordState : std::uint8_t {
  kTagged,
  kReleasing,
  kWaiting,
  kEncoding,
  kHeld,
  kPacked,
  kRestored,
  kKept,
  kDead,
};

enum class RecordAction : std::uint8_t {
  kRelease,        // the allocator's free arrived: the storage is gone
  kKeep,           // ... but the storage lives on (resized, data pointer swapped)
  kHold,           // keep the raw block permanently
  kWait,           // keep the raw block for now
  kEncode,         // the codec starts
  kEncoded,        // the payload is complete
  kRestore,        // decoded into a new block, or the raw block was adopted
  kRestoredFreed,  // the restored storage is gone; a payload remains
  kAdoptedFreed,   // the adopted raw block was freed
  kDrop,
};

// The reason why a released block is held raw although it can be compressed.
enum class Hold : std::uint8_t {
  kNone,
  kForwardEnd,  // until the forward pass is over
  kProof,       // until Residency::start(), while Record::awaits_proof() is true
  kVerdict,     // its encode is queued, and the device can still decide to keep it raw
};

// The event that starts an encode.
enum class Start : std::uint8_t {
  kRelease,     // the release itself: the record did not wait
  kProof,       // Residency::start()
  kForwardEnd,  // the forward pass is over
  kShortage,    // the waiting records take too much, or memory is short: no proof will come
};

[[nodiscard]] const char* record_state_name(RecordState state) noexcept;
[[nodiscard]] const char* hold_name(Hold hold) noexcept;

// The only function that changes states. False (and no change) if the table lacks the transition.
[[nodiscard]] bool apply(RecordState& state, RecordAction action) noexcept;

// A payload holds the bytes of its block. A record without a payload can be *recomputed*: its bytes
// are `function`, element by element, of the bytes of its *argument*, which is another record with
// a payload. Then this record is one of the argument's *results*.
class Record {
 public:
  Record() = default;
  virtual ~Record() = default;
  Record(const Record&) = delete;
  Record& operator=(const Record&) = delete;

  // Takes permanent strong references to the tensors that the hooks will read: the block is freed,
  // but the storage can live on with other bytes. Returns false in the usual case that none of them
  // lives. Called without any lock of residency.
  [[nodiscard]] virtual bool keep_storage() noexcept = 0;
  // Returns the number of hooks that no longer need the block; kEveryHook if all. Called after
  // keep_storage(), under the link lock; takes no lock but the record's own innermost ones.
  static constexpr std::uint32_t kEveryHook = ~std::uint32_t{0};
  [[nodiscard]] virtual std::uint32_t hooks_without_block() noexcept = 0;

  // Decides about a released block before it is encoded: how the codec stores it, and whether the
  // record can be recomputed. Called without any lock of residency.
  struct Decision {
    CodecWords choice{};
    bool may_be_recomputed = false;  // without effect if there is no argument
  };
  [[nodiscard]] virtual Decision decide(Start /*start*/) noexcept { return {choice, true}; }

  // Called in place of an encode under ResidencyOptions::plan_only, after decide(). `payload_bytes`
  // is the estimated size of the payload; 0: kept raw. Called without any lock of residency.
  virtual void note_plan(std::size_t /*payload_bytes*/) noexcept {}

  // True if a released block is held raw until Residency::start(). Called under `mutex`; takes no
  // lock.
  [[nodiscard]] virtual bool awaits_proof() const noexcept { return false; }

  // True if a restore must return the saved bytes instead of those of the payload, if both are
  // kept. Called under `mutex`; takes no lock.
  [[nodiscard]] virtual bool reads_original() const noexcept { return false; }

  // The noise that a restore by this thread's pass adds to the bytes. Null except in passes that
  // measure the effect of noise. These copy raw bytes first. A recomputed record returns its
  // argument's noise. Called under `mutex`; takes no lock.
  [[nodiscard]] virtual const DisturbanceWords* disturbance() const noexcept { return nullptr; }

  // `mutex` guards all members below it. It is not held while the codec runs: in kEncoding the
  // fields belong to the thread that encodes, and RecordGuard waits for it. Taken through
  // Residency::RecordGuard.
  // Lock order: Record::mutex, then Residency's link lock, then the list of waiting records, then
  // arena, then pool.
  std::mutex mutex;
  std::atomic<RecordState> state{RecordState::kTagged};
  Block* block = nullptr;     // the saved block while its bytes are raw (or an in-place payload)
  Block* restored = nullptr;  // block of the restored storage, while the storage lives
  Block* original =
      nullptr;            // ResidencyOptions::keep_originals: the saved block next to the payload
  PayloadSlot payload{};  // in kWaiting for a verdict: its destination
  std::size_t payload_bytes = 0;
  PayloadForm form{};
  bool payload_in_block = false;  // place:inplace: `block` holds the payload
  bool recomputed = false;        // no payload of its own: the argument's payload serves
  bool counted_raw = false;       // the bytes of `block` count as saved raw
  std::uint32_t encodes = 0;
  // Other streams than `stream` that read the payload. Guarded by the link lock.
  std::vector<StreamId> readers;

  // Links of the list of waiting records; guarded by its lock.
  std::atomic<bool> waiting{false};
  Hold hold = Hold::kNone;
  EncodeTicket ticket{};        // set in kVerdict
  std::uint64_t encode_ns = 0;  // time of the encode whose verdict is pending
  Record* waiting_next = nullptr;
  Record* waiting_previous = nullptr;

  // True if the bytes come from a payload, whatever happens to the storage.
  [[nodiscard]] bool packed() const noexcept { return payload_bytes != 0 || recomputed; }

  // Written while tagging (under the link lock), constant once released, except by decide().
  std::size_t bytes = 0;  // bytes of the storage
  ByteRanges ranges;      // the ranges that the views cover
  CodecWords choice{};    // see BlockCodec
  std::uint64_t nonce = 0;
  TensorKey key{};
  StreamId stream{};  // stream of the last pack: after its earlier work the bytes are complete
  RecordId id{};
  Record* argument = nullptr;  // with a counted reference; Residency::set_argument()
  std::uint64_t function = 0;  // BlockCodec::decode_function()

 private:
  friend class Residency;
  // Guarded by the link lock: references of hooks and results, and the number of results.
  std::uint32_t references_ = 1;
  std::uint32_t results_ = 0;
};

}  // namespace pleat::allocator
