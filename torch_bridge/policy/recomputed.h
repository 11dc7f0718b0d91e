// Activations whose result is recomputed from the argument that they save themselves. A GELU's
// result is the next layer's input, and would be compressed in addition to the argument.
#pragma once

#include <mutex>

#include "compress/types.h"
#include "torch_bridge/torch_access/torch_version.h"

namespace pleat::bridge {

// The source from which the result of an activation can be recomputed.
struct RecomputedFrom {
  // kNone: unknown, or its argument is released.
  compress::Function function = compress::Function::kNone;
  // The hooks of the saved argument, Pleat's or foreign ones. They live while `held`, which keeps
  // other threads out of the node.
  torch::autograd::SavedVariableHooks* argument = nullptr;
  std::unique_lock<std::mutex> held;
};

// The source of the storage of a tensor with grad_fn `node`, valid if the storage was not written
// to since. Follows views. `node` must be alive. Never throws.
[[nodiscard]] RecomputedFrom recomputed_from(const torch::autograd::Node& node) noexcept;

}  // namespace pleat::bridge
