#include "torch_bridge/torch_access/recording.h"

#include <ATen/record_function.h>

#include <algorithm>

namespace pleat::bridge {
ThreadNumbers recorders_of(const torch::autograd::edge_list& roots) {
  ThreadNumbers threads;
  for (const torch::autograd::Edge& root : roots) {
    if (root.function == nullptr) {
      continue;
    }
    const std::uint64_t thread = root.function->thread_id();
    if (std::find(threads.begin(), threads.end(), thread) == threads.end()) {
      threads.push_back(thread);
    }
  }
  if (threads.empty()) {
    threads.push_back(at::RecordFunction::currentThreadId());
  }
  return threads;
}

}  // namespace pleat::bridge
