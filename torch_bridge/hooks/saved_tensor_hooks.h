// The saved-tensor hooks. Pack keeps a weak reference and tags the block. Unpack hands out the very
// storage if it lives, else a restored one. The way of a tensor from here on: tagging.h ->
// allocator/residency/record.h -> residency.h -> BlockCodec -> compress/codec.h.
#pragma once

#include <memory>

#include "torch_bridge/policy/eligibility.h"
#include "torch_bridge/torch_access/torch_version.h"

namespace pleat::bridge {

// What the SavedVariable constructor was called with, published by the interposed constructor.
struct ConstructionScope {
  const at::Tensor* variable = nullptr;
  SaveContext context;
};
[[nodiscard]] ConstructionScope*& current_construction() noexcept;

// Hooks for the tensor under construction: null if it is ineligible (stock's own path is kept,
// object identity and all). Without a construction scope (no preload library) the decision falls in
// pack.
[[nodiscard]] std::unique_ptr<torch::autograd::SavedVariableHooks> make_saved_tensor_hooks(
    Runtime& runtime);

// True for hooks made here.
[[nodiscard]] bool is_saved_tensor_hooks(const torch::autograd::SavedVariableHooks* hooks) noexcept;

// The tensor that was saved, detached and without a version check, for a user's hooks that replace
// `hooks`, made here.
[[nodiscard]] at::Tensor value_of(torch::autograd::SavedVariableHooks& hooks);

// Returns the variable that `hooks`, made here, were given, if the variable lives and still stands
// for what was saved; or the tensor that the asking node was given for it before. Both count as an
// unpack, and throw autograd's error if the variable was written to. Undefined: ask
// call_unpack_hook().
[[nodiscard]] at::Tensor present_variable(torch::autograd::SavedVariableHooks& hooks);

// Autograd has made `variable` from what call_unpack_hook() returned.
void note_unpacked(torch::autograd::SavedVariableHooks& hooks, const at::Tensor& variable) noexcept;

}  // namespace pleat::bridge
