// The backends of CUDA devices: blocks in front of torch's own allocator. A device gets its backend
// when the first tensor there is judged. Until then nothing of CUDA is called.
#pragma once

#include <string>

#include "torch_bridge/core/runtime.h"
#include "torch_bridge/memory/device_backend.h"

namespace pleat::bridge {

// Opens the library that stands beside the bridge for CUDA, where this torch has CUDA, and puts its
// allocator in front of torch's. Once, while Pleat is installed. `why`: one line for a person where
// CUDA tensors are left to stock though torch has CUDA; empty otherwise.
void open_cuda(Runtime& runtime, std::string& why);

}  // namespace pleat::bridge
