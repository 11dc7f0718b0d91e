// Says in a trace which blocks are parameters and which are gradients: the graph's leaves.
#pragma once

#include "torch_bridge/torch_access/torch_version.h"

namespace pleat::bridge {

// A pass over the graph of these roots begins in this thread. The graph is walked in the first
// passes, then in fewer and fewer of them.
void label_leaves(const torch::autograd::edge_list& roots) noexcept;
// The pass is over: what the leaves have accumulated.
void label_gradients() noexcept;

}  // namespace pleat::bridge
