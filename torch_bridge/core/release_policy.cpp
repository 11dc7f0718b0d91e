#include "torch_bridge/core/release_policy.h"

namespace pleat::bridge {
namespace {

using compress::block::Kept;
using compress::block::Look;
using compress::block::Steps;

// As good as its own payload: as many bits, and no reader that needs more.
bool as_good(CodecChoice own, CodecChoice argument) noexcept {
  return own.bits != 0 && own.kept == Kept::kValues && own.steps != Steps::kExponent &&
         !own.near_zero && !own.sides.any() && own.lines.look <= Look::kZeroRows &&
         own.type == argument.type && (argument.bits == 0 || argument.bits >= own.bits);
}

}  // namespace

ReleaseDecision decide_at_release(const ReleasedStorage& released,
                                  const ReleasedStorage* argument) noexcept {
  ReleaseDecision decision{released.choice};
  if (released.exactness != Exactness::kMayBearNoise) {
    decision.choice = compress::block::lossless(released.choice.type);
  }
  decision.choice.bits = decision.choice.width();
  if (decision.choice.steps == Steps::kCurved && decision.choice.bits >= 8) {
    // Only groups with an outlier have steps as wide as that then.
    decision.choice.steps = Steps::kExponent;
  }
  decision.may_be_recomputed = argument != nullptr && !released.written && released.whole &&
                               argument->whole && as_good(decision.choice, argument->choice);
  return decision;
}

}  // namespace pleat::bridge
