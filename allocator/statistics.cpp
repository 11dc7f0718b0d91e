#include "allocator/statistics.h"

namespace pleat::allocator {

const char* stat_name(StatKind kind) noexcept {
  switch (kind) {
    case StatKind::kRequested:
      return "requested";
    case StatKind::kActive:
      return "active";
    case StatKind::kSavedRaw:
      return "saved_raw";
    case StatKind::kPayload:
      return "payload";
    case StatKind::kRestored:
      return "restored";
    case StatKind::kCached:
      return "cached";
    case StatKind::kReserved:
      return "reserved";
    case StatKind::kCount:
      break;
  }
  return "unknown";
}

}  // namespace pleat::allocator
