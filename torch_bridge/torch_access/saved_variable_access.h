// The two private members of SavedVariable that decide whether it can take new hooks.
#pragma once

#include <memory>

#include "torch_bridge/torch_access/torch_version.h"

namespace pleat::bridge {

// The hooks of `saved`; null: none. The caller knows that nobody takes them off meanwhile.
[[nodiscard]] std::unique_ptr<torch::autograd::SavedVariableHooks>& hooks_of(
    torch::autograd::SavedVariable& saved) noexcept;
[[nodiscard]] torch::autograd::SavedVariableHooks* hooks_of(
    const torch::autograd::SavedVariable& saved) noexcept;

// The tensor that `saved` holds where it has no hooks.
[[nodiscard]] at::Tensor& data_of(torch::autograd::SavedVariable& saved) noexcept;

}  // namespace pleat::bridge
