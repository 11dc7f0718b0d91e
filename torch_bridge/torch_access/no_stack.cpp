#include "torch_bridge/torch_access/no_stack.h"

#include <torch/csrc/profiler/combined_traceback.h>

namespace pleat::bridge {

std::shared_ptr<c10::GatheredContext> no_stack() {
  return torch::CapturedTraceback::gather(/*python=*/false, /*script=*/false, /*cpp=*/false);
}

}  // namespace pleat::bridge
