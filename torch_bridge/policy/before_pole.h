// What must be exact because a pole follows. The derivative of log at x is 1/x: it multiplies
// whatever noise the derivatives before it carry, without bound as x goes to zero. In
// log(sigmoid(u) + e) stock's s (1 - s) goes to zero with it and the two cancel; with a noisy s
// they do not.
//
// That s is read in backward by sigmoid, and when it is saved nobody knows of the log. So the
// operator at the pole, when it saves its argument, looks back along the graph through what works
// element by element, and teaches what it finds: from then on such tensors are exact. When their
// kind is new, those that might stand before a pole wait a few operators before they are
// compressed, so that the first lesson comes in time.
#pragma once

#include <ATen/core/TensorBase.h>

#include <cstdint>

#include "torch_bridge/core/runtime.h"
#include "torch_bridge/policy/node_class.h"
#include "torch_bridge/torch_access/torch_version.h"

namespace pleat::bridge {

// Product::saver of what a node saves of its own outputs.
inline constexpr std::uint64_t kSavedByProducer = 1;

// A tensor as one node makes it and one saves it.
struct Product {
  const torch::autograd::Node* producer;  // alive
  std::uint32_t output_number;
  std::uint64_t
      saver;  // hash of the class of the node that saves it, or kSavedByProducer; 0: not known
};

// `saved` is the argument of the operator with the pole, and `producer` made it; or it is that
// operator's result (`is_result`), and `producer` is the operator. Reads the values where a sum of
// many lies between: a hand-written softmax divides by one of at least 1, but the log of the few
// probabilities that a mask leaves has its pole close by. Any thread.
void teach_before_pole(Runtime& runtime, const torch::autograd::Node& producer,
                       const at::TensorBase& saved, bool is_result) noexcept;

// Under which name such tensors of `sizes` are taught, and what has been.
[[nodiscard]] std::uint64_t lesson_before_pole(const Product& product,
                                               at::IntArrayRef sizes) noexcept;
[[nodiscard]] Needs needs_before_pole(Runtime& runtime, const Product& product,
                                      at::IntArrayRef sizes) noexcept;

}  // namespace pleat::bridge
