// What this thread has handed out to functions of users in the backward passes that it runs. Stock
// hands out the saved variable itself, to which the graph keeps a reference. Where ours has died,
// the tensors here stand in for it.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <cstdint>

#include "torch_bridge/torch_access/torch_version.h"

namespace pleat::bridge {

class TorchRecord;

// Keeps a reference to `tensor`, whose storage lives, until the backward pass is over: no
// accumulator takes the tensor for .grad then. Where passes are not seen, the reference goes when
// another node is lent something.
void lend(const torch::autograd::Node& node, const at::Tensor& tensor) noexcept;

struct GivenTensor {
  at::Tensor tensor;
  const c10::TensorImpl* variable = nullptr;  // the saved one that it stands for; compare only
};

// Notes that `node`, which runs, is given a tensor of `record` in place of a saved variable that
// has died. Holds the tensor if `hold`, or if it is the second view of one storage: stock's graph
// holds both views, so no accumulator takes either. A held tensor goes when another node unpacks
// and nobody else has the tensor, or when the pass is over.
void give(const torch::autograd::Node& node, const TorchRecord& record, const GivenTensor& given,
          bool hold) noexcept;

// The tensors of `record` that `node` was given and still has, but for those that were written to.
[[nodiscard]] c10::SmallVector<GivenTensor, 2> given_to(const torch::autograd::Node& node,
                                                        const TorchRecord& record);

// Called when the running node unpacks something, or `node` if none runs. Drops what was handed to
// other nodes of this pass. Keeps a tensor that we hold and someone else references: it may be a
// pending gradient.
void forget_given_to_others(const torch::autograd::Node* node) noexcept;

// A backward pass of that depth is over: 1 is the outermost.
void forget_pass(int depth) noexcept;
// No backward pass runs: nor does any in a thread of a device.
void forget_device_threads() noexcept;

}  // namespace pleat::bridge
