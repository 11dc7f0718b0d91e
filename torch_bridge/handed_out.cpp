#include "torch_bridge/handed_out.h"

#include <utility>
#include <vector>

#include "torch_bridge/engine.h"

namespace pleat::bridge {
namespace {

using torch::autograd::Node;

// One execution of a node: its address may be another's in the next pass. Compared only.
struct Execution {
  int graph_task = -1;
  const Node* node = nullptr;
  bool operator==(const Execution&) const = default;
};

Execution execution_of(const Node& node) noexcept {
  return {torch::autograd::get_current_graph_task_id(), &node};
}

// Both lists grow with the depth of the pass.
struct Lent {
  int depth;
  at::Tensor tensor;
};
thread_local std::vector<Lent> lent;
thread_local Execution borrower;

struct Given {
  int depth;
  Execution receiver;
  const TorchRecord* record;  // compare only
  c10::weak_intrusive_ptr<c10::TensorImpl> tensor;
  std::int64_t offset;
  at::Tensor held;

  at::Tensor unwritten() const {
    auto living = tensor.lock();
    return living && living->version_counter().current_version() == 0
               ? at::Tensor(std::move(living))
               : at::Tensor();
  }
};
thread_local std::vector<Given> given;

// The last goes before it dies: that may run anybody's code.
template <class List>
void drop_last(List& list) {
  const auto done = std::move(list.back());
  list.pop_back();
}

template <class List>
void drop_depth(List& list, int depth) {
  while (!list.empty() && list.back().depth >= depth) {
    drop_last(list);
  }
}

}  // namespace

void lend(const Node& node, const at::Tensor& tensor) noexcept {
  try {
    if (backward_depth() == 0 && borrower != execution_of(node)) {
      drop_depth(lent, 0);
    }
    borrower = execution_of(node);
    lent.push_back({backward_depth(), tensor});
  } catch (...) {  // no memory for it
  }
}

void give(const Node& node, const TorchRecord* record, const GivenTensor& restored) noexcept {
  try {
    const Execution receiver = execution_of(node);
    at::Tensor held;
    for (Given& one : given) {
      if (one.record == record && one.receiver == receiver) {
        if (at::Tensor sibling = one.unwritten(); sibling.defined()) {
          one.held = std::move(sibling);
          held = restored.tensor;
        }
      }
    }
    given.push_back({backward_depth(), receiver, record,
                     c10::weak_intrusive_ptr<c10::TensorImpl>(restored.tensor.getIntrusivePtr()),
                     restored.offset, std::move(held)});
  } catch (...) {
  }
}

c10::SmallVector<GivenTensor, 2> given_to(const Node& node, const TorchRecord* record) {
  c10::SmallVector<GivenTensor, 2> found;
  if (given.empty()) {
    return found;  // nearly always
  }
  const Execution receiver = execution_of(node);
  for (const Given& one : given) {
    if (one.record == record && one.receiver == receiver) {
      if (at::Tensor tensor = one.unwritten(); tensor.defined()) {
        found.push_back({std::move(tensor), one.offset});
      }
    }
  }
  return found;
}

void forget_given_to_others(const Node* node) noexcept {
  if (given.empty()) {
    return;
  }
  const auto running = torch::autograd::get_current_node();
  node = node != nullptr ? node : running.get();
  const Execution unpacks = node != nullptr ? execution_of(*node) : Execution{};
  while (!given.empty() && given.back().depth >= backward_depth() &&
         given.back().receiver != unpacks) {
    drop_last(given);
  }
}

void forget_pass(int depth) noexcept {
  drop_depth(lent, depth);
  drop_depth(given, depth);
}

}  // namespace pleat::bridge
