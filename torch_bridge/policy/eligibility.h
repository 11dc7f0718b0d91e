// The one place that decides whether a saved tensor gets a record, with which codec choice and key.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>

#include "torch_bridge/core/codec_adapter.h"
#include "torch_bridge/core/runtime.h"
#include "torch_bridge/memory/device_backend.h"
#include "torch_bridge/policy/before_pole.h"
#include "torch_bridge/policy/node_class.h"

namespace pleat::bridge {

// What the constructor of SavedVariable was called with. Not known without the preload library.
struct SaveContext {
  bool known = false;  // the others mean something
  bool is_output = false;
  bool is_inplace_on_view = false;
  const void* call_site = nullptr;
  Care care = Care::kNone;  // at least; what is known of the node beside its call site
};

struct Decision {
  Reason reason = Reason::kDisabled;
  std::uint64_t family = 0;           // key without ordinal; 0 until eligible
  allocator::TensorKey key{};         // of the record that it gets if its storage has none
  CodecChoice choice{};               // with the width of `key`
  CodecChoice least{};                // with the least width that will do; 0: no noise at all
  std::uint64_t lesson = 0;           // under which name the first unpack teaches the consumer
  std::uint64_t saver = 0;            // as Product::saver
  bool saves_input = false;           // the argument of a node whose backward reads it: CallSite
  DeviceBackend* backend = nullptr;   // of the device it lies on
  allocator::Block* block = nullptr;  // where the storage lies
  // The grad_fn of a tensor that is eligible or at a pole, as long as that tensor lives.
  const torch::autograd::Node* producer = nullptr;
  std::uint32_t output_number = 0;
  // An operator with a pole saves the tensor, as its argument or result: whoever records the save
  // owes teach_before_pole(), with `producer`.
  bool at_pole = false;

  [[nodiscard]] bool eligible() const noexcept {
    return reason == Reason::kEligibleLossy || reason == Reason::kEligibleLossless;
  }
  // With the width of another key; 0: lossless.
  [[nodiscard]] CodecChoice choice_of_width(std::uint8_t width) const noexcept {
    CodecChoice choice = least;
    if (width == 0 || least.bits == 0) {
      return {.type = least.type};
    }
    choice.bits = std::max(width, least.bits);
    return choice;
  }
};

// A plain strided tensor of whatever device: nothing in its key set but what every such tensor has,
// plus lazy conjugation and negation.
[[nodiscard]] bool is_plain_strided(const c10::TensorImpl& tensor) noexcept;

// Decides about a tensor that is being saved. Never throws. Counts nothing, teaches nothing, and
// does not take the ordinal of the key. Locks only where a look-up misses its cache.
[[nodiscard]] Decision judge(Runtime& runtime, const at::Tensor& tensor,
                             const SaveContext& context) noexcept;

}  // namespace pleat::bridge
