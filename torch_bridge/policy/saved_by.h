// The tensors that a node has saved, for nodes that were not seen as they were recorded (Pleat
// switched on by hand): those of the operators that networks are made of.
#pragma once

#include <mutex>
#include <span>
#include <vector>

#include "torch_bridge/torch_access/torch_version.h"

namespace pleat::bridge {

struct SavedBy {
  const torch::autograd::SavedVariableHooks* hooks;  // compare only
  int input;  // which of the node's inputs the tensor is; -1: a result
};

// Nothing for other nodes, and for one that runs just now. Throws std::bad_alloc.
[[nodiscard]] std::vector<SavedBy> saved_by(const torch::autograd::Node& node);

}  // namespace pleat::bridge
