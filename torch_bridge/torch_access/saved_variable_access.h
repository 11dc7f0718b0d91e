// Access to the two private members of SavedVariable that decide whether it can take new hooks.
#pragma once

#include <memory>

#include "torch_bridge/torch_access/torch_version.h"

namespace pleat::bridge {

// The hooks of `saved`; null: none. The caller must make sure that no thread removes them
// meanwhile.
[[nodiscard]] std::unique_ptr<torch::autograd::SavedVariableHooks>& hooks_of(
    torch::autograd::SavedVariable& saved) noexcept;
[[nodiscard]] torch::autograd::SavedVariableHooks* hooks_of(
    const torch::autograd::SavedVariable& saved) noexcept;

// The tensor that `saved` holds if it has no hooks.
[[nodiscard]] at::Tensor& data_of(torch::autograd::SavedVariable& saved) noexcept;

}  // namespace pleat::bridge
