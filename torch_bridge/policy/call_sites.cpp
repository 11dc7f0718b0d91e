#include "torch_bridge/policy/call_sites.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>

#include <mutex>
#include <utility>
#include <vector>

#include "torch_bridge/core/code_pages.h"
#include "torch_bridge/policy/known_operators.h"
#include "torch_bridge/policy/node_class.h"

namespace pleat::bridge {
namespace {

// While an instance lives, saves of this thread get no hooks.
class Learning {
 public:
  Learning() noexcept { thread_policy.sites_being_learned = &sites; }
  ~Learning() { thread_policy.sites_being_learned = nullptr; }
  Learning(const Learning&) = delete;
  Learning& operator=(const Learning&) = delete;

  std::vector<const void*> sites;  // seen while one operator runs
};

CallSite known_call_site(const void* return_address) noexcept {
  PolicyState& state = PolicyState::get();
  const std::lock_guard<std::mutex> guard(state.mutex);
  const auto it = state.call_sites.find(return_address);
  return it == state.call_sites.end() ? CallSite() : it->second;
}

// The node of `result`, if all its inputs are leaves or clones of leaves. Then this node made every
// save meanwhile, so their call sites belong to this operator. A composite operator has no such
// node: its call sites belong to mul, sub and the like.
NodePtr only_node_of(const at::Tensor& result) {
  NodePtr node = result.grad_fn();
  if (!node) {
    return {};
  }
  for (const auto& edge : node->next_edges()) {
    if (edge.function && !class_of(*edge.function).accumulate_grad &&
        class_of(*edge.function).name != "CloneBackward0") {
      return {};
    }
  }
  return node;
}

void learn_sites_of(const KnownOperator& known, const Operands& operands) {
  std::vector<const void*> sites;
  NodePtr node;
  try {
    Learning scope;
    node = only_node_of(known(operands));
    sites = std::move(scope.sites);
  } catch (...) {  // an operator that this build lacks, or declares differently
  }
  if (!node) {
    return;
  }
  const NodeClass& saver = class_of(*node);
  PolicyState& state = PolicyState::get();
  const std::lock_guard<std::mutex> guard(state.mutex);
  for (std::uint32_t order = 0; order < sites.size(); ++order) {
    state.call_sites[sites[order]] = {&saver, order};
  }
}

}  // namespace

CallSite look_up_call_site(const void* return_address) noexcept {
  const std::uint64_t edition = PolicyState::get().edition.load(std::memory_order_acquire);
  const CallSite known = known_call_site(return_address);
  thread_policy.cached_site(return_address) = {return_address, edition, known};
  return known;
}

bool learning_call_sites() noexcept { return thread_policy.sites_being_learned != nullptr; }

void note_call_site(const void* return_address) noexcept {
  try {
    thread_policy.sites_being_learned->push_back(return_address);
  } catch (...) {
  }
}

void learn_call_sites(void (*also)()) {
  // Some operators warn once; the warning must stay for the user's own call.
  class Silent final : public c10::WarningHandler {
    void process(const c10::Warning&) override {}
  } silent;
  const c10::WarningUtils::WarningHandlerGuard quiet(&silent);
  const c10::WarningUtils::WarnAlways not_the_one_time;
  const at::DisableRecordFunctionGuard unprofiled;
  const TransientCodePages code_pages("libtorch_cpu.so");  // else 9 MB stay resident
  const c10::AutoGradMode grad_on(true);
  const Operands operands = make_operands();
  for (const KnownOperator& known : known_operators()) {
    learn_sites_of(known, operands);
  }
  PolicyState::get().edition.fetch_add(1, std::memory_order_release);
  const Learning unhooked;
  also();
}

}  // namespace pleat::bridge
