// Who asks for a saved tensor in backward, and how one whose storage lives is handed to him.
#pragma once

#include <ATen/core/Tensor.h>

#include "torch_bridge/policy/eligibility.h"
#include "torch_bridge/torch_access/torch_version.h"

namespace pleat::bridge {

// Who asks. Code of a user may hand the tensor on as a gradient, which an accumulator takes as it
// is.
struct Reader {
  bool formula = false;  // of torch's, which returns nothing that it saved; or no pass runs
  // A user's that runs, or whose hook does. Null in a thread without a pass.
  const torch::autograd::Node* node = nullptr;
  bool lets_go = false;  // it asks for what it saved itself, which stock gives up once it has run
};

// Of this thread now, for what was saved in `context`.
[[nodiscard]] Reader present_reader(const SaveContext& context);

// What the reader gets of a saved tensor whose storage lives. In stock the saved variable is a
// second reference to it, so that no accumulator takes what a user's node hands on; of an output
// stock keeps none. `requires_grad`: of the saved variable.
[[nodiscard]] at::Tensor hand_living(at::Tensor living, const Reader& reader,
                                     const SaveContext& context, bool requires_grad);

}  // namespace pleat::bridge
