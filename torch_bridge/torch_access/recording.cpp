#include "torch_bridge/torch_access/recording.h"

#include <ATen/record_function.h>

#include <algorithm>
#include <utility>

namespace pleat::bridge {
namespace {

// Without a destructor: other thread-locals may record something after ours have gone.
thread_local KeyBook::Recording* recording = nullptr;

}  // namespace

KeyBook::Recording* this_recording(KeyBook& book) noexcept {
  if (recording == nullptr) [[unlikely]] {
    try {
      recording = new KeyBook::Recording(book, at::RecordFunction::currentThreadId());
      struct AtThreadEnd {
        ~AtThreadEnd() { delete std::exchange(recording, nullptr); }
      };
      thread_local const AtThreadEnd at_thread_end;
      static_cast<void>(at_thread_end);
    } catch (...) {
    }
  }
  return recording;
}

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
