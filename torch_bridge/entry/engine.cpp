#include "torch_bridge/entry/engine.h"

#include <ATen/SavedTensorHooks.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <atomic>
#include <utility>

#include "torch_bridge/entry/in_place_gradient.h"
#include "torch_bridge/hooks/handed_out.h"
#include "torch_bridge/hooks/saved_tensor_hooks.h"
#include "torch_bridge/memory/torch_record.h"
#include "torch_bridge/policy/call_sites.h"
#include "torch_bridge/policy/node_class.h"
#include "torch_bridge/policy/saving_node.h"
#include "torch_bridge/torch_access/pass_state.h"
#include "torch_bridge/torch_access/recording.h"
#include "torch_bridge/torch_access/saved_variable_access.h"

namespace pleat::bridge {
namespace {

using torch::autograd::edge_list;
using torch::autograd::Engine;
using torch::autograd::EngineStub;
using torch::autograd::GraphTask;
using torch::autograd::InputBuffer;
using torch::autograd::SavedVariable;
using torch::autograd::SavedVariableHooks;
using torch::autograd::variable_list;

using ExecuteFunction = variable_list (*)(Engine*, const edge_list&, const variable_list&, bool,
                                          bool, bool, const edge_list&);
using ConstructorFunction = void (*)(SavedVariable*, const at::Tensor&, bool, bool);
using RegisterHooksFunction = void (*)(SavedVariable*, std::unique_ptr<SavedVariableHooks>&&);
using UnpackFunction = at::Tensor (*)(const SavedVariable*, NodePtr);
using SetGradientEdgeFunction = void (*)(const at::Tensor&, torch::autograd::Edge);
using PowFunction = at::Tensor (*)(const at::Tensor&, const at::Scalar&);
using PowInplaceFunction = at::Tensor& (*)(at::Tensor&, const at::Scalar&);

EngineStub wrapped_stub = nullptr;
ExecuteFunction real_execute = nullptr;
ConstructorFunction real_constructor = nullptr;
RegisterHooksFunction real_register_hooks = nullptr;
UnpackFunction real_unpack = nullptr;
SetGradientEdgeFunction real_set_gradient_edge = nullptr;
PowFunction real_pow = nullptr;
PowInplaceFunction real_pow_inplace = nullptr;

// Call sites of careful operators are learned before the first tensor is judged.
std::atomic<bool> call_sites_learned{false};

void learn_call_sites_once(Runtime& runtime) noexcept {
  // A thread that comes second does not wait: it may hold the interpreter's lock, which the first
  // may need. What it saves meanwhile is learned at the first unpack.
  static std::atomic<bool> begun{false};
  if (begun.exchange(true)) {
    return;
  }
  {
    struct Scope {  // our own saves are judged like those of no constructor
      ConstructionScope* const outer = std::exchange(current_construction(), nullptr);
      ~Scope() { current_construction() = outer; }
    } const scope;
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    try {
      learn_call_sites(learn_gradient_call_sites);
    } catch (...) {  // what is not known yet is learned at the first unpack
    }
    // Saves may have been judged before, where operators were watched.
    runtime.lessons.forget_cached_answers();
    call_sites_learned.store(true, std::memory_order_release);
  }
}

void begin_pass(const edge_list& roots) noexcept {
  enter_pass();
  Runtime* const runtime = backward_depth() == 1 ? Runtime::get() : nullptr;
  if (runtime == nullptr) {
    return;
  }
  try {
    runtime->begin_backward(recorders_of(roots));
  } catch (...) {  // no memory for a list of threads
    runtime->begin_backward({});
  }
}

class BackwardScope {
 public:
  BackwardScope(const edge_list& roots, bool create_graph) noexcept
      : outer_(set_backward_creates_graph(create_graph)) {
    begin_pass(roots);
  }
  ~BackwardScope() {
    backward_exit();
    set_backward_creates_graph(outer_);
  }
  BackwardScope(const BackwardScope&) = delete;
  BackwardScope& operator=(const BackwardScope&) = delete;

 private:
  const bool outer_;
};

// Everything the wrapped engine can be asked for virtually is passed on. Its non-virtual members
// work on thread-local state (queue_callback, is_checkpoint_valid), so they do the same on this
// object.
class WrappingEngine final : public Engine {
 public:
  explicit WrappingEngine(Engine& inner) : inner_(&inner) {}
  void wrap(Engine& inner) noexcept { inner_.store(&inner, std::memory_order_release); }

  variable_list execute(const edge_list& roots, const variable_list& inputs, bool keep_graph,
                        bool create_graph, bool accumulate_grad,
                        const edge_list& outputs) override {
    // C++ programs come this way with no preload library; Python never.
    const BackwardScope scope(roots, create_graph);
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
    if (auto hooks = inner().get_default_saved_variable_hooks()) {
      return hooks;  // Python's own hooks win
    }
    Runtime* const runtime = Runtime::get();
    if (runtime == nullptr) {
      return nullptr;
    }
    if (!call_sites_learned.load(std::memory_order_acquire) && runtime->interposed &&
        runtime->tagging() && !operators_are_watched() && !node_creation_is_watched()) {
      learn_call_sites_once(*runtime);
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
  [[nodiscard]] Engine& inner() const noexcept { return *inner_.load(std::memory_order_acquire); }
  std::atomic<Engine*> inner_;
};

WrappingEngine& the_engine() {
  static auto* const engine = new WrappingEngine(wrapped_stub());  // leaked, as torch leaks its own
  return *engine;
}

Engine& wrapping_engine() { return the_engine(); }

// ---- what the preload library jumps to ----

variable_list execute_hook(Engine* self, const edge_list& roots, const variable_list& inputs,
                           bool keep_graph, bool create_graph, bool accumulate_grad,
                           const edge_list& outputs) {
  const BackwardScope scope(roots, create_graph);
  return real_execute(self, roots, inputs, keep_graph, create_graph, accumulate_grad, outputs);
}

void constructor_hook(SavedVariable* self, const at::Tensor& variable, bool is_output,
                      bool is_inplace_on_view) {
  const void* const call_site = __builtin_return_address(0);
  if (learning_call_sites()) [[unlikely]] {
    note_call_site(call_site);
    real_constructor(self, variable, is_output, is_inplace_on_view);
    return;
  }
  ConstructionScope scope{&variable,
                          {.known = true,
                           .is_output = is_output,
                           .is_inplace_on_view = is_inplace_on_view,
                           .call_site = call_site,
                           .care = care_of_saves_in_progress(call_site)}};
  ConstructionScope*& current = current_construction();
  struct Restore {
    ConstructionScope*& slot;
    ConstructionScope* outer;
    ~Restore() { slot = outer; }
  } const restore{current, current};
  current = &scope;
  real_constructor(self, variable, is_output, is_inplace_on_view);
}

void set_gradient_edge_hook(const at::Tensor& variable, torch::autograd::Edge edge) {
  note_gradient_edge(edge.function.get());
  if (Runtime* const runtime = Runtime::get()) {
    runtime->residency.advance();
  }
  real_set_gradient_edge(variable, std::move(edge));
}

at::Tensor pow_hook(const at::Tensor& self, const at::Scalar& exponent) {
  const PowInProgress scope(exponent);
  return real_pow(self, exponent);
}

at::Tensor& pow_inplace_hook(at::Tensor& self, const at::Scalar& exponent) {
  const PowInProgress scope(exponent);
  return real_pow_inplace(self, exponent);
}

// Takes the real function over and gives ours for it; null where torch has none.
template <class Function>
void* put_before(Function& real, void* host, Function ours) noexcept {
  real = reinterpret_cast<Function>(host);
  return real != nullptr ? reinterpret_cast<void*>(ours) : nullptr;
}

// A user's own hooks on a tensor of ours replace ours instead of raising.
void register_hooks_hook(SavedVariable* self, std::unique_ptr<SavedVariableHooks>&& hooks) {
  std::unique_ptr<SavedVariableHooks>& present = hooks_of(*self);
  if (is_saved_tensor_hooks(present.get())) {
    at::Tensor value = value_of(*present);
    present.reset();
    data_of(*self) = std::move(value);  // what stock hands to a hook
  }
  real_register_hooks(self, std::move(hooks));
}

// A saved variable that lives is handed out itself, as stock does. From what hooks return autograd
// makes a tensor that nobody else refers to, though its storage lives: an accumulator would take it
// for .grad.
at::Tensor unpack_hook(const SavedVariable* self, NodePtr saved_for) {
  SavedVariableHooks* const hooks = hooks_of(*self);
  forget_given_to_others(saved_for.get());
  if (!is_saved_tensor_hooks(hooks)) {
    return real_unpack(self, std::move(saved_for));
  }
  struct Restore {
    const torch::autograd::Node* const outer;
    ~Restore() { set_unpacking_node(outer); }
  } const restore{set_unpacking_node(saved_for.get())};
  if (at::Tensor variable = present_variable(*hooks); variable.defined()) {
    return variable;
  }
  const NodePtr node = saved_for;  // may be the last reference
  at::Tensor unpacked = real_unpack(self, std::move(saved_for));
  note_unpacked(*hooks, unpacked);
  return unpacked;
}

}  // namespace

void backward_enter() noexcept { begin_pass({}); }

void backward_exit() noexcept {
  forget_pass(backward_depth());
  if (leave_pass()) {
    drop_kept_storages();
  }
}

void install_engine(Runtime& runtime, const PleatHostFunctions& host,
                    PleatBridgeFunctions& functions) {
  if (host.engine_stub != nullptr) {
    wrapped_stub = reinterpret_cast<EngineStub>(host.engine_stub);
  } else {
    static Engine* const present = &Engine::get_default_engine();
    wrapped_stub = []() -> Engine& { return *present; };
  }
  functions.engine_execute = put_before(real_execute, host.engine_execute, &execute_hook);
  functions.saved_variable_constructor =
      put_before(real_constructor, host.saved_variable_constructor, &constructor_hook);
  functions.saved_variable_register_hooks =
      put_before(real_register_hooks, host.saved_variable_register_hooks, &register_hooks_hook);
  functions.saved_variable_unpack =
      put_before(real_unpack, host.saved_variable_unpack, &unpack_hook);
  functions.set_gradient_edge =
      put_before(real_set_gradient_edge, host.set_gradient_edge, &set_gradient_edge_hook);
  functions.pow = put_before(real_pow, host.pow, &pow_hook);
  functions.pow_inplace = put_before(real_pow_inplace, host.pow_inplace, &pow_inplace_hook);
  install_in_place_gradients(host.gradients, functions.gradients);
  runtime.interposed = host.interposed != 0 && real_constructor != nullptr;
  functions.abi_version = PLEAT_ABI_VERSION;
  functions.struct_size = sizeof functions;
  functions.engine_stub = reinterpret_cast<void*>(&wrapping_engine);
}

void rewrap_engine(void* engine_stub) {
  const auto stub = reinterpret_cast<EngineStub>(engine_stub);
  if (stub != nullptr && stub != &wrapping_engine && stub != wrapped_stub) {
    wrapped_stub = stub;
    the_engine().wrap(stub());
  }
}

}  // namespace pleat::bridge
