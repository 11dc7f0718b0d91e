// Reader identifies the code that unpacks a saved tensor, and decides its copy if the storage
// lives.
#pragma once

#include <ATen/core/Tensor.h>

#include "torch_bridge/policy/eligibility.h"
#include "torch_bridge/torch_access/torch_version.h"

namespace pleat::bridge {

// The code that unpacks. A user's code can return the tensor as a gradient, and an accumulator
// takes a gradient as it is.
struct Reader {
  bool formula = false;  // a formula of torch's, which returns none of its saves; or no pass runs
  // A user's node that runs, or whose hook runs. Null in a thread without a pass.
  const torch::autograd::Node* node = nullptr;
  // The node unpacks its own save, which stock releases once the node has run.
  bool lets_go = false;
};

// The current reader in this thread, for a tensor saved in `context`.
[[nodiscard]] Reader present_reader(const SaveContext& context);

// The tensor that the reader gets if the storage of the saved tensor lives. In stock the saved
// variable is a second reference to it, so no accumulator takes the tensor that a user's node
// returns. Stock keeps no reference to an output. `requires_grad`: of the saved variable.
[[nodiscard]] at::Tensor hand_living(at::Tensor living, const Reader& reader,
                                     const SaveContext& context, bool requires_grad);

}  // namespace pleat::bridge
