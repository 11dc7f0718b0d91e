// Functions that we cannot look into: users' own, in Python and in C++, those of custom operators,
// of torch.compile and of TorchScript. What users promise of them (core/proof_book.h).
#pragma once

#include <string>

#include "torch_bridge/core/proof_book.h"
#include "torch_bridge/policy/node_class.h"
#include "torch_bridge/torch_access/torch_version.h"

namespace pleat::bridge {

// All take a node that is alive. None takes the interpreter's lock, as the ledger's may be held.

// What is promised of the function whose node this is. None for torch's own operators.
[[nodiscard]] Trust trust_in(const torch::autograd::Node& node) noexcept;

// Where the cost of that function is counted; null for torch's own operators.
[[nodiscard]] ProofBook::Function* function_of(const torch::autograd::Node& node) noexcept;

// How the report calls the node. Throws std::bad_alloc.
[[nodiscard]] std::string shown_name(const torch::autograd::Node& node);

}  // namespace pleat::bridge
