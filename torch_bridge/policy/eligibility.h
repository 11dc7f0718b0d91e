// The one place that decides whether a saved tensor gets a record, and with which key. What noise
// it may have is decided later: proofs.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "torch_bridge/core/codec_adapter.h"
#include "torch_bridge/core/runtime.h"
#include "torch_bridge/memory/device_backend.h"
#include "torch_bridge/policy/node_class.h"

namespace pleat::bridge {

// What the constructor of SavedVariable was called with. Not known without the preload library.
struct SaveContext {
  bool known = false;  // the others mean something
  bool is_output = false;
  bool is_inplace_on_view = false;
  const void* call_site = nullptr;
};

struct Decision {
  Reason reason = Reason::kDisabled;
  allocator::TensorKey key{};  // of the record that it gets if its storage has none
  compress::ElementType type{};
  // Of a floating tensor that asks for a gradient, where the mode allows noise: why it must be
  // exact, or that it may bear noise if that is shown to be harmless.
  Exactness exactness = Exactness::kOperator;
  DeviceBackend* backend = nullptr;   // of the device it lies on
  allocator::Block* block = nullptr;  // where the storage lies
  // The grad_fn of a tensor that is eligible, as long as that tensor lives.
  const torch::autograd::Node* producer = nullptr;
  std::uint32_t output_number = 0;

  [[nodiscard]] bool eligible() const noexcept {
    return reason == Reason::kEligibleLossy || reason == Reason::kEligibleLossless;
  }
  [[nodiscard]] bool may_be_lossy() const noexcept { return reason == Reason::kEligibleLossy; }
};

// A plain strided tensor of whatever device: nothing in its key set but what every such tensor has,
// plus lazy conjugation and negation.
[[nodiscard]] bool is_plain_strided(const c10::TensorImpl& tensor) noexcept;

// Decides about a tensor that is being saved. Never throws, counts nothing, teaches nothing. Takes
// the ledger's lock.
[[nodiscard]] Decision judge(Runtime& runtime, const at::Tensor& tensor,
                             const SaveContext& context) noexcept;

}  // namespace pleat::bridge
