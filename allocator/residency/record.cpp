#include "allocator/residency/record.h"

namespace pleat::allocator {

const char* record_state_name(RecordState state) noexcept {
  switch (state) {
    case RecordState::kTagged:
      return "tagged";
    case RecordState::kReleasing:
      return "releasing";
    case RecordState::kWaiting:
      return "waiting";
    case RecordState::kEncoding:
      return "encoding";
    case RecordState::kHeld:
      return "held";
    case RecordState::kPacked:
      return "packed";
    case RecordState::kRestored:
      return "restored";
    case RecordState::kKept:
      return "kept";
    case RecordState::kDead:
      return "dead";
  }
  return "?";
}

const char* hold_name(Hold hold) noexcept {
  switch (hold) {
    case Hold::kNone:
      return "none";
    case Hold::kForwardEnd:
      return "forward_end";
    case Hold::kProof:
      return "proof";
    case Hold::kVerdict:
      return "verdict";
  }
  return "?";
}

bool apply(RecordState& state, RecordAction action) noexcept {
  using S = RecordState;
  using A = RecordAction;
  struct Row {
    S from;
    A action;
    S to;
  };
  static constexpr Row kTable[] = {
      {S::kTagged, A::kRelease, S::kReleasing},
      {S::kTagged, A::kKeep, S::kKept},
      // The storage is gone, but its block was never freed (its data pointer was moved). The bytes
      // were copied out at unpack; the block itself can still be released later.
      {S::kTagged, A::kRestore, S::kRestored},
      {S::kReleasing, A::kEncode, S::kEncoding},
      {S::kReleasing, A::kHold, S::kHeld},
      {S::kReleasing, A::kWait, S::kWaiting},
      {S::kEncoding, A::kEncoded, S::kPacked},
      {S::kEncoding, A::kWait, S::kWaiting},
      {S::kEncoding, A::kHold, S::kHeld},
      {S::kWaiting, A::kEncode, S::kEncoding},
      {S::kWaiting, A::kEncoded, S::kPacked},
      {S::kWaiting, A::kHold, S::kHeld},
      {S::kWaiting, A::kRestore, S::kRestored},
      {S::kHeld, A::kRestore, S::kRestored},
      {S::kPacked, A::kRestore, S::kRestored},
      {S::kRestored, A::kRestoredFreed, S::kPacked},
      {S::kRestored, A::kAdoptedFreed, S::kHeld},
  };
  if (action == A::kDrop) {
    const bool was_dead = state == S::kDead;
    state = S::kDead;
    return !was_dead;
  }
  for (const Row& row : kTable) {
    if (row.from == state && row.action == action) {
      state = row.to;
      return true;
    }
  }
  return false;
}

}  // namespace pleat::allocator
