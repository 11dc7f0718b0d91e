#include "torch_bridge/policy/policy_state.h"

#include <type_traits>

namespace pleat::bridge {

static_assert(std::is_trivially_destructible_v<ThreadPolicy>);
constinit thread_local ThreadPolicy thread_policy;

PolicyState& PolicyState::get() noexcept {
  static auto* const state = new PolicyState;  // leaked: nodes are looked up until the process ends
  return *state;
}

}  // namespace pleat::bridge
