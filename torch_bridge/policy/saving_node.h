// SavedVariable is not told which node saves. A node of torch's saves its inputs before it is
// recorded, and its results after that. A user's function saves all it saves right after it is
// recorded: in Python from code of libtorch_python, in C++ from the call sites of AutogradContext.
#pragma once

#include <cstdint>

#include "torch_bridge/policy/node_class.h"
#include "torch_bridge/torch_access/torch_version.h"

namespace pleat::bridge {

// This thread makes `node` the grad_fn of a tensor.
void note_gradient_edge(const torch::autograd::Node* node) noexcept;
// How many times this thread has done so.
[[nodiscard]] std::uint64_t gradient_edges() noexcept;

// True if the constructor was called from `call_site` for the function in Python that this thread
// has recorded last.
[[nodiscard]] bool saved_by_python_function(const void* call_site) noexcept;
// The same for a function in Python or in C++.
[[nodiscard]] bool saved_by_function(const void* call_site) noexcept;
// The same for one in Python that torch.compile has made of a graph. The backward of such a
// function may be anything, and the function itself has chosen what to save.
[[nodiscard]] bool saved_by_compiled_function(const void* call_site) noexcept;

}  // namespace pleat::bridge
