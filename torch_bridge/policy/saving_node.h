// What can be known, while a tensor is being saved, of the node that saves it. The constructor of
// SavedVariable is not told which node saves. Here are the cases where the node matters and the
// call site does not name it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "torch_bridge/policy/node_class.h"
#include "torch_bridge/torch_access/torch_version.h"

namespace pleat::bridge {

// True for x^n with n = 0, 1, 2, ...: its derivatives are polynomials. Any other exponent has a
// pole or a branch point at zero, where a value restored a little closer to it is a gradient far
// off.
[[nodiscard]] bool is_polynomial(const at::Scalar& exponent) noexcept;

// While it lives, what this thread saves is read by a pow of that exponent.
class PowInProgress {
 public:
  explicit PowInProgress(const at::Scalar& exponent) noexcept;
  ~PowInProgress();
  PowInProgress(const PowInProgress&) = delete;
  PowInProgress& operator=(const PowInProgress&) = delete;

 private:
  bool outer_;
};

// True if what this thread saves now is read by a pow, of whatever exponent.
[[nodiscard]] bool pow_is_in_progress() noexcept;

// The least care for what this thread saves now from `call_site`.
[[nodiscard]] Care care_of_saves_in_progress(const void* call_site) noexcept;

// This thread makes `node` the grad_fn of a tensor. A function written in Python saves its tensors
// right after that, from code of libtorch_python.
void note_gradient_edge(const torch::autograd::Node* node) noexcept;
// How many times this thread has done so.
[[nodiscard]] std::uint64_t gradient_edges() noexcept;

// True if the constructor was called from `call_site` for a function that torch.compile has made of
// a graph. The backward of such a function may be anything, and the function itself has chosen what
// to save.
[[nodiscard]] bool saved_by_compiled_function(const void* call_site) noexcept;

// How much noise `node`, which has just unpacked a tensor, can bear. Unlike its class's as_consumer
// this looks at the node itself.
[[nodiscard]] Needs needs_of_consumer(const torch::autograd::Node& node) noexcept;

}  // namespace pleat::bridge
