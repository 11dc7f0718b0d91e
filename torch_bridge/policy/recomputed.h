// Activations of which the result is not stored but worked out again from the argument, which they
// save themselves: a GELU's result is the next layer's input, and would be compressed beside it.
#pragma once

#include <mutex>

#include "compress/types.h"
#include "torch_bridge/torch_access/torch_version.h"

namespace pleat::bridge {

// How an activation has made its result.
struct MadeBy {
  // kNone: not known, or its argument is given up.
  compress::Function function = compress::Function::kNone;
  // Of the saved argument; anybody's. Alive while `held`, which keeps other threads out of the
  // node.
  torch::autograd::SavedVariableHooks* argument = nullptr;
  std::unique_lock<std::mutex> held;
};

// How the storage of a tensor with this grad_fn was filled, if nobody has written to it since:
// views are looked through. `node` must be alive. Never throws.
[[nodiscard]] MadeBy made_by(const torch::autograd::Node& node) noexcept;

}  // namespace pleat::bridge
