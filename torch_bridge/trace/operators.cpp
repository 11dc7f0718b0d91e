#include "torch_bridge/trace/operators.h"

#include <ATen/record_function.h>
#include <c10/core/GradMode.h>

#include <cstring>
#include <memory>
#include <string_view>

#include "torch_bridge/torch_access/pass_state.h"
#include "torch_bridge/trace/context.h"
#include "torch_bridge/trace/module_paths.h"
#include "torch_bridge/trace/state.h"

namespace pleat::bridge {
namespace {

using at::RecordFunction;
using at::RecordScope;

void begin_phase(PleatTracePhase phase) noexcept {
  const PleatRecorder* const recorder = trace_recorder();
  TraceContext& own = TraceContext::get();
  if (own.phase == phase || recorder == nullptr) return;
  own.phase = phase;
  own.evaluates = false;
  PleatTraceEvent mark = trace_mark(PLEAT_TRACE_PHASE);
  mark.phase = static_cast<std::uint8_t>(phase);
  mark.bytes = trace_state.step.load(std::memory_order_relaxed);
  recorder->event(&mark);
}

// Between an optimizer's step and forward the next batch is made, or something is worked out
// without gradients: an evaluation, a moving average of weights.
void look_for_evaluation(TraceContext& own) noexcept {
  if (own.phase != PLEAT_TRACE_PHASE_DATA && !own.evaluates) return;
  const bool evaluates = !c10::GradMode::is_enabled();
  if (evaluates == own.evaluates) return;
  begin_phase(evaluates ? PLEAT_TRACE_PHASE_OTHER : PLEAT_TRACE_PHASE_DATA);
  own.evaluates = evaluates;
}

// torch.nn comes late, and the interpreter's lock is not waited for in a backward pass.
void try_modules() noexcept {
  if (in_backward() || !trace_state.modules_wanted.exchange(false)) return;
  if (!listen_to_modules()) trace_state.modules_wanted.store(true);
}

constexpr unsigned kSequenceBits = 48;
std::uint64_t node_number(std::uint64_t thread, std::int64_t sequence) noexcept {
  return sequence < 0 ? 0 : thread << kSequenceBits | (static_cast<std::uint64_t>(sequence) + 1);
}

std::unique_ptr<at::ObserverContext> operator_starts(const RecordFunction& function) {
  if (trace_state.modules_wanted.load(std::memory_order_relaxed)) [[unlikely]]
    try_modules();
  const TraceCost::Timed timed(trace_state.callbacks);
  const PleatRecorder* const recorder = trace_recorder();
  TraceContext& own = TraceContext::get();
  const std::uint32_t at = own.depth++;
  if (at == 0) look_for_evaluation(own);
  if (recorder == nullptr || at >= TraceContext::kMostDepth) return nullptr;
  TraceContext::Running& running = own.running[at];
  running = {&function, 0, 0, function.scope() == RecordScope::BACKWARD_FUNCTION};
  if (running.is_node) {
    running.node = node_number(function.forwardThreadId(), function.seqNr());
  } else if (at != 0 && own.running[at - 1].op != 0) {
    running.op = own.running[at - 1].op;  // a part of that
    return nullptr;
  }
  const char* const name = function.name();
  if (running.is_node || !std::string_view(name).starts_with("autograd::engine::")) {
    running.op = recorder->intern(name, std::strlen(name));
  }
  return nullptr;
}

// An operator can end in another thread than it began in, and one can begin before the trace does.
void operator_ends(const RecordFunction& function, at::ObserverContext* /*none*/) {
  TraceContext& own = TraceContext::get();
  if (own.depth > TraceContext::kMostDepth) {
    --own.depth;
    return;
  }
  for (std::uint32_t i = own.depth; i-- > 0;) {
    if (own.running[i].function == &function) {
      own.depth = i;
      return;
    }
  }
}

bool is_optimizer_step(const RecordFunction& scope) noexcept {
  return std::string_view(scope.name()).starts_with("Optimizer.step#");
}

std::unique_ptr<at::ObserverContext> scope_starts(const RecordFunction& scope) {
  if (is_optimizer_step(scope)) {
    TraceContext& own = TraceContext::get();
    trace_state.optimizer_seen.store(true, std::memory_order_relaxed);
    ++own.optimizers;
    own.depth = 0;  // nothing runs here: its end can be unseen
    begin_phase(PLEAT_TRACE_PHASE_OPTIMIZER);
  }
  return nullptr;
}

void scope_ends(const RecordFunction& scope, at::ObserverContext* /*none*/) {
  TraceContext& own = TraceContext::get();
  if (own.optimizers == 0 || !is_optimizer_step(scope)) return;
  if (--own.optimizers == 0) {
    if (own.passed) trace_state.step.fetch_add(1, std::memory_order_relaxed);
    own.passed = false;
    begin_phase(PLEAT_TRACE_PHASE_DATA);
  }
}

}  // namespace

void OperatorListener::start(bool modules) {
  trace_state.modules_wanted.store(modules);
  trace_state.step.store(0, std::memory_order_relaxed);
  trace_state.optimizer_seen.store(false, std::memory_order_relaxed);
  trace_state.number.fetch_add(1, std::memory_order_relaxed);
  callbacks_ = {
      at::addGlobalCallback(at::RecordFunctionCallback(operator_starts, operator_ends)
                                .scopes({RecordScope::FUNCTION, RecordScope::BACKWARD_FUNCTION})),
      at::addGlobalCallback(
          at::RecordFunctionCallback(scope_starts, scope_ends).scopes({RecordScope::USER_SCOPE}))};
}

void OperatorListener::stop() noexcept {
  trace_state.modules_wanted.store(false);
  for (std::uint64_t& callback : callbacks_) {
    if (callback != 0) at::removeCallback(callback);
    callback = 0;
  }
}

void trace_recorded(const torch::autograd::Node& node) noexcept {
  const PleatRecorder* const recorder = trace_recorder();
  if (recorder == nullptr || in_backward()) return;
  const std::uint64_t number =
      node_number(node.thread_id(), static_cast<std::int64_t>(node.sequence_nr()));
  TraceContext& own = TraceContext::get();
  if (number == own.last_node) return;  // one of its other outputs
  own.last_node = number;
  const TraceCost::Timed timed(trace_state.events);
  if (own.phase != PLEAT_TRACE_PHASE_FORWARD) {
    if (own.phase == PLEAT_TRACE_PHASE_BETWEEN && own.passed &&
        !trace_state.optimizer_seen.load(std::memory_order_relaxed)) {
      trace_state.step.fetch_add(1, std::memory_order_relaxed);
      own.passed = false;
    }
    begin_phase(PLEAT_TRACE_PHASE_FORWARD);
  }
  PleatTraceEvent mark = trace_mark(PLEAT_TRACE_NODE);
  mark.node = number;
  mark.op = trace_operator();
  mark.stack = trace_stack(*recorder);
  recorder->event(&mark);
}

void trace_pass_begins() noexcept {
  if (const PleatRecorder* const recorder = trace_recorder()) {
    TraceContext::get().stack_of_pass = recorder->stack(1);
    begin_phase(PLEAT_TRACE_PHASE_BACKWARD);
  }
}

void trace_pass_ends() noexcept {
  if (!tracing()) return;
  TraceContext& own = TraceContext::get();
  own.passed = true;
  begin_phase(own.optimizers != 0 ? PLEAT_TRACE_PHASE_OPTIMIZER : PLEAT_TRACE_PHASE_BETWEEN);
}

}  // namespace pleat::bridge
