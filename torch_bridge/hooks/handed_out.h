// What this thread has handed out to functions of users in the backward passes that it runs. Stock
// hands them the saved variable itself, to which the graph keeps a reference; where ours has died,
// these stand in for it.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <cstdint>

#include "torch_bridge/torch_access/torch_version.h"

namespace pleat::bridge {

class TorchRecord;

// Keeps a reference to a tensor whose storage lives until the backward pass is over, so that no
// accumulator takes it for .grad. Where passes are not seen: until another node is lent something.
void lend(const torch::autograd::Node& node, const at::Tensor& tensor) noexcept;

struct GivenTensor {
  at::Tensor tensor;
  const c10::TensorImpl* variable = nullptr;  // the saved one that it stands for; compare only
};

// `node`, which runs, is given a tensor of `record` that stands for a saved variable that has died.
// It is kept alive if `hold`, or if it is the second view of one storage: stock's graph holds both,
// so that no accumulator takes either. Then until another node unpacks and nobody else has it, or
// the pass is over.
void give(const torch::autograd::Node& node, const TorchRecord& record, const GivenTensor& given,
          bool hold) noexcept;

// What it was given of the record and still has, unless somebody has written to it.
[[nodiscard]] c10::SmallVector<GivenTensor, 2> given_to(const torch::autograd::Node& node,
                                                        const TorchRecord& record);

// The running node unpacks something, or `node` if none runs: what the other nodes of its pass were
// given is forgotten, but for what is held and somebody has: it may wait to be accumulated.
void forget_given_to_others(const torch::autograd::Node* node) noexcept;

// A backward pass of that depth is over: 1 is the outermost.
void forget_pass(int depth) noexcept;

}  // namespace pleat::bridge
