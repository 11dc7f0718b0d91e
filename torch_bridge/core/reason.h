// Why a saved tensor got a record, or did not: counted by the bridge, printed in its report.
#pragma once

#include <cstdint>

#include "torch_bridge/core/counts.h"

namespace pleat::bridge {

enum class Reason : std::uint8_t {
  kEligibleLossy,
  kEligibleLossless,
  kDisabled,  // pleat_disable, exempt, a forked child, after exit
  kUndefined,
  kLeaf,  // parameters and other leaves that require grad
  kViewOfLeaf,
  kCastOfParameter,  // low-precision or transposed copies of a parameter
  kNotPlainStrided,  // fake, functional, meta, sparse, quantised, nested, subclass
  kOtherDevice,
  kTooSmall,
  kForeignStorage,  // numpy, shared memory, dlpack, older than us, a view into something else
  kTracing,
  kCompiledFunction,  // what a function of torch.compile saves; it has chosen that itself
  kCount,
};
[[nodiscard]] const char* reason_name(Reason reason) noexcept;

using ReasonCounts = Counts<Reason>;

}  // namespace pleat::bridge
