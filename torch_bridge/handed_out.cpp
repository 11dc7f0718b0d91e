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

struct Lent {
  int depth;
  at::Tensor tensor;
};
thread_local std::vector<Lent> lent;
thread_local Execution borrower;

thread_local std::vector<at::Tensor> held;
thread_local Execution holder;

struct Given {
  const TorchRecord* record;  // compare only
  c10::weak_intrusive_ptr<c10::TensorImpl> tensor;
  std::int64_t offset;
};
thread_local std::vector<Given> given_of_receiver;
thread_local Execution receiver;

}  // namespace

void lend(const Node& node, const at::Tensor& tensor) noexcept {
  try {
    if (backward_depth() == 0 && borrower != execution_of(node)) {
      drop_lent(0);
    }
    borrower = execution_of(node);
    lent.push_back({backward_depth(), tensor});
  } catch (...) {  // no memory for it
  }
}

void drop_lent(int depth) noexcept {
  while (!lent.empty() && lent.back().depth >= depth) {
    const at::Tensor done = std::move(lent.back().tensor);
    lent.pop_back();  // before `done` dies: that may run anybody's code
  }
}

void hold(const Node& node, const at::Tensor& tensor) noexcept {
  try {
    drop_held_unless(&node);
    holder = execution_of(node);
    held.push_back(tensor);
  } catch (...) {
  }
}

bool holds_any() noexcept { return !held.empty(); }

void drop_held_unless(const Node* running) noexcept {
  if (!held.empty() && (running == nullptr || holder != execution_of(*running))) {
    const std::vector<at::Tensor> done = std::exchange(held, {});
  }
}

void note_handed_out(const Node& node, const TorchRecord* record, const HandedOut& given) noexcept {
  try {
    if (receiver != execution_of(node)) {
      given_of_receiver.clear();
      receiver = execution_of(node);
    }
    given_of_receiver.push_back(
        {record, c10::weak_intrusive_ptr<c10::TensorImpl>(given.tensor.getIntrusivePtr()), given.offset});
  } catch (...) {
  }
}

c10::SmallVector<HandedOut, 2> handed_out(const Node& node, const TorchRecord* record) {
  c10::SmallVector<HandedOut, 2> found;
  if (given_of_receiver.empty() || receiver != execution_of(node)) {
    return found;
  }
  for (const Given& one : given_of_receiver) {
    if (one.record == record) {
      if (auto living = one.tensor.lock(); living && living->version_counter().current_version() == 0) {
        found.push_back({at::Tensor(std::move(living)), one.offset});
      }
    }
  }
  return found;
}

}  // namespace pleat::bridge
