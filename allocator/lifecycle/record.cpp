#include "allocator/lifecycle/record.h"

namespace pleat::allocator {

const char* record_state_name(RecordState state) noexcept {
  switch (state) {
    case RecordState::kTagged:
      return "tagged";
    case RecordState::kStoring:
      return "storing";
    case RecordState::kWaiting:
      return "waiting";
    case RecordState::kHeld:
      return "held";
    case RecordState::kPacked:
      return "packed";
    case RecordState::kRestored:
      return "restored";
    case RecordState::kKept:
      return "kept";
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
      {S::kTagged, A::kRelease, S::kHeld},
      {S::kTagged, A::kKeep, S::kKept},
      // The storage is gone, but its block was never freed (its data pointer was moved). The bytes
      // were copied out at unpack; the block itself can still be released later.
      {S::kTagged, A::kRestore, S::kRestored},
      {S::kStoring, A::kEncoded, S::kPacked},
      {S::kStoring, A::kHold, S::kHeld},
      {S::kStoring, A::kWait, S::kWaiting},
      {S::kHeld, A::kEncode, S::kStoring},
      {S::kHeld, A::kHold, S::kHeld},
      {S::kHeld, A::kWait, S::kWaiting},
      {S::kWaiting, A::kEncode, S::kStoring},
      {S::kWaiting, A::kEncoded, S::kPacked},
      {S::kWaiting, A::kHold, S::kHeld},
      {S::kWaiting, A::kRestore, S::kRestored},
      {S::kHeld, A::kRestore, S::kRestored},
      {S::kPacked, A::kRestore, S::kRestored},
      {S::kRestored, A::kRestoredFreed, S::kPacked},
      {S::kRestored, A::kAdoptedFreed, S::kHeld},
  };
  for (const Row& row : kTable) {
    if (row.from == state && row.action == action) {
      state = row.to;
      return true;
    }
  }
  return false;
}

}  // namespace pleat::allocator
