// The version error of a tensor that was written to after its save, word for word as stock's. It
// includes the errors that stock raises before it. Autograd leaves the check to the hooks.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "torch_bridge/torch_access/torch_version.h"

namespace pleat::bridge {

struct VersionMismatch {
  caffe2::TypeMeta dtype;
  c10::IntArrayRef sizes;
  const torch::autograd::Node* producer = nullptr;  // null: the text names no producer
  std::int64_t output_number = 0;
  std::uint32_t version = 0, saved_version = 0;
};

[[noreturn]] void throw_version_error(const VersionMismatch& mismatch);

// The origin of `variable` if it is a view whose base must not be written to; DEFAULT for all
// others.
[[nodiscard]] torch::autograd::CreationMeta creation_of(const at::Tensor& variable);

// Raises stock's error for a freed view, if its base must not be written to and was. Stock raises
// the error when it reads the grad_fn of the view that it holds. The view was output
// `output_number` of `producer`. No effect on other tensors.
void check_view(torch::autograd::CreationMeta creation, const torch::autograd::Node& producer,
                std::int64_t output_number);

// Raises stock's error for a saved variable that was detached in place, if stock has one.
void check_not_detached();

}  // namespace pleat::bridge
