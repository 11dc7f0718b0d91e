#include "torch_bridge/core/exactness.h"

namespace pleat::bridge {

const char* exactness_name(Exactness why) noexcept {
  switch (why) {
    case Exactness::kMayBearNoise:
      return "may_bear_noise";
    case Exactness::kOperator:
      return "operator";
    case Exactness::kFunction:
      return "function";
    case Exactness::kPole:
      return "pole";
    case Exactness::kFunctionBehind:
      return "function_behind";
    case Exactness::kNoProof:
      return "no_proof";
    case Exactness::kNoRoom:
      return "no_room";
    case Exactness::kComputedWeight:
      return "computed_weight";
    case Exactness::kDerivative:
      return "derivative";
    case Exactness::kInBackward:
      return "in_backward";
    case Exactness::kRule:
      return "rule";
    case Exactness::kAssigned:
      return "assigned";
    case Exactness::kCount:
      break;
  }
  return "?";
}

}  // namespace pleat::bridge
