#include "torch_bridge/core/reason.h"

namespace pleat::bridge {

const char* reason_name(Reason reason) noexcept {
  switch (reason) {
    case Reason::kEligibleLossy:
      return "eligible_lossy";
    case Reason::kEligibleLossless:
      return "eligible_lossless";
    case Reason::kDisabled:
      return "disabled";
    case Reason::kUndefined:
      return "undefined";
    case Reason::kLeaf:
      return "leaf";
    case Reason::kViewOfLeaf:
      return "view_of_leaf";
    case Reason::kCastOfParameter:
      return "cast_of_parameter";
    case Reason::kNotPlainStrided:
      return "not_plain_strided";
    case Reason::kOtherDevice:
      return "other_device";
    case Reason::kTooSmall:
      return "too_small";
    case Reason::kForeignStorage:
      return "foreign_storage";
    case Reason::kTracing:
      return "tracing";
    case Reason::kCompiledFunction:
      return "compiled_function";
    case Reason::kCount:
      break;
  }
  return "?";
}

}  // namespace pleat::bridge
