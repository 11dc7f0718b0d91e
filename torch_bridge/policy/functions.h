// Functions whose formulas Pleat cannot inspect, and the user's promises about them
// (core/proof_book.h). They are functions of users in Python and C++, of custom operators, of
// torch.compile and of TorchScript.
#pragma once

#include <string>

#include "torch_bridge/core/proof_book.h"
#include "torch_bridge/policy/node_class.h"
#include "torch_bridge/torch_access/torch_version.h"

namespace pleat::bridge {

// `node` must be alive. These functions never take the interpreter's lock, because the caller can
// hold the ledger's.
// The promise for the function of this node. kNone for torch's own operators.
[[nodiscard]] Trust trust_in(const torch::autograd::Node& node) noexcept;

// The counters of that function; null for torch's own operators.
[[nodiscard]] ProofBook::Function* function_of(const torch::autograd::Node& node) noexcept;

// The name of the node in the report. Throws std::bad_alloc.
[[nodiscard]] std::string shown_name(const torch::autograd::Node& node);

}  // namespace pleat::bridge
