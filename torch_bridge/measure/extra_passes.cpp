#include "torch_bridge/measure/extra_passes.h"

#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <stdexcept>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "torch_bridge/hooks/passes.h"
#include "torch_bridge/memory/torch_record.h"
#include "torch_bridge/policy/node_class.h"

namespace pleat::bridge {
namespace {

using torch::autograd::edge_list;
using torch::autograd::Node;
using torch::autograd::variable_list;

// Nodes that do more than to work out a gradient. A reentrant checkpoint runs a backward pass of
// its own, which accumulates. A node that communicates with other processes must be run by all of
// them. Sharded parameters are gathered and given up as passes come and go.
constexpr std::array<std::string_view, 9> kObstacles{
    "CheckpointFunction", "AllReduce",  "AllGather",           "ReduceScatter",       "AllToAll",
    "Broadcast",          "all_reduce", "PreBackwardFunction", "PostBackwardFunction"};

bool is_obstacle(const Node& node) {
  if (class_of(node).of_torch || class_of(node).accumulate_grad) {
    return false;
  }
  const std::string name = node.name();
  return std::any_of(kObstacles.begin(), kObstacles.end(),
                     [&](std::string_view part) { return name.find(part) != std::string::npos; });
}

// True for hooks that run in a pass that returns gradients: of accumulators, only the hooks of
// their tensors.
bool has_hook(Node& node) {
  return !node.tensor_pre_hooks().empty() ||
         (!class_of(node).accumulate_grad &&
          (!node.pre_hooks().empty() || !node.post_hooks().empty()));
}

at::Tensor random_state() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> guard(generator.mutex());
  return generator.get_state();
}

// A pass of ours: other values, and no lasting effect.
class PassScope {
 public:
  PassScope(PassValues values, PassWatch* watch)
      : facts_({.values = values, .extra = ++passes, .watch = watch}),
        outer_creates_(set_backward_creates_graph(false)) {
    enter_pass();
  }
  ~PassScope() {
    backward_exit();
    drop_kept_storages();  // though it is not the outermost pass
    set_backward_creates_graph(outer_creates_);
  }
  PassScope(const PassScope&) = delete;
  PassScope& operator=(const PassScope&) = delete;

 private:
  static inline std::atomic<std::uint64_t> passes{0};
  const PassFactsScope facts_;
  const bool outer_creates_;
};

}  // namespace

GraphSurvey survey(const edge_list& roots) {
  GraphSurvey found;
  std::unordered_set<const Node*> met;
  std::vector<Node*> walk;
  const auto meet = [&](const torch::autograd::Edge& edge) {
    if (edge.is_valid() && met.insert(edge.function.get()).second) {
      walk.push_back(edge.function.get());
      if (class_of(*edge.function).accumulate_grad) {
        found.leaves.emplace_back(edge.function, 0);
      }
    }
  };
  for (const torch::autograd::Edge& root : roots) {
    meet(root);
  }
  while (!walk.empty()) {
    Node& node = *walk.back();
    walk.pop_back();
    if (!node.retains_grad_hooks().empty()) {
      found.retaining.push_back(&node);
    }
    if (found.obstacle.empty() && is_obstacle(node)) {
      found.obstacle = node.name();
    }
    if (found.hooked.empty() && has_hook(node)) {
      found.hooked = node.name();
    }
    if (found.custom.empty() && class_of(node).python &&
        node.name().find("CompiledFunction") == std::string::npos) {
      found.custom = node.name();
    }
    for (const torch::autograd::Edge& edge : node.next_edges()) {
      meet(edge);
    }
  }
  return found;
}

ExtraPasses::ExtraPasses(Run run, const GraphSurvey& graph)
    : run_(std::move(run)), random_state_(random_state()) {
  retains_grad_.reserve(graph.retaining.size());
  for (Node* const node : graph.retaining) {
    retains_grad_.emplace_back(node, std::exchange(node->retains_grad_hooks(), {}));
  }
}

ExtraPasses::~ExtraPasses() {
  for (auto& [node, hooks] : retains_grad_) {
    node->retains_grad_hooks() = std::move(hooks);
  }
  try {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    const std::lock_guard<std::mutex> guard(generator.mutex());
    generator.set_state(random_state_);
  } catch (...) {  // of its own state it refuses nothing
  }
}

variable_list ExtraPasses::gradients(const edge_list& leaves, PassValues values,
                                     PassWatch* watch) const {
  const PassScope scope(values, watch);
  return run_(leaves);
}

void refuse_in_extra_pass(const char* what) {
  if (in_extra_pass()) {
    throw std::runtime_error(what);
  }
}

}  // namespace pleat::bridge
