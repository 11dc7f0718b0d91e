#include "torch_bridge/hooks/handed_out.h"

#include <algorithm>
#include <iterator>
#include <mutex>
#include <utility>
#include <vector>

#include "torch_bridge/core/fork_locks.h"
#include "torch_bridge/memory/torch_record.h"
#include "torch_bridge/torch_access/pass_state.h"
#include "torch_bridge/torch_access/python_objects.h"

namespace pleat::bridge {
namespace {

using torch::autograd::Node;

// One execution of a node, whose address another node can get later. Compare only.
struct Execution {
  int graph_task = -1;
  const Node* node = nullptr;
  std::uint64_t sequence = 0;
  bool operator==(const Execution&) const = default;
};

Execution execution_of(const Node& node) noexcept {
  return {torch::autograd::get_current_graph_task_id(), &node, node.sequence_nr()};
}

struct Lent {
  int depth;
  at::Tensor tensor;
};

struct Given {
  int depth;
  Execution receiver;
  const Node* owner;     // that saved it; compare only
  std::uint64_t record;  // its nonce: a later record can get its address
  const c10::TensorImpl* variable;
  c10::weak_intrusive_ptr<c10::TensorImpl> tensor;
  at::Tensor held;

  // True if it is held and other code has it. Its Python object is a reference that lives as long
  // as any other.
  bool is_in_use() const {
    if (!held.defined()) {
      return false;
    }
    const std::size_t uses = held.use_count();
    return uses > 2 || (uses == 2 && may_be_held_by_python(*held.unsafeGetTensorImpl()));
  }
};

// Both lists grow with the depth of the pass.
struct Lists {
  std::vector<Lent> lent;
  Execution borrower;
  std::vector<Given> given;
};
thread_local Lists of_thread;

// The lists of all threads that run nodes of devices; their passes begin and end in other threads.
struct DeviceThreads {
  std::mutex mutex;
  Lists lists;
  ForkLock fork_lock{ForkPlace::kHandedOut, mutex};
};
// Leaked: used until the process ends. Made when the library is loaded, because the first use can
// be in a forked child.
DeviceThreads& device_threads = *new DeviceThreads;

// The lists for the running thread, locked if other threads share them. Removed entries are
// destroyed after the lock is released, because their destructors can run foreign code.
class Access {
 public:
  Access() : lists_(in_device_thread() ? device_threads.lists : of_thread) {
    if (&lists_ != &of_thread) {
      lock_ = std::unique_lock(device_threads.mutex);
    }
  }
  Lists* operator->() noexcept { return &lists_; }

 private:
  Lists& lists_;
  std::unique_lock<std::mutex> lock_;
};

// Removes each entry before it is destroyed, because its destructor can run foreign code.
template <class List>
void drop_depth(List& list, int depth) {
  while (!list.empty() && list.back().depth >= depth) {
    const auto done = std::move(list.back());
    list.pop_back();
  }
}

}  // namespace

void lend(const Node& node, const at::Tensor& tensor) noexcept {
  try {
    if (backward_depth() == 0 && !in_device_thread() && of_thread.borrower != execution_of(node)) {
      drop_depth(of_thread.lent, 0);
    }
    Access lists;
    lists->borrower = execution_of(node);
    lists->lent.push_back({backward_depth(), tensor});
  } catch (...) {  // memory is short
  }
}

namespace {

// An accumulator does not take a tensor with gaps as it is, so such a tensor need not be held.
bool may_be_taken(const at::Tensor& tensor) { return tensor.is_non_overlapping_and_dense(); }

}  // namespace

void give(const Node& node, const TorchRecord& record, const GivenTensor& given_tensor,
          bool hold) noexcept {
  try {
    c10::SmallVector<GivenTensor, 2> siblings = given_to(node, record);
    const at::Tensor& tensor = given_tensor.tensor;
    Given given{backward_depth(),
                execution_of(node),
                unpacking_node(),
                record.nonce,
                given_tensor.variable,
                c10::weak_intrusive_ptr<c10::TensorImpl>(tensor.getIntrusivePtr()),
                (hold || !siblings.empty()) && may_be_taken(tensor) ? tensor : at::Tensor()};
    Access lists;
    for (Given& one : lists->given) {
      for (GivenTensor& sibling : siblings) {
        if (one.tensor._unsafe_get_target() == sibling.tensor.unsafeGetTensorImpl() &&
            one.receiver == given.receiver && !one.held.defined() && may_be_taken(sibling.tensor)) {
          one.held = std::move(sibling.tensor);
          break;
        }
      }
    }
    lists->given.push_back(std::move(given));
  } catch (...) {
  }
}

c10::SmallVector<GivenTensor, 2> given_to(const Node& node, const TorchRecord& record) {
  // To lock a weak reference can take the interpreter's lock: under no other.
  c10::SmallVector<std::pair<c10::weak_intrusive_ptr<c10::TensorImpl>, const c10::TensorImpl*>, 2>
      matching;
  {
    Access lists;
    if (lists->given.empty()) {
      return {};  // the usual case
    }
    const Execution receiver = execution_of(node);
    for (const Given& one : lists->given) {
      if (one.record == record.nonce && one.receiver == receiver) {
        matching.emplace_back(one.tensor, one.variable);
      }
    }
  }
  c10::SmallVector<GivenTensor, 2> found;
  for (auto& [tensor, variable] : matching) {
    if (auto living = tensor.lock(); living && living->version_counter().current_version() == 0) {
      found.push_back({at::Tensor(std::move(living)), variable});
    }
  }
  return found;
}

void forget_given_to_others(const Node* owner) noexcept {
  std::vector<Given> done;  // destroyed last
  Access lists;
  if (lists->given.empty()) {
    return;
  }
  const auto running = torch::autograd::get_current_node();
  const Node* const node = running ? running.get() : owner;
  const Execution unpacks = node != nullptr ? execution_of(*node) : Execution{};
  // A gradient can still wait behind nodes that pass it through: a tensor in use stays held. So
  // does a tensor of another pass of a device's threads. A node that reads the saves of many others
  // holds those of one at a time.
  const auto first_done =
      std::stable_partition(lists->given.begin(), lists->given.end(), [&](const Given& one) {
        return one.depth < backward_depth() ||
               (one.receiver == unpacks && (one.owner == owner || !one.held.defined())) ||
               (in_device_thread() && one.receiver.graph_task != unpacks.graph_task) ||
               one.is_in_use();
      });
  try {
    done.assign(std::make_move_iterator(first_done), std::make_move_iterator(lists->given.end()));
  } catch (...) {  // memory is short: a later call removes them
    return;
  }
  lists->given.erase(first_done, lists->given.end());
}

void forget_pass(int depth) noexcept {
  drop_depth(of_thread.lent, depth);
  drop_depth(of_thread.given, depth);
}

void forget_device_threads() noexcept {
  Lists done;
  const std::lock_guard<std::mutex> guard(device_threads.mutex);
  std::swap(done, device_threads.lists);
}

}  // namespace pleat::bridge
