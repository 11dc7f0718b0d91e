// The error of a tensor that was written to after it was saved, word for word as stock's. Autograd
// leaves the check to whoever has hooks.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "torch_bridge/torch_access/torch_version.h"

namespace pleat::bridge {

struct VersionMismatch {
  caffe2::TypeMeta dtype;
  c10::IntArrayRef sizes;
  const torch::autograd::Node* producer = nullptr;  // null: the text names none
  std::int64_t output_number = 0;
  std::uint32_t version = 0, saved_version = 0;
};

[[noreturn]] void throw_version_error(const VersionMismatch& mismatch);

}  // namespace pleat::bridge
