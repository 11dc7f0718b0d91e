// The saved-tensor hooks: pack keeps a weak reference and tags the block, unpack returns the bytes.
// Unpack returns the storage itself if it lives, else a restored one. A tensor's path from here:
// tagging.h -> allocator/lifecycle/record.h -> residency.h -> BlockCodec -> compress/codec.h.
#pragma once

#include <memory>

#include "torch_bridge/policy/eligibility.h"
#include "torch_bridge/torch_access/torch_version.h"

namespace pleat::bridge {

// The arguments of the SavedVariable constructor, published by the interposed constructor in
// ThreadPolicy::construction.
struct ConstructionScope {
  const at::Tensor* variable = nullptr;
  SaveContext context;
};

// Hooks for the tensor under construction: null if it is ineligible (stock's own path and object
// identity are kept). Without a construction scope (no preload library) pack makes the decision.
[[nodiscard]] std::unique_ptr<torch::autograd::SavedVariableHooks> make_saved_tensor_hooks(
    Runtime& runtime);

// True for hooks of make_saved_tensor_hooks(), here called *own hooks*.
[[nodiscard]] bool is_saved_tensor_hooks(const torch::autograd::SavedVariableHooks* hooks) noexcept;

// The saved tensor, detached and without a version check, for a user's hooks that replace own
// `hooks`.
[[nodiscard]] at::Tensor value_of(torch::autograd::SavedVariableHooks& hooks);

// Returns the variable that own `hooks` packed, if it lives and still equals the save; else the
// tensor that the reading node got for it earlier. Both count as an unpack, and throw autograd's
// error if the variable was written to. Undefined: use call_unpack_hook().
[[nodiscard]] at::Tensor present_variable(torch::autograd::SavedVariableHooks& hooks);

// Records that autograd made `variable` from the result of call_unpack_hook().
void note_unpacked(torch::autograd::SavedVariableHooks& hooks, const at::Tensor& variable) noexcept;

}  // namespace pleat::bridge
