// What is known of one saved storage, and its life from tag to drop. A record says nothing of what
// a storage is: the bridge derives from it and answers the questions only it can answer.
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

// A block is live before it has a record. From the first pack on:
//
//   state       the bytes are in                  leaves by
//   kTagged     the block, storage alive          release -> kReleasing | keep -> kKept
//                                                 copied out -> kRestored
//   kReleasing  the block, storage gone           encode -> kEncoding | wait -> kWaiting
//                                                 hold -> kHeld
//   kWaiting    the block, owned by us            encode -> kEncoding | done -> kPacked
//                                                 hold -> kHeld | adopt -> kRestored
//   kEncoding   the block, codec reading          done -> kPacked | queued -> kWaiting
//                                                 gave up -> kHeld
//   kHeld       the block, owned by us            adopt -> kRestored
//   kPacked     a payload, ours or the argument's restore -> kRestored
//   kRestored   a restored storage that lives,    storage freed -> kPacked (payload)
//               and maybe a payload               or kHeld (adopted)
//   kKept       the original storage, which we    -
//               hold strongly
//   any                                           last hook dropped -> kDead
//
// kWaiting has a reason (Hold) and is on one list; Residency::end_wait() ends it.
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
  kRelease,        // the allocator's free arrived, the storage is gone
  kKeep,           // ... but the storage lives (resized, data pointer swapped)
  kHold,           // keep the raw block for good
  kWait,           // keep it for now
  kEncode,         // the codec starts
  kEncoded,        // the payload is complete
  kRestore,        // decoded into a new block, or the raw block was adopted
  kRestoredFreed,  // the restored storage is gone, a payload remains
  kAdoptedFreed,   // the adopted raw block came back
  kDrop,
};

// Why a released block is held raw although it may be compressed.
enum class Hold : std::uint8_t {
  kNone,
  kForwardEnd,  // until the forward pass is over
  kProof,       // until Residency::start(), as Record::awaits_proof() asks for
  kVerdict,     // its encode is queued, and the device may yet give up
};

// What starts an encode.
enum class Start : std::uint8_t {
  kRelease,     // nothing was waited for
  kProof,       // Residency::start()
  kForwardEnd,  // the forward pass is over
  kShortage,    // too much waits, or memory is short: no proof will come
};

[[nodiscard]] const char* record_state_name(RecordState state) noexcept;
[[nodiscard]] const char* hold_name(Hold hold) noexcept;

// The only place where states change. False (and no change) for a transition the table above lacks.
[[nodiscard]] bool apply(RecordState& state, RecordAction action) noexcept;

// A payload holds the bytes of its block. A record without one may be *recomputed*: its bytes are
// `function`, element by element, of those of its *argument*, which is another record with a
// payload. Then this record is one of the argument's *results*.
class Record {
 public:
  Record() = default;
  virtual ~Record() = default;
  Record(const Record&) = delete;
  Record& operator=(const Record&) = delete;

  // Takes permanent strong references to what the hooks will read: the block is freed, but the
  // storage may live on with other bytes. Returns false if nothing lives, as nearly always. Called
  // with no lock of residency held.
  [[nodiscard]] virtual bool keep_storage() noexcept = 0;
  // Returns how many hooks no longer need the block; kEveryHook if all. Called after
  // keep_storage(). Called under the link lock; takes no lock but the record's own innermost ones.
  static constexpr std::uint32_t kEveryHook = ~std::uint32_t{0};
  [[nodiscard]] virtual std::uint32_t hooks_without_block() noexcept = 0;

  // Decides about a released block before it is encoded: how the codec stores it, and whether the
  // record may be recomputed. Called with no lock of residency held.
  struct Decision {
    CodecWords choice{};
    bool may_be_recomputed = false;  // without an argument it means nothing
  };
  [[nodiscard]] virtual Decision decide(Start /*start*/) noexcept { return {choice, true}; }

  // In place of an encode, where nothing is to be encoded: about how many bytes the payload would
  // have taken, after decide(); 0: the codec had kept the block raw. Called with no lock of
  // residency held.
  virtual void note_plan(std::size_t /*payload_bytes*/) noexcept {}

  // True if the block is to be held raw, once released, until Residency::start(). Called under
  // `mutex`; takes no lock.
  [[nodiscard]] virtual bool awaits_proof() const noexcept { return false; }

  // True if a restore is to give the bytes that were saved, not those of the payload, where both
  // are kept. Called under `mutex`; takes no lock.
  [[nodiscard]] virtual bool reads_original() const noexcept { return false; }

  // The noise that a restore by this thread's pass adds to the bytes; null: none, as always but in
  // a pass that finds out what noise does. Raw bytes are copied then: they are never written to. Of
  // a recomputed record, its argument's. Called under `mutex`; takes no lock.
  [[nodiscard]] virtual const DisturbanceWords* disturbance() const noexcept { return nullptr; }

  // `mutex` guards everything below it. It is not held while the codec runs: in kEncoding the
  // fields belong to the thread that encodes, and RecordGuard waits for it. Taken through
  // Residency::RecordGuard.
  // Lock order: Record::mutex, then Residency's link lock, then the list of what waits, then arena,
  // then pool.
  std::mutex mutex;
  std::atomic<RecordState> state{RecordState::kTagged};
  Block* block = nullptr;     // the saved block while its bytes are raw (or an in-place payload)
  Block* restored = nullptr;  // block of the restored storage, while that lives
  Block* original =
      nullptr;            // ResidencyOptions::keep_originals: the saved block beside the payload
  PayloadSlot payload{};  // in kWaiting for a verdict: where it is being written
  std::size_t payload_bytes = 0;
  PayloadForm form{};
  bool payload_in_block = false;  // place:inplace: `block` holds the payload
  bool recomputed = false;        // there is no payload: the argument's does
  bool counted_raw = false;       // the bytes of `block` count as saved raw
  std::uint32_t encodes = 0;
  // Streams other than `stream` that were given work with the payload. Guarded by the link lock.
  std::vector<StreamId> readers;

  // On the list of what waits; guarded by its lock.
  std::atomic<bool> waiting{false};
  Hold hold = Hold::kNone;
  EncodeTicket ticket{};        // of kVerdict
  std::uint64_t encode_ns = 0;  // that the encode took whose verdict is awaited
  Record* waiting_next = nullptr;
  Record* waiting_previous = nullptr;

  // The bytes come from a payload, whatever happens to the storage.
  [[nodiscard]] bool packed() const noexcept { return payload_bytes != 0 || recomputed; }

  // Written while tagging (under the link lock), constant once released, but for decide().
  std::size_t bytes = 0;  // of the storage
  ByteRanges ranges;      // what the views cover
  CodecWords choice{};    // see BlockCodec
  std::uint64_t nonce = 0;
  TensorKey key{};
  StreamId stream{};  // of the last pack: what it was given before, the bytes are complete for
  RecordId id{};
  Record* argument = nullptr;  // with a reference of ours; Residency::set_argument()
  std::uint64_t function = 0;  // BlockCodec::decode_function()

 private:
  friend class Residency;
  // Guarded by the link lock: references of hooks and results, and how many results there are.
  std::uint32_t references_ = 1;
  std::uint32_t results_ = 0;
};

}  // namespace pleat::allocator
