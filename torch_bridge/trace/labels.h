// Labels in a trace the blocks of the graph's leaves: parameters and their gradients.
#pragma once

#include "torch_bridge/torch_access/torch_version.h"

namespace pleat::bridge {

// Labels the leaves when a pass over the graph of these roots begins in this thread. Walks the
// graph in the first passes, then in fewer and fewer of them.
void label_leaves(const torch::autograd::edge_list& roots) noexcept;
// Labels the gradients that the leaves have accumulated when the pass is over.
void label_gradients() noexcept;

}  // namespace pleat::bridge
