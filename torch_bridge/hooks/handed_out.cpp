#include "torch_bridge/hooks/handed_out.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "torch_bridge/memory/torch_record.h"
#include "torch_bridge/torch_access/pass_state.h"

namespace pleat::bridge {
namespace {

using torch::autograd::Node;

// One execution of a node, whose address may be another's later. Compared only.
struct Execution {
  int graph_task = -1;
  const Node* node = nullptr;
  std::uint64_t sequence = 0;
  bool operator==(const Execution&) const = default;
};

Execution execution_of(const Node& node) noexcept {
  return {torch::autograd::get_current_graph_task_id(), &node, node.sequence_nr()};
}

// Both lists grow with the depth of the pass.
struct Lent {
  int depth;
  at::Tensor tensor;
};
thread_local struct {
  std::vector<Lent> tensors;
  Execution borrower;
} lent;

struct Given {
  int depth;
  Execution receiver;
  std::uint64_t record;  // its nonce: another may get its address
  const c10::TensorImpl* variable;
  c10::weak_intrusive_ptr<c10::TensorImpl> tensor;
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
    if (backward_depth() == 0 && lent.borrower != execution_of(node)) {
      drop_depth(lent.tensors, 0);
    }
    lent.borrower = execution_of(node);
    lent.tensors.push_back({backward_depth(), tensor});
  } catch (...) {  // no memory for it
  }
}

namespace {

// With gaps an accumulator does not take it as it is: nobody needs to hold it.
bool may_be_taken(const at::Tensor& tensor) { return tensor.is_non_overlapping_and_dense(); }

}  // namespace

void give(const Node& node, const TorchRecord& record, const GivenTensor& given_tensor,
          bool hold) noexcept {
  try {
    const Execution receiver = execution_of(node);
    for (Given& one : given) {
      if (one.record == record.nonce && one.receiver == receiver) {
        if (at::Tensor sibling = one.unwritten(); sibling.defined()) {
          if (may_be_taken(sibling)) {
            one.held = std::move(sibling);
          }
          hold = true;
        }
      }
    }
    const at::Tensor& tensor = given_tensor.tensor;
    given.push_back({backward_depth(), receiver, record.nonce, given_tensor.variable,
                     c10::weak_intrusive_ptr<c10::TensorImpl>(tensor.getIntrusivePtr()),
                     hold && may_be_taken(tensor) ? tensor : at::Tensor()});
  } catch (...) {
  }
}

c10::SmallVector<GivenTensor, 2> given_to(const Node& node, const TorchRecord& record) {
  c10::SmallVector<GivenTensor, 2> found;
  if (given.empty()) {
    return found;  // nearly always
  }
  const Execution receiver = execution_of(node);
  for (const Given& one : given) {
    if (one.record == record.nonce && one.receiver == receiver) {
      if (at::Tensor tensor = one.unwritten(); tensor.defined()) {
        found.push_back({std::move(tensor), one.variable});
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
  node = running ? running.get() : node;
  const Execution unpacks = node != nullptr ? execution_of(*node) : Execution{};
  // A gradient may still wait behind nodes that pass it through: what somebody has stays held.
  const auto first_done = std::stable_partition(given.begin(), given.end(), [&](const Given& one) {
    return one.depth < backward_depth() || one.receiver == unpacks ||
           (one.held.defined() && one.held.use_count() > 1);
  });
  std::vector<Given> done;
  try {
    done.assign(std::make_move_iterator(first_done), std::make_move_iterator(given.end()));
  } catch (...) {  // no memory: later
    return;
  }
  given.erase(first_done, given.end());  // before `done` dies
}

void forget_pass(int depth) noexcept {
  drop_depth(lent.tensors, depth);
  drop_depth(given, depth);
}

}  // namespace pleat::bridge
