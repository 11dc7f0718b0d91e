// The treatment of a tensor that a node saves: noise at once, noise once a proof has come, or none.
// It follows from the use of the tensor in the node's backward.
#pragma once

#include "torch_bridge/core/runtime.h"
#include "torch_bridge/policy/claim.h"
#include "torch_bridge/policy/ledger.h"

namespace pleat::bridge {

// `input`: number of the node's input that is the tensor; -1: unknown. For claims of outputs, the
// number of the result. The node is alive.
[[nodiscard]] Treatment treat(Runtime& runtime, const Claim& claim,
                              const torch::autograd::Node& node, int input, Ledger& ledger);

}  // namespace pleat::bridge
