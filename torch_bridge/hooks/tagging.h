// From a tensor that is being saved to the record of its storage. The record is a new one, or an
// existing one for the same bytes. Afterwards residency owns the bytes.
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
  const Eligibility& eligibility;
  const SaveContext& context;
};

// The state that a hook keeps about its saved tensor.
struct SavedTensor {
  TorchRecord* record = nullptr;  // holds one reference; null if the tensor was not tagged
  SavedVariableSlot original;     // empty for an output of the node that saves it
  c10::VariableVersion version;
  std::uint32_t saved_version = 0;
  bool requires_grad = false;
  // Only for eligible tensors, like the record and the original:
  StridedView view;
  // Alive as long as the SavedVariable that owns the hook: one of the two holds the other.
  const torch::autograd::Node* producer = nullptr;
  std::int64_t output_number = 0;
  torch::autograd::CreationMeta creation{};  // the way a view was made
  Claim* claim = nullptr;                    // with a counted reference; null: no open decision
};

// Sets all members of `saved` except the record and the original.
void remember(SavedTensor& saved, const Save& save);

// Gives an eligible tensor its record, and a claim if it can become lossy. `link` and `hooks` are
// one object, which lives as long as `saved` has the claim. False if the record of the tensor's
// block is for other bytes. Throws std::bad_alloc; `saved` has no record then.
[[nodiscard]] bool tag(SavedTensor& saved, const Save& save, LateLink& link,
                       const torch::autograd::SavedVariableHooks& hooks);

// Releases the record and the claim.
void untag(SavedTensor& saved) noexcept;

// Lets `result` be recomputed from the payload of `argument`, if both are on one device and the
// argument was not written to since it was saved. `how`: the function that made the result.
void recompute_from(const SavedTensor& result, const SavedTensor& argument,
                    const Recomputed& how) noexcept;

}  // namespace pleat::bridge
