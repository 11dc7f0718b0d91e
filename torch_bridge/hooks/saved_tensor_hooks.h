// The saved-tensor hooks: pack keeps a weak reference and tags the block, unpack hands out the very
// storage if it lives and a restored one if it does not. The way of a tensor from here on:
// tagging.h -> allocator/residency/record.h -> residency.h -> BlockCodec -> compress/codec.h.
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

// What was saved, unchecked and detached, for hooks of a user that replace `hooks`, made here.
[[nodiscard]] at::Tensor value_of(torch::autograd::SavedVariableHooks& hooks);

// The variable that `hooks`, made here, were given, if it lives and still stands for what was
// saved; or what the node that asks has of it already. Undefined if call_unpack_hook() is to be
// asked. Counts as an unpack. Throws autograd's error if it was written to.
[[nodiscard]] at::Tensor present_variable(torch::autograd::SavedVariableHooks& hooks);

// Autograd has made `variable` from what call_unpack_hook() returned.
void note_unpacked(torch::autograd::SavedVariableHooks& hooks, const at::Tensor& variable) noexcept;

}  // namespace pleat::bridge
