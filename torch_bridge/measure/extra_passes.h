// Backward passes of our own over the graph of a pass that is about to begin. They keep the graph,
// and return the gradients of its leaves instead of accumulating them: the script sees only the
// pass it asked for. Code that needs a gradient with other saved values (PassValues) asks here.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "torch_bridge/torch_access/pass_state.h"
#include "torch_bridge/torch_access/torch_version.h"

namespace pleat::bridge {

// The findings of a walk over the graph of a pass.
struct GraphSurvey {
  torch::autograd::edge_list leaves;  // accumulators, in the order in which the walk meets them
  std::vector<torch::autograd::Node*> retaining;  // nodes whose results have retain_grad()
  std::string obstacle;                           // why no extra pass may run; empty: none
  // The first node with a hook that would run, and the first function in Python that is not one of
  // torch.compile; empty: none.
  std::string hooked, custom;
};
// Any thread, while the graph lives. Linear in its edges.
[[nodiscard]] GraphSurvey survey(const torch::autograd::edge_list& roots);

class ExtraPasses {
 public:
  // Runs a backward pass of this thread from the roots to these edges, keeping the graph, and
  // returns what arrives there. Throws what a node throws.
  using Run = std::function<torch::autograd::variable_list(const torch::autograd::edge_list&)>;

  // Of this thread, before the pass that was asked for, over the graph that was surveyed.
  // Afterwards the random state of the CPU is what it was. Gradients for retain_grad() are left to
  // that pass: it sums up the arriving ones.
  ExtraPasses(Run run, const GraphSurvey& graph);
  ~ExtraPasses();
  ExtraPasses(const ExtraPasses&) = delete;
  ExtraPasses& operator=(const ExtraPasses&) = delete;

  // The gradients of `leaves` (undefined: none arrives), of a pass that reads `values`, and reports
  // its reads to `watch`. Rethrows errors of the pass. No tensor restored for it outlives it.
  [[nodiscard]] torch::autograd::variable_list gradients(const torch::autograd::edge_list& leaves,
                                                         PassValues values,
                                                         PassWatch* watch = nullptr) const;

 private:
  using RetainsGrad = std::remove_reference_t<
      decltype(std::declval<torch::autograd::Node&>().retains_grad_hooks())>;

  const Run run_;
  std::vector<std::pair<torch::autograd::Node*, RetainsGrad>> retains_grad_;
  const at::Tensor random_state_;
};

// Called where something is about to be done that outlives a pass. Throws std::runtime_error if
// this thread is in an extra one.
void refuse_in_extra_pass(const char* what);

}  // namespace pleat::bridge
