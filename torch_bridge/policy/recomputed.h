// Activations whose result is not stored but recomputed from their argument, which they save
// themselves. A GELU's result is the next layer's input, and would be compressed beside the
// argument.
#pragma once

#include <mutex>

#include "compress/types.h"
#include "torch_bridge/torch_access/torch_version.h"

namespace pleat::bridge {

// What the result of an activation can be recomputed from.
struct RecomputedFrom {
  // kNone: not known, or its argument is given up.
  compress::Function function = compress::Function::kNone;
  // The hooks of the saved argument, ours or somebody else's. They live while `held`, which keeps
  // other threads out of the node.
  torch::autograd::SavedVariableHooks* argument = nullptr;
  std::unique_lock<std::mutex> held;
};

// What the storage of a tensor with grad_fn `node` can be recomputed from, if nobody has written to
// the storage since. Looks through views. `node` must be alive. Never throws.
[[nodiscard]] RecomputedFrom recomputed_from(const torch::autograd::Node& node) noexcept;

}  // namespace pleat::bridge
