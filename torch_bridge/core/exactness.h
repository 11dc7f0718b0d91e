// Why a floating tensor that could have been lossy is exact: counted by the bridge when the tensor
// is stored, printed in its report. Torch-free.
#pragma once

#include <cstdint>

#include "torch_bridge/core/counts.h"

namespace pleat::bridge {

enum class Exactness : std::uint8_t {
  kMayBearNoise,    // it is not exact
  kOperator,        // the operator that saves it bears no noise
  kFunction,        // a function that we cannot look into saves it
  kPole,            // a path from there meets a pole, a comparison or a loss
  kFunctionBehind,  // a path meets a function that we cannot look into
  kNoProof,         // backward began, and no path had met anything that closes it
  kNoRoom,          // memory was short before a proof came
  kComputedWeight,  // it is computed from weights alone
  kDerivative,      // results of derivatives are made of it
  kInBackward,      // saved while a backward pass runs
  kRule,            // the option `rule` allows no noise there
  kAssigned,        // it may bear noise, but its key is to be exact
  kCount,
};
[[nodiscard]] const char* exactness_name(Exactness why) noexcept;

using ExactnessCounts = Counts<Exactness>;

}  // namespace pleat::bridge
