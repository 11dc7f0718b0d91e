#include "torch_bridge/policy/policy_state.h"

#include <type_traits>

namespace pleat::bridge {

static_assert(std::is_trivially_destructible_v<ThreadPolicy>);
constinit thread_local ThreadPolicy thread_policy;

namespace {

// Leaked: nodes are looked up until the process ends. Made when the library is loaded, because the
// first use can be in a forked child.
PolicyState& state = *new PolicyState;

}  // namespace

PolicyState& PolicyState::get() noexcept { return state; }

}  // namespace pleat::bridge
