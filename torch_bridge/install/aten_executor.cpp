#include "torch_bridge/install/aten_executor.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "torch_bridge/core/runtime.h"

namespace pleat::bridge {
namespace {

bool has_threads() {
  const Runtime* const runtime = Runtime::get();
  return Runtime::thread_computes() && (runtime == nullptr || !runtime->retired()) &&
         !at::in_parallel_region() && at::get_num_threads() > 1;
}

}  // namespace

void aten_executor(std::size_t items, std::size_t grain,
                   const std::function<void(std::size_t, std::size_t)>& body) {
  if (items == 0) {
    return;
  }
  if (items <= grain || !has_threads()) {
    body(0, items);
    return;
  }
  // Idle threads take the next part. With fixed halves, all would wait for a thread that the
  // machine or a page fault delays.
  const std::size_t parts = (items + grain - 1) / grain;
  const std::size_t threads = std::min(static_cast<std::size_t>(at::get_num_threads()), parts);
  std::atomic<std::size_t> next{0};
  at::parallel_for(0, static_cast<std::int64_t>(threads), 1, [&](std::int64_t, std::int64_t) {
    for (;;) {
      const std::size_t begin = next.fetch_add(1, std::memory_order_relaxed) * grain;
      if (begin >= items) {
        return;
      }
      body(begin, std::min(begin + grain, items));
    }
  });
}

}  // namespace pleat::bridge
