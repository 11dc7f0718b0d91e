#include "torch_bridge/entry/entry_points.h"

#include <functional>
#include <utility>

#include "torch_bridge/core/runtime.h"
#include "torch_bridge/entry/in_place_gradient.h"
#include "torch_bridge/hooks/handed_out.h"
#include "torch_bridge/hooks/passes.h"
#include "torch_bridge/hooks/saved_tensor_hooks.h"
#include "torch_bridge/measure/check.h"
#include "torch_bridge/measure/extra_passes.h"
#include "torch_bridge/measure/probe.h"
#include "torch_bridge/policy/call_sites.h"
#include "torch_bridge/policy/proofs.h"
#include "torch_bridge/policy/saving_node.h"
#include "torch_bridge/torch_access/pass_state.h"
#include "torch_bridge/torch_access/saved_variable_access.h"
#include "torch_bridge/trace/operators.h"
#include "torch_bridge/trace/state.h"

namespace pleat::bridge {
namespace {

using torch::autograd::edge_list;
using torch::autograd::Engine;
using torch::autograd::SavedVariable;
using torch::autograd::SavedVariableHooks;
using torch::autograd::variable_list;

// The real functions, by their members in PleatHostFunctions. Written once, before any is called.
struct RealFunctions {
  variable_list (*engine_execute)(Engine*, const edge_list&, const variable_list&, bool, bool, bool,
                                  const edge_list&);
  void (*engine_queue_callback)(Engine*, std::function<void()>);
  void (*saved_variable_constructor)(SavedVariable*, const at::Tensor&, bool, bool);
  void (*saved_variable_register_hooks)(SavedVariable*, std::unique_ptr<SavedVariableHooks>&&);
  at::Tensor (*saved_variable_unpack)(const SavedVariable*, NodePtr);
  void (*set_gradient_edge)(const at::Tensor&, torch::autograd::Edge);
};
RealFunctions real{};

variable_list ours_engine_execute(Engine* self, const edge_list& roots, const variable_list& inputs,
                                  bool keep_graph, bool create_graph, bool accumulate_grad,
                                  const edge_list& outputs) {
  if (accumulate_grad) {
    refuse_in_extra_pass("a backward pass within the pass accumulates gradients");
  }
  const PassKind kind{accumulate_grad && outputs.empty(), create_graph, keep_graph};
  const std::uint64_t graph = graph_of_interest(roots);
  const BackwardScope scope(roots, kind);
  const ExtraPasses::Run run = [&](const edge_list& leaves) {
    return real.engine_execute(self, roots, inputs, true, false, false, leaves);
  };
  const CheckedPass check(roots, kind, run);
  const ProbedPass probe(graph, roots, kind, run);
  return real.engine_execute(self, roots, inputs, keep_graph, create_graph, accumulate_grad,
                             outputs);
}

// DistributedDataParallel with a static graph waits so for the end of a pass that accumulates.
void ours_engine_queue_callback(Engine* self, std::function<void()> callback) {
  refuse_in_extra_pass("a function or a hook queues a callback for the end of the pass");
  real.engine_queue_callback(self, std::move(callback));
}

void ours_saved_variable_constructor(SavedVariable* self, const at::Tensor& variable,
                                     bool is_output, bool is_inplace_on_view) {
  const void* const call_site = __builtin_return_address(0);
  if (learning_call_sites()) [[unlikely]] {
    note_call_site(call_site);
    real.saved_variable_constructor(self, variable, is_output, is_inplace_on_view);
    return;
  }
  ConstructionScope scope{&variable,
                          {.known = true,
                           .is_output = is_output,
                           .is_inplace_on_view = is_inplace_on_view,
                           .call_site = call_site}};
  ConstructionScope*& current = thread_policy.construction;
  struct Restore {
    ConstructionScope*& slot;
    ConstructionScope* outer;
    ~Restore() { slot = outer; }
  } const restore{current, current};
  current = &scope;
  real.saved_variable_constructor(self, variable, is_output, is_inplace_on_view);
  if (const CallSite site = call_site_at(call_site); site.saver != nullptr && !is_output) {
    note_operand(site, variable);
  }
}

void ours_set_gradient_edge(const at::Tensor& variable, torch::autograd::Edge edge) {
  if (!learning_call_sites()) {  // it comes between the nodes of the script, and is none of them
    note_gradient_edge(edge.function.get());
    if (PassWatch* const watch = pass_facts().watch; watch != nullptr) [[unlikely]] {
      watch->note_recorded();
    }
    if (Runtime* const runtime = Runtime::get(); runtime != nullptr && edge.function != nullptr) {
      note_node(*runtime, *edge.function);
      if (tracing()) [[unlikely]]
        trace_recorded(*edge.function);
      runtime->residency.advance();
    }
  }
  real.set_gradient_edge(variable, std::move(edge));
}

// A user's own hooks on a tensor of ours replace ours instead of raising.
void ours_saved_variable_register_hooks(SavedVariable* self,
                                        std::unique_ptr<SavedVariableHooks>&& hooks) {
  std::unique_ptr<SavedVariableHooks>& present = hooks_of(*self);
  if (is_saved_tensor_hooks(present.get())) {
    at::Tensor value = value_of(*present);
    present.reset();
    data_of(*self) = std::move(value);  // what stock hands to a hook
  }
  real.saved_variable_register_hooks(self, std::move(hooks));
}

// A saved variable that lives is handed out itself, as stock does. From what hooks return autograd
// makes a tensor without any other reference, though its storage lives: an accumulator would take
// it for .grad.
at::Tensor ours_saved_variable_unpack(const SavedVariable* self, NodePtr saved_for) {
  SavedVariableHooks* const hooks = hooks_of(*self);
  forget_given_to_others(saved_for.get());
  if (!is_saved_tensor_hooks(hooks)) {
    return real.saved_variable_unpack(self, std::move(saved_for));
  }
  struct Restore {
    const torch::autograd::Node* const outer;
    ~Restore() { set_unpacking_node(outer); }
  } const restore{set_unpacking_node(saved_for.get())};
  if (at::Tensor variable = present_variable(*hooks); variable.defined()) {
    return variable;
  }
  const NodePtr node = saved_for;  // may be the last reference
  at::Tensor unpacked = real.saved_variable_unpack(self, std::move(saved_for));
  note_unpacked(*hooks, unpacked);
  return unpacked;
}

// Takes the real function over and gives ours for it; null where torch has none.
template <class Function>
void* put_before(Function& real, void* host, Function ours) noexcept {
  real = reinterpret_cast<Function>(host);
  return real != nullptr ? reinterpret_cast<void*>(ours) : nullptr;
}

}  // namespace

bool install_entry_points(const PleatHostFunctions& host,
                          PleatBridgeFunctions& functions) noexcept {
  // A FUNCTION row without a member of RealFunctions and a function of ours does not compile.
#define PLEAT_INSTALL(member, name) \
  functions.member = put_before(real.member, host.member, &ours_##member);
  PLEAT_HOOKS(PLEAT_INSTALL, PLEAT_NO_HOOK, PLEAT_NO_HOOK)
#undef PLEAT_INSTALL
  install_in_place_gradients(host.gradients, functions.gradients);
  return real.saved_variable_constructor != nullptr;
}

}  // namespace pleat::bridge
