#include "torch_bridge/core/release_policy.h"

namespace pleat::bridge {
namespace {

using compress::block::Kept;
using compress::block::Look;
using compress::block::Steps;

CodecChoice with_lessons(CodecChoice choice, Needs taught) noexcept {
  if (choice.bits == 0) {
    return choice;
  }
  if (taught.care >= Care::kExact) {
    choice.bits = 0;
  }
  if (taught.rows != Rows::kNone && choice.lines.look == Look::kZeroRows) {
    choice.lines.look = Look::kRows;
  }
  return choice;
}

// As good as its own payload: as many bits, and nobody who needs more than those.
bool as_good(CodecChoice own, CodecChoice argument) noexcept {
  return own.bits != 0 && own.kept == Kept::kValues && own.steps != Steps::kExponent &&
         !own.near_zero && !own.sides.any() && own.lines.look <= Look::kZeroRows &&
         own.type == argument.type && (argument.bits == 0 || argument.bits >= own.bits);
}

}  // namespace

ReleaseDecision decide_at_release(const ReleasedStorage& released,
                                  const ReleasedStorage* argument) noexcept {
  ReleaseDecision decision{with_lessons(released.choice, released.taught)};
  decision.may_be_recomputed = argument != nullptr && !released.written && released.whole &&
                               argument->whole && as_good(decision.choice, argument->choice);
  return decision;
}

}  // namespace pleat::bridge
