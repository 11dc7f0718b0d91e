#include "torch_bridge/trace/labels.h"

#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <cstdint>
#include <typeinfo>
#include <unordered_set>
#include <vector>

#include "torch_bridge/core/runtime.h"
#include "torch_bridge/torch_access/recording.h"
#include "torch_bridge/trace/state.h"
#include "torch_bridge/trace/trace.h"

namespace pleat::bridge {
namespace {

using torch::autograd::AccumulateGrad;
using torch::autograd::Node;
using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl>;

struct Leaf {
  WeakTensor tensor;
  std::uint64_t block = 0, gradient = 0;  // as they were labelled last
};

struct Labels {
  std::vector<Leaf> leaves;
  std::unordered_set<const c10::TensorImpl*> known;
  std::uint64_t passes = 0;
  std::uint32_t of_trace = 0;

  // A model's graph is the same in most steps; a leaf that is new is found a little later then.
  [[nodiscard]] bool is_walk_due() noexcept {
    const std::uint64_t pass = passes++;
    return (pass & (pass - 1)) == 0 || pass % 64 == 0;
  }
};
thread_local Labels labels;

void walk(const torch::autograd::edge_list& roots) {
  std::erase_if(labels.leaves, [](const Leaf& leaf) { return leaf.tensor.expired(); });
  labels.known.clear();
  for (const Leaf& leaf : labels.leaves) labels.known.insert(leaf.tensor._unsafe_get_target());
  visit_nodes(roots, [](const Node& node) {
    if (typeid(node) == typeid(AccumulateGrad)) {
      const at::Tensor& variable = static_cast<const AccumulateGrad&>(node).variable;
      if (labels.known.insert(variable.unsafeGetTensorImpl()).second) {
        labels.leaves.push_back({WeakTensor(variable.getIntrusivePtr())});
      }
    }
  });
}

// Labels the tensor's block, unless it is the one that was labelled last.
void label(Runtime& runtime, const at::Tensor& tensor, PleatTraceLabel what, std::uint64_t& last) {
  if (!tensor.defined() || !tensor.has_storage() || !tensor.device().is_cpu()) return;
  const allocator::Block* const block = runtime.pool.find(tensor.storage().data());
  if (block == nullptr || block->id.value == last) return;
  last = block->id.value;
  trace_label(*block, what);
}

}  // namespace

void label_leaves(const torch::autograd::edge_list& roots) noexcept {
  Runtime* const runtime = Runtime::get();
  if (runtime == nullptr) return;
  const std::uint32_t trace = trace_state.number.load(std::memory_order_relaxed);
  if (labels.of_trace != trace) {  // it has no label yet
    labels.of_trace = trace;
    labels.passes = 0;
    for (Leaf& leaf : labels.leaves) leaf.block = leaf.gradient = 0;
  }
  try {
    if (!roots.empty() && labels.is_walk_due()) walk(roots);
    for (Leaf& leaf : labels.leaves) {
      if (const auto tensor = leaf.tensor.lock()) {
        label(*runtime, at::Tensor(tensor), PLEAT_TRACE_LABEL_PARAMETER, leaf.block);
      }
    }
  } catch (...) {  // no memory for the walk: these blocks have no name
  }
}

void label_gradients() noexcept {
  Runtime* const runtime = Runtime::get();
  if (runtime == nullptr) return;
  for (Leaf& leaf : labels.leaves) {
    if (const auto tensor = leaf.tensor.lock()) {
      try {
        label(*runtime, at::Tensor(tensor).grad(), PLEAT_TRACE_LABEL_GRADIENT, leaf.gradient);
      } catch (...) {
      }
    }
  }
}

}  // namespace pleat::bridge
