// judge() decides whether a saved tensor gets a record, and with which key. proofs.h decides later
// about noise.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "torch_bridge/core/codec_adapter.h"
#include "torch_bridge/core/runtime.h"
#include "torch_bridge/memory/device_backend.h"
#include "torch_bridge/policy/node_class.h"

namespace pleat::bridge {

// The arguments of the SavedVariable constructor. Unknown without the preload library.
struct SaveContext {
  bool known = false;  // the other members are set
  bool is_output = false;
  bool is_inplace_on_view = false;
  const void* call_site = nullptr;
};

struct Eligibility {
  Reason reason = Reason::kDisabled;
  allocator::TensorKey key{};  // key of a new record, if the storage has none
  compress::ElementType type{};
  // For a floating tensor that requires a gradient, if the mode allows noise: the reason to keep it
  // exact, or that it can bear noise once that is shown to be harmless.
  Exactness exactness = Exactness::kOperator;
  DeviceBackend* backend = nullptr;   // of the tensor's device
  allocator::Block* block = nullptr;  // block of the storage
  // The grad_fn of an eligible tensor, valid as long as that tensor lives.
  const torch::autograd::Node* producer = nullptr;
  std::uint32_t output_number = 0;

  [[nodiscard]] bool eligible() const noexcept {
    return reason == Reason::kEligibleLossy || reason == Reason::kEligibleLossless;
  }
  [[nodiscard]] bool may_be_lossy() const noexcept { return reason == Reason::kEligibleLossy; }
};

// A plain strided tensor of any device: its key set has only the keys of every such tensor, plus
// lazy conjugation and negation.
[[nodiscard]] bool is_plain_strided(const c10::TensorImpl& tensor) noexcept;

// Decides about a tensor that is being saved. Never throws, changes no counter and no learned
// state. Takes the ledger's lock.
[[nodiscard]] Eligibility judge(Runtime& runtime, const at::Tensor& tensor,
                                const SaveContext& context) noexcept;

}  // namespace pleat::bridge
