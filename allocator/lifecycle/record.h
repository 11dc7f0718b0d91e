// Record describes one saved storage from tag to drop. It does not depend on the kind of storage:
// the bridge derives from it and answers the questions about torch.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "allocator/blocks/block.h"
#include "allocator/ids.h"
#include "allocator/store/block_codec.h"
#include "allocator/store/byte_ranges.h"
#include "allocator/store/stored.h"

namespace pleat::allocator {

// A block is live before it has a record. The states from the first pack on, and the members of
// Stored in each:
//
//   state       the bytes are in                   stored           leaves by
//   kTagged     the block, storage alive           Raw              release -> kHeld
//                                                                   keep -> kKept
//                                                                   copied out -> kRestored
//   kHeld       the block, owned by Pleat          Raw              encode -> kStoring
//                                                                   wait -> kWaiting
//                                                                   adopt -> kRestored
//   kWaiting    the same, for a reason that will   Raw, InFlight    encode -> kStoring
//               end (Hold)                                          payload -> kPacked
//                                                                   raw -> kHeld
//                                                                   adopt -> kRestored
//   kStoring    the same, a thread encodes         Raw              payload -> kPacked
//                                                                   raw -> kHeld | kWaiting
//   kPacked     its or the argument's payload      Payload,         restore -> kRestored
//                                                  Recomputed
//   kRestored   a restored storage that lives,     any              storage freed -> kPacked
//               and maybe a payload                                 or kHeld (adopted)
//   kKept       the original storage, with a       Nothing          -
//               strong reference of Pleat's
//
// A record in kWaiting is on one list; Residency::end_wait() ends the wait.
// A record is deleted once its last hook is dropped, in any state.
enum class RecordState : std::uint8_t {
  kTagged,
  kStoring,
  kWaiting,
  kHeld,
  kPacked,
  kRestored,
  kKept,
};

enum class RecordAction : std::uint8_t {
  kRelease,        // the allocator's free arrived: the storage is gone
  kKeep,           // ... but the storage lives on (resized, data pointer swapped)
  kEncode,         // a thread begins to encode: at the release, or when a wait is over
  kEncoded,        // the payload is complete
  kHold,           // keep the raw block permanently
  kWait,           // keep the raw block for now
  kRestore,        // decoded into a new block, or the raw block was adopted
  kRestoredFreed,  // the restored storage is gone; a payload remains
  kAdoptedFreed,   // the adopted raw block was freed
};

// The reason why a released block is held raw although it can be compressed.
enum class Hold : std::uint8_t {
  kNone,
  kForwardEnd,  // until the forward pass is over
  kProof,       // until Residency::start(), while Record::waits_for() says so
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

// The only function that changes states. False (and no change) if the table lacks the transition.
[[nodiscard]] bool apply(RecordState& state, RecordAction action) noexcept;

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
    Tier tier = Tier::kDevice;
  };
  [[nodiscard]] virtual Decision decide(Start start) noexcept = 0;

  // The event until which a released block is held raw: kNone, kForwardEnd or kProof. Called under
  // `mutex`; takes no lock.
  [[nodiscard]] virtual Hold waits_for() const noexcept { return Hold::kNone; }

  // `mutex` guards the three members below it. It is not held while the codec runs: in kStoring the
  // members belong to the thread that encodes, and RecordGuard waits for it. Taken through
  // Residency::RecordGuard.
  // Lock order: Record::mutex, then Residency's link lock, then the list of waiting records, then
  // the store's, arena, pool.
  std::mutex mutex;
  std::atomic<RecordState> state{RecordState::kTagged};
  Stored stored;
  Block* restored = nullptr;  // block of the restored storage, while the storage lives

  // Links of the list of waiting records; guarded by its lock.
  struct Waiting {
    std::atomic<bool> listed{false};
    Hold hold = Hold::kNone;
    Record* next = nullptr;
    Record* previous = nullptr;
  } waiting;

  // Written while tagging (under the link lock), constant once released.
  std::size_t bytes = 0;  // bytes of the storage
  ByteRanges ranges;      // the ranges that the views cover
  std::uint64_t nonce = 0;
  TensorKey key{};
  StreamId stream{};  // stream of the last pack: after its earlier work the bytes are complete
  RecordId id{};
  // A record without a payload can be *recomputed*: its bytes are `function`, element by element,
  // of the bytes of its *argument*, which is another record with a payload. Then this record is one
  // of the argument's *results*. Residency::set_argument(); a counted reference.
  struct Argument {
    Record* record = nullptr;
    std::uint64_t function = 0;  // DecodeRequest::function
  } argument;

 private:
  friend class Residency;
  // Guarded by the link lock: references of hooks and results, and the number of results.
  std::uint32_t references_ = 1;
  std::uint32_t results_ = 0;
};

}  // namespace pleat::allocator
