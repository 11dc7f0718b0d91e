// Which node saves a tensor: the SavedVariable constructor has no argument for it. A node of
// torch's saves its inputs before it is recorded, and its results after that. A user's function
// makes all its saves right after it is recorded: in Python from code of libtorch_python, in C++
// from the call sites of AutogradContext.
#pragma once

#include <cstdint>

#include "torch_bridge/policy/node_class.h"
#include "torch_bridge/torch_access/torch_version.h"

namespace pleat::bridge {

// Records that this thread makes `node` the grad_fn of a tensor.
void note_gradient_edge(const torch::autograd::Node* node) noexcept;
// Number of such calls in this thread.
[[nodiscard]] std::uint64_t gradient_edges() noexcept;

// True if `call_site` belongs to the function in Python that this thread recorded last.
[[nodiscard]] bool saved_by_python_function(const void* call_site) noexcept;
// The same for a function in Python or in C++.
[[nodiscard]] bool saved_by_function(const void* call_site) noexcept;
// The same for a function in Python that torch.compile made of a graph. The backward of such a
// function is unknown, and the function itself has chosen its saves.
[[nodiscard]] bool saved_by_compiled_function(const void* call_site) noexcept;

}  // namespace pleat::bridge
