#include "torch_bridge/torch_access/pass_state.h"

#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/PythonDispatcherTLS.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/jit/frontend/tracer.h>

#include <atomic>
#include <memory>
#include <utility>

namespace pleat::bridge {
namespace {

struct ThreadsPass {
  int depth = 0;
  bool creates_graph = false;
  const torch::autograd::Node* unpacking = nullptr;
  PassFacts facts;
};
thread_local ThreadsPass pass;
constexpr PassFacts kNothing{};

// Autograd passes this state on to the device threads that run a pass. Only torch's own tests use
// this kind.
const c10::DebugInfoKind kKind = c10::DebugInfoKind::TEST_INFO_2;
struct FactsForDevices final : c10::DebugInfoBase {
  explicit FactsForDevices(const PassFacts& of_pass) : facts(of_pass) {}
  const PassFacts facts;
};
std::atomic<int> threads_in_backward{0};

}  // namespace

void enter_pass() noexcept {
  if (pass.depth++ == 0) {
    threads_in_backward.fetch_add(1, std::memory_order_relaxed);
  }
}

bool leave_pass() noexcept {
  if (--pass.depth != 0) {
    return false;
  }
  threads_in_backward.fetch_sub(1, std::memory_order_relaxed);
  return true;
}

void forget_other_threads_passes() noexcept {
  threads_in_backward.store(pass.depth != 0 ? 1 : 0, std::memory_order_relaxed);
}

int backward_depth() noexcept { return pass.depth; }

bool in_backward() noexcept {
  return pass.depth != 0 || torch::autograd::get_current_graph_task_id() >= 0;
}

bool backward_is_running() noexcept {
  return threads_in_backward.load(std::memory_order_relaxed) != 0;
}

bool in_device_thread() noexcept {
  return pass.depth == 0 && torch::autograd::get_current_graph_task_id() >= 0 &&
         backward_is_running();
}

bool backward_creates_graph() noexcept {
  return pass.creates_graph || (in_device_thread() && c10::GradMode::is_enabled());
}

bool set_backward_creates_graph(bool creates_graph) noexcept {
  return std::exchange(pass.creates_graph, creates_graph);
}

const PassFacts& pass_facts() noexcept {
  if (!in_device_thread()) [[likely]] {
    return pass.facts;
  }
  const auto* const of_pass =
      dynamic_cast<const FactsForDevices*>(c10::ThreadLocalDebugInfo::get(kKind));
  return of_pass != nullptr ? of_pass->facts : kNothing;
}

PassFactsScope::PassFactsScope(const PassFacts& facts)
    : outer_(pass.facts), for_devices_(kKind, std::make_shared<FactsForDevices>(facts)) {
  pass.facts = facts;
}

PassFactsScope::~PassFactsScope() { pass.facts = outer_; }

const torch::autograd::Node* unpacking_node() noexcept { return pass.unpacking; }

const torch::autograd::Node* set_unpacking_node(const torch::autograd::Node* node) noexcept {
  return std::exchange(pass.unpacking, node);
}

bool operators_are_watched() noexcept {
  // Modes before autograd (make_fx with pre_dispatch) step aside while a kernel of autograd runs;
  // the Python dispatcher, which they need, stays.
  return c10::impl::TorchDispatchModeTLS::any_modes_set() || torch::jit::tracer::isTracing() ||
         c10::impl::PythonDispatcherTLS::get_state() != nullptr ||
         c10::impl::tls_is_dispatch_key_included(
             c10::DispatchKey::FuncTorchDynamicLayerFrontMode) ||
         c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::Functionalize);
}

}  // namespace pleat::bridge
