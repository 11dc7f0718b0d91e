// From a tensor that is being saved to the record of its storage. The record is one that stands for
// the same bytes already, or a new one. From then on the bytes are residency's.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "torch_bridge/memory/torch_record.h"
#include "torch_bridge/policy/eligibility.h"
#include "torch_bridge/policy/proofs.h"
#include "torch_bridge/torch_access/strided_view.h"
#include "torch_bridge/torch_access/torch_version.h"

namespace pleat::bridge {

// A tensor while it is being saved.
struct Save {
  Runtime& runtime;
  const at::Tensor& tensor;
  const Decision& decision;
  const SaveContext& context;
};

// What a hook remembers of the tensor that it has saved.
struct SavedTensor {
  TorchRecord* record = nullptr;  // holds one reference; null if the tensor was not tagged
  SavedVariableSlot original;     // empty for an output of the node that saves it
  c10::VariableVersion version;
  std::uint32_t saved_version = 0;
  bool requires_grad = false;
  // Of eligible tensors only, as are the record and the original:
  StridedView view;
  // Alive as long as the SavedVariable that owns the hook: it holds its grad_fn, or is held by it.
  const torch::autograd::Node* producer = nullptr;
  std::int64_t output_number = 0;
  torch::autograd::CreationMeta creation{};  // how a view came to be
  Claim* claim = nullptr;                    // with a reference; null: nothing to decide
};

// Fills in everything in `saved` but the record and the original.
void remember(SavedTensor& saved, const Save& save);

// Gives an eligible tensor its record, and a claim if it might be lossy. `link` and `hooks`, which
// are one object, live as long as `saved` has the claim. False if the tensor's block has a record
// that stands for other bytes. Throws std::bad_alloc; `saved` has no record then.
[[nodiscard]] bool tag(SavedTensor& saved, const Save& save, LateLink& link,
                       const torch::autograd::SavedVariableHooks& hooks);

// Gives the record up, and the claim with it.
void untag(SavedTensor& saved) noexcept;

// Lets `result` be recomputed from the payload of `argument`, if both lie on one device and nobody
// has written to the argument since it was saved. `how`: the function that has made the result.
void recompute_from(const SavedTensor& result, const SavedTensor& argument,
                    const Recomputed& how) noexcept;

}  // namespace pleat::bridge
