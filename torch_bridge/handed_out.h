// What this thread has handed out to functions of users in the backward passes that it runs. Stock hands
// them the saved variable itself, to which the graph keeps a reference; where ours has died, these stand
// in for it. A restored tensor is kept alive no longer than its node runs.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <cstdint>

#include "torch_bridge/torch_version.h"

namespace pleat::bridge {

class TorchRecord;

// Keeps a reference to a tensor whose storage lives until the backward pass is over, so that no
// accumulator takes it for .grad. Where passes are not seen: until another node is lent something.
void lend(const torch::autograd::Node& node, const at::Tensor& tensor) noexcept;

// A backward pass of that depth is over: 1 is the outermost.
void drop_lent(int depth) noexcept;

// Keeps a reference as long as `node` and the accumulators of its gradients run: until another node
// unpacks something, or the pass is over.
void hold(const torch::autograd::Node& node, const at::Tensor& tensor) noexcept;
[[nodiscard]] bool holds_any() noexcept;
void drop_held_unless(const torch::autograd::Node* running) noexcept;

struct HandedOut {
  at::Tensor tensor;
  std::int64_t offset = 0;  // of the saved one in its storage, in elements
};

// `node`, which runs, was given a restored tensor of `record`.
void note_handed_out(const torch::autograd::Node& node, const TorchRecord* record,
                     const HandedOut& given) noexcept;

// What it was given of it and still has, unless somebody has written to it.
[[nodiscard]] c10::SmallVector<HandedOut, 2> handed_out(const torch::autograd::Node& node,
                                                        const TorchRecord* record);

}  // namespace pleat::bridge
