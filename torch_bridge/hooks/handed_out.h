// The tensors that this thread has given to users' functions in its backward passes. Stock gives
// them the saved variable itself, to which the graph keeps a reference. If the variable was freed,
// these tensors replace it.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <cstdint>

#include "torch_bridge/torch_access/torch_version.h"

namespace pleat::bridge {

class TorchRecord;

// Keeps a reference to `tensor`, whose storage lives, until the backward pass is over, so that no
// accumulator takes the tensor for .grad. If passes are not observed, lending to another node drops
// the reference.
void lend(const torch::autograd::Node& node, const at::Tensor& tensor) noexcept;

struct GivenTensor {
  at::Tensor tensor;
  const c10::TensorImpl* variable = nullptr;  // the saved variable that it replaces; compare only
};

// Records that the running `node` gets a tensor of `record` in place of a freed saved variable.
// Holds the tensor if `hold`, or if it is the second view of one storage: stock's graph holds both
// views, so no accumulator takes either. A held tensor is dropped when another node unpacks and no
// other reference exists, or when the pass is over.
void give(const torch::autograd::Node& node, const TorchRecord& record, const GivenTensor& given,
          bool hold) noexcept;

// The tensors of `record` that `node` was given and still has, except those written to since.
[[nodiscard]] c10::SmallVector<GivenTensor, 2> given_to(const torch::autograd::Node& node,
                                                        const TorchRecord& record);

// Called when the running node, or `owner` if none runs, unpacks a tensor that `owner` saved. Drops
// the tensors given to other nodes of this pass, and what the running node was given of another
// owner's. A held tensor with other references can be a pending gradient and stays.
void forget_given_to_others(const torch::autograd::Node* owner) noexcept;

// Called when a backward pass of that depth is over: 1 is the outermost.
void forget_pass(int depth) noexcept;
// Called when no backward pass runs, in threads of devices either.
void forget_device_threads() noexcept;

}  // namespace pleat::bridge
