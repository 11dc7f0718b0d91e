// Listens to operators, backward nodes, optimizers and passes for a trace, and marks its phases.
#pragma once

#include <array>
#include <cstdint>

#include "torch_bridge/torch_access/torch_version.h"

namespace pleat::bridge {

// Callbacks of torch, from the start of a trace to its end. One thread at a time.
class OperatorListener {
 public:
  // `modules`: calls of modules are marked too.
  void start(bool modules);
  void stop() noexcept;

 private:
  std::array<std::uint64_t, 2> callbacks_{};  // at::CallbackHandle; 0: none
};

// Forward has recorded the node in this thread.
void trace_recorded(const torch::autograd::Node& node) noexcept;
// An outermost backward pass of this thread begins, ends.
void trace_pass_begins() noexcept;
void trace_pass_ends() noexcept;

}  // namespace pleat::bridge
