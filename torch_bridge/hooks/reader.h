// Who asks for a saved tensor in backward, and what the reader gets if the tensor's storage lives.
#pragma once

#include <ATen/core/Tensor.h>

#include "torch_bridge/policy/eligibility.h"
#include "torch_bridge/torch_access/torch_version.h"

namespace pleat::bridge {

// Who asks. A user's code may hand the tensor on as a gradient, and an accumulator takes a gradient
// as it is.
struct Reader {
  bool formula = false;  // of torch's, which returns nothing that it saved; or no pass runs
  // A user's that runs, or whose hook does. Null in a thread without a pass.
  const torch::autograd::Node* node = nullptr;
  // The node asks for what it saved itself, which stock gives up once the node has run.
  bool lets_go = false;
};

// The reader in this thread now, of a tensor that was saved in `context`.
[[nodiscard]] Reader present_reader(const SaveContext& context);

// What the reader gets of a saved tensor whose storage lives. In stock the saved variable is a
// second reference to the tensor, so no accumulator takes what a user's node hands on. Stock keeps
// no reference to an output. `requires_grad`: of the saved variable.
[[nodiscard]] at::Tensor hand_living(at::Tensor living, const Reader& reader,
                                     const SaveContext& context, bool requires_grad);

}  // namespace pleat::bridge
