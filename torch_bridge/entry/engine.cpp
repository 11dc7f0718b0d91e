#include "torch_bridge/entry/entry_points.h"

#include <ATen/SavedTensorHooks.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <atomic>
#include <cstdint>
#include <utility>

#include "torch_bridge/core/runtime.h"
#include "torch_bridge/entry/in_place_gradient.h"
#include "torch_bridge/hooks/passes.h"
#include "torch_bridge/hooks/saved_tensor_hooks.h"
#include "torch_bridge/measure/probe.h"
#include "torch_bridge/policy/call_sites.h"

namespace pleat::bridge {
namespace {

using torch::autograd::edge_list;
using torch::autograd::Engine;
using torch::autograd::EngineStub;
using torch::autograd::GraphTask;
using torch::autograd::InputBuffer;
using torch::autograd::SavedVariableHooks;
using torch::autograd::variable_list;

// Everything the wrapped engine can be asked for virtually is passed on. Its non-virtual members
// work on thread-local state (queue_callback, is_checkpoint_valid), so they do the same on this
// object.
class WrappingEngine final : public Engine {
 public:
  // `stub` returns the engine to wrap, once that is needed. Null: wraps the present one, which is
  // the default until the caller has put this one there.
  explicit WrappingEngine(EngineStub stub)
      : stub_(stub), inner_(stub == nullptr ? &Engine::get_default_engine() : nullptr) {}
  void wrap(EngineStub stub) {
    if (stub_.exchange(stub, std::memory_order_relaxed) != stub) {
      inner_.store(&stub(), std::memory_order_release);
    }
  }

  variable_list execute(const edge_list& roots, const variable_list& inputs, bool keep_graph,
                        bool create_graph, bool accumulate_grad,
                        const edge_list& outputs) override {
    // C++ programs come this way with no preload library; Python never.
    const PassKind kind{accumulate_grad && outputs.empty(), create_graph, keep_graph};
    const Runtime* const runtime = Runtime::get();
    const bool sees_none_else = runtime != nullptr && !runtime->interposed;
    const std::uint64_t graph = sees_none_else ? graph_of_interest(roots) : 0;
    const BackwardScope scope(roots, kind);
    const ProbedPass probe(graph, roots, kind, [&](const edge_list& leaves) {
      return inner().execute(roots, inputs, true, false, false, leaves);
    });
    return inner().execute(roots, inputs, keep_graph, create_graph, accumulate_grad, outputs);
  }
  c10::intrusive_ptr<at::ivalue::Future> execute_with_graph_task(
      const std::shared_ptr<GraphTask>& graph_task, NodePtr graph_root,
      InputBuffer&& input_buffer) override {
    return inner().execute_with_graph_task(graph_task, std::move(graph_root),
                                           std::move(input_buffer));
  }
  std::unique_ptr<torch::autograd::AnomalyMetadata> make_anomaly_metadata() override {
    return inner().make_anomaly_metadata();
  }
  void thread_on_exception(const std::shared_ptr<GraphTask>& graph_task, const NodePtr& node,
                           std::exception& error) override {
    inner().thread_on_exception(graph_task, node, error);
  }
#if PLEAT_ENGINE_HAS_NODE_CREATION_HOOKS
  decltype(std::declval<Engine&>().get_node_creation_hooks()) get_node_creation_hooks() override {
    return inner().get_node_creation_hooks();
  }
#endif

  std::unique_ptr<SavedVariableHooks> get_default_saved_variable_hooks() override {
    if (learning_call_sites()) {
      return nullptr;
    }
    Runtime* const runtime = Runtime::get();
    if (auto hooks = inner().get_default_saved_variable_hooks()) {
      if (runtime != nullptr) {
        runtime->sensitivity.note_foreign_hooks();
      }
      return hooks;  // Python's own hooks win
    }
    if (runtime == nullptr) {
      return nullptr;
    }
    if (call_sites_.load(std::memory_order_acquire) != CallSites::kLearned && runtime->interposed &&
        runtime->tagging() && !operators_are_watched() && !node_creation_is_watched()) {
      learn_call_sites_once();
    }
    return make_saved_tensor_hooks(*runtime);
  }

 private:
  [[nodiscard]] bool node_creation_is_watched() {
#if PLEAT_ENGINE_HAS_NODE_CREATION_HOOKS
    return !inner().get_node_creation_hooks().empty();
#else
    return false;
#endif
  }
  // Call sites of careful operators are learned before the first tensor is judged.
  void learn_call_sites_once() noexcept {
    // A second thread does not wait: it may hold the interpreter's lock, which the first may need.
    // Its saves are decided once their nodes are recorded.
    CallSites before = CallSites::kUnknown;
    if (!call_sites_.compare_exchange_strong(before, CallSites::kBeingLearned)) {
      return;
    }
    struct Scope {  // our own saves are judged like those of no constructor
      ConstructionScope* const outer = std::exchange(thread_policy.construction, nullptr);
      ~Scope() { thread_policy.construction = outer; }
    } const scope;
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    try {
      learn_call_sites(learn_gradient_call_sites);
    } catch (...) {  // unknown sites are decided once their nodes are recorded
    }
    call_sites_.store(CallSites::kLearned, std::memory_order_release);
  }
  [[nodiscard]] Engine& inner() {
    Engine* known = inner_.load(std::memory_order_acquire);
    if (known == nullptr) [[unlikely]] {  // another thread, or wrap(), can be first
      Engine& made = stub_.load(std::memory_order_relaxed)();
      if (inner_.compare_exchange_strong(known, &made, std::memory_order_acq_rel)) return made;
    }
    return *known;
  }

  enum class CallSites : std::uint8_t { kUnknown, kBeingLearned, kLearned };
  std::atomic<CallSites> call_sites_{CallSites::kUnknown};
  std::atomic<EngineStub> stub_;
  std::atomic<Engine*> inner_;
};

// Made by the installation. Leaked, as torch leaks its own.
constinit WrappingEngine* the_engine = nullptr;

Engine& wrapping_engine() { return *the_engine; }

}  // namespace

void* wrap_engine(void* engine_stub) {
  the_engine = new WrappingEngine(reinterpret_cast<EngineStub>(engine_stub));
  return reinterpret_cast<void*>(&wrapping_engine);
}

void rewrap_engine(void* engine_stub) {
  const auto stub = reinterpret_cast<EngineStub>(engine_stub);
  if (stub != nullptr && stub != &wrapping_engine) {
    the_engine->wrap(stub);
  }
}

}  // namespace pleat::bridge
