// The backends of CUDA devices: blocks in front of torch's own allocator. A device gets its backend
// when its first tensor is judged. Until then Pleat makes no CUDA call.
#pragma once

#include <string>

#include "torch_bridge/core/runtime.h"
#include "torch_bridge/memory/device_backend.h"

namespace pleat::bridge {

// If this torch has CUDA, opens the CUDA library next to the bridge, and puts its allocator in
// front of torch's. Once, while Pleat is installed. `why`: one line for a person if CUDA tensors
// are left to stock although torch has CUDA; empty otherwise.
void open_cuda(Runtime& runtime, std::string& why);

}  // namespace pleat::bridge
