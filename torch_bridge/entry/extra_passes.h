// Backward passes of our own over the graph of a pass that is about to begin. They keep the graph,
// and return the gradients of its leaves instead of accumulating them: what the script sees is
// the pass it asked for, and nothing else. Whoever reads a gradient with other values of what was
// saved (PassValues) asks here.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <string>

#include "torch_bridge/torch_access/pass_state.h"
#include "torch_bridge/torch_access/torch_version.h"

namespace pleat::bridge {

// What a walk over the graph of a pass finds.
struct GraphSurvey {
  torch::autograd::edge_list leaves;  // accumulators, in the order in which the walk meets them
  std::size_t functions = 0;          // nodes of functions in Python, whose code would run again
  std::size_t hooks = 0;              // of users, on nodes: they would run again, too
  std::string obstacle;               // why no extra pass may run; empty: none
};
// Any thread, while the graph lives. Linear in its edges.
[[nodiscard]] GraphSurvey survey(const torch::autograd::edge_list& roots);

class ExtraPasses {
 public:
  // Runs a backward pass of this thread from the roots to these edges, keeping the graph, and
  // returns what arrives there. Throws what a node throws.
  using Run = std::function<torch::autograd::variable_list(const torch::autograd::edge_list&)>;

  // Of this thread, before the pass that was asked for. Afterwards the random state of the CPU is
  // what it was.
  explicit ExtraPasses(Run run);
  ~ExtraPasses();
  ExtraPasses(const ExtraPasses&) = delete;
  ExtraPasses& operator=(const ExtraPasses&) = delete;

  // The gradients of `leaves` (undefined: none arrives), of a pass that reads `values`. Throws what
  // the pass throws. Nothing that was restored for it outlives it.
  [[nodiscard]] torch::autograd::variable_list gradients(const torch::autograd::edge_list& leaves,
                                                         PassValues values) const;

 private:
  const Run run_;
  const at::Tensor random_state_;
};

}  // namespace pleat::bridge
