// The two private members of SavedVariable that decide whether it can take new hooks.
#pragma once

#include <memory>

#include "torch_bridge/torch_access/torch_version.h"

namespace pleat::bridge {

// The hooks it has; null if none. Nobody may take them off meanwhile.
[[nodiscard]] std::unique_ptr<torch::autograd::SavedVariableHooks>& hooks_of(
    torch::autograd::SavedVariable& saved) noexcept;
[[nodiscard]] torch::autograd::SavedVariableHooks* hooks_of(
    const torch::autograd::SavedVariable& saved) noexcept;

// What it holds itself where it has no hooks.
[[nodiscard]] at::Tensor& data_of(torch::autograd::SavedVariable& saved) noexcept;

}  // namespace pleat::bridge
