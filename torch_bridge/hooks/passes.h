// Backward passes as they begin and end, by whichever way they are seen.
#pragma once

#include "torch_bridge/policy/leaves.h"
#include "torch_bridge/torch_access/pass_state.h"

namespace pleat::bridge {

// Start and end of a backward pass, for installations without the preload library: over what this
// thread has recorded.
void backward_enter() noexcept;
void backward_exit() noexcept;

// A pass begins over the graph of these roots; of none: over what this thread has recorded.
void begin_pass(const torch::autograd::edge_list& roots, PassKind kind) noexcept;

// A pass while it lives.
class BackwardScope {
 public:
  BackwardScope(const torch::autograd::edge_list& roots, PassKind kind) noexcept
      : outer_(set_backward_creates_graph(kind.creates_graph)) {
    begin_pass(roots, kind);
  }
  ~BackwardScope() {
    backward_exit();
    set_backward_creates_graph(outer_);
  }
  BackwardScope(const BackwardScope&) = delete;
  BackwardScope& operator=(const BackwardScope&) = delete;

 private:
  const bool outer_;
};

}  // namespace pleat::bridge
