#include "torch_bridge/trace/context.h"

#include <ATen/record_function.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <string_view>

#include "torch_bridge/core/clock.h"
#include "torch_bridge/torch_access/pass_state.h"
#include "torch_bridge/trace/link.h"
#include "torch_bridge/trace/module_paths.h"

namespace pleat::bridge {
namespace {

using at::RecordFunction;
using at::RecordScope;

// Threads know each phase but backward by themselves: nodes of devices run in other threads.
struct Running {
  const RecordFunction* which;  // to compare only: it may end in another thread, unseen
  std::uint64_t node;
  std::uint32_t op;  // of nodes, and of an operator in no other
  bool is_node;
};
struct ThreadContext {
  static constexpr std::uint32_t kMostDepth = 64;
  std::array<Running, kMostDepth> running;  // the innermost last
  std::uint32_t depth = 0;                  // may be more than fit
  PleatTracePhase phase = PLEAT_TRACE_PHASE_OTHER;
  std::uint32_t optimizers = 0;  // steps of optimizers this thread is in, one within the other
  bool passed = false;           // a backward pass has ended since the last step
  bool evaluates = false;        // the phase is an evaluation, where data was expected
  std::uint32_t stack_of_pass = 0;
  std::uint64_t last_node = 0;

  std::uint32_t of_trace = 0;  // what is here was learnt in an earlier trace, if not in this one

  [[nodiscard]] std::uint32_t kept() const noexcept { return std::min(depth, kMostDepth); }
};
thread_local ThreadContext context;

std::atomic<std::uint64_t> step{0};
std::atomic<bool> optimizer_seen{false};
std::atomic<std::uint32_t> trace_number{0};

// What this thread is doing, as far as this trace has seen.
ThreadContext& mine() noexcept {
  const std::uint32_t trace = trace_number.load(std::memory_order_relaxed);
  if (context.of_trace != trace) [[unlikely]] {
    context.depth = context.optimizers = context.stack_of_pass = 0;
    context.phase = PLEAT_TRACE_PHASE_OTHER;
    context.passed = context.evaluates = false;
    context.last_node = 0;
    context.of_trace = trace;
  }
  return context;
}

void begin_phase(PleatTracePhase phase) noexcept {
  const PleatRecorder* const recorder = trace_recorder.load(std::memory_order_acquire);
  ThreadContext& own = mine();
  if (own.phase == phase || recorder == nullptr) return;
  own.phase = phase;
  own.evaluates = false;
  PleatTraceEvent mark = trace_mark(PLEAT_TRACE_PHASE);
  mark.phase = static_cast<std::uint8_t>(phase);
  mark.bytes = step.load(std::memory_order_relaxed);
  recorder->event(&mark);
}

// Between an optimizer's step and forward the next batch is made, or something is worked out
// without gradients: an evaluation, a moving average of weights.
void look_for_evaluation(ThreadContext& own) noexcept {
  if (own.phase != PLEAT_TRACE_PHASE_DATA && !own.evaluates) return;
  const bool evaluates = !c10::GradMode::is_enabled();
  if (evaluates == own.evaluates) return;
  begin_phase(evaluates ? PLEAT_TRACE_PHASE_OTHER : PLEAT_TRACE_PHASE_DATA);
  own.evaluates = evaluates;
}

// ---- modules ----------------------------------------------------------------------------------

// They are asked for, and not listened to yet: torch.nn comes late, and its lock is not waited for
// in a backward pass.
std::atomic<bool> modules_wanted{false};

void tell_module(std::string_view path, std::uint64_t depth) noexcept {
  const PleatRecorder* const recorder = trace_recorder.load(std::memory_order_acquire);
  if (recorder == nullptr) return;
  const TraceCost::Timed timed(trace_costs.callbacks);
  PleatTraceEvent mark = trace_mark(PLEAT_TRACE_MODULE);
  mark.op = path.empty() ? 0 : recorder->intern(path.data(), path.size());
  mark.bytes = depth;
  recorder->event(&mark);
}

void try_modules() noexcept {
  if (in_backward() || !modules_wanted.exchange(false)) return;
  if (!listen_to_modules(tell_module)) modules_wanted.store(true);
}

// ---- operators ----------------------------------------------------------------------------------

constexpr unsigned kSequenceBits = 48;
std::uint64_t node_number(std::uint64_t thread, std::int64_t sequence) noexcept {
  return sequence < 0 ? 0 : thread << kSequenceBits | (static_cast<std::uint64_t>(sequence) + 1);
}

std::unique_ptr<at::ObserverContext> operator_starts(const RecordFunction& function) {
  if (modules_wanted.load(std::memory_order_relaxed)) [[unlikely]]
    try_modules();
  const TraceCost::Timed timed(trace_costs.callbacks);
  const PleatRecorder* const recorder = trace_recorder.load(std::memory_order_acquire);
  ThreadContext& own = mine();
  const std::uint32_t at = own.depth++;
  if (at == 0) look_for_evaluation(own);
  if (recorder == nullptr || at >= ThreadContext::kMostDepth) return nullptr;
  Running& running = own.running[at];
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

// An operator may end in another thread than it began in, and one may begin before anybody listens.
void operator_ends(const RecordFunction& function, at::ObserverContext* /*none*/) {
  if (mine().depth > ThreadContext::kMostDepth) {
    --mine().depth;
    return;
  }
  for (std::uint32_t i = mine().depth; i-- > 0;) {
    if (mine().running[i].which == &function) {
      mine().depth = i;
      return;
    }
  }
}

bool is_optimizer_step(const RecordFunction& scope) noexcept {
  return std::string_view(scope.name()).starts_with("Optimizer.step#");
}

std::unique_ptr<at::ObserverContext> scope_starts(const RecordFunction& scope) {
  if (is_optimizer_step(scope)) {
    optimizer_seen.store(true, std::memory_order_relaxed);
    ++mine().optimizers;
    mine().depth = 0;  // nothing runs here, whatever has ended unseen
    begin_phase(PLEAT_TRACE_PHASE_OPTIMIZER);
  }
  return nullptr;
}

void scope_ends(const RecordFunction& scope, at::ObserverContext* /*none*/) {
  if (mine().optimizers == 0 || !is_optimizer_step(scope)) return;
  if (--mine().optimizers == 0) {
    if (mine().passed) step.fetch_add(1, std::memory_order_relaxed);
    mine().passed = false;
    begin_phase(PLEAT_TRACE_PHASE_DATA);
  }
}

std::array<at::CallbackHandle, 2> handles{};

}  // namespace

void listen_to_operators(bool modules) {
  modules_wanted.store(modules);
  step.store(0, std::memory_order_relaxed);
  optimizer_seen.store(false, std::memory_order_relaxed);
  trace_number.fetch_add(1, std::memory_order_relaxed);
  handles[0] =
      at::addGlobalCallback(at::RecordFunctionCallback(operator_starts, operator_ends)
                                .scopes({RecordScope::FUNCTION, RecordScope::BACKWARD_FUNCTION}));
  handles[1] = at::addGlobalCallback(
      at::RecordFunctionCallback(scope_starts, scope_ends).scopes({RecordScope::USER_SCOPE}));
}

std::uint32_t number_of_trace() noexcept { return trace_number.load(std::memory_order_relaxed); }

void forget_operators() noexcept {
  modules_wanted.store(false);
  for (at::CallbackHandle& handle : handles) {
    if (handle != 0) at::removeCallback(handle);
    handle = 0;
  }
}

std::uint8_t trace_phase() noexcept {
  return static_cast<std::uint8_t>(in_backward() ? PLEAT_TRACE_PHASE_BACKWARD : mine().phase);
}

std::uint32_t trace_operator() noexcept {
  const std::uint32_t kept = mine().kept();
  return kept != 0 ? mine().running[kept - 1].op : 0;
}

std::uint64_t trace_node() noexcept {
  for (std::uint32_t i = mine().kept(); i-- > 0;) {
    if (mine().running[i].is_node) return mine().running[i].node;
  }
  return 0;
}

std::uint32_t trace_stack(const PleatRecorder& recorder) noexcept {
  if (!in_backward()) return recorder.stack(1);
  const std::uint32_t own = recorder.stack(0);
  return own != 0 ? own : mine().stack_of_pass;
}

PleatTraceEvent trace_mark(PleatTraceKind kind) noexcept {
  PleatTraceEvent mark{};
  mark.time_ns = monotonic_ns();
  mark.kind = static_cast<std::uint8_t>(kind);
  mark.phase = trace_phase();
  mark.device = -1;
  return mark;
}

void trace_recorded(const torch::autograd::Node& node) noexcept {
  const PleatRecorder* const recorder = trace_recorder.load(std::memory_order_acquire);
  if (recorder == nullptr || in_backward()) return;
  const std::uint64_t number =
      node_number(node.thread_id(), static_cast<std::int64_t>(node.sequence_nr()));
  if (number == mine().last_node) return;  // one of its other outputs
  mine().last_node = number;
  const TraceCost::Timed timed(trace_costs.events);
  if (mine().phase != PLEAT_TRACE_PHASE_FORWARD) {
    if (mine().phase == PLEAT_TRACE_PHASE_BETWEEN && mine().passed &&
        !optimizer_seen.load(std::memory_order_relaxed)) {
      step.fetch_add(1, std::memory_order_relaxed);
      mine().passed = false;
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
  if (const PleatRecorder* const recorder = trace_recorder.load(std::memory_order_acquire)) {
    mine().stack_of_pass = recorder->stack(1);
    begin_phase(PLEAT_TRACE_PHASE_BACKWARD);
  }
}

void trace_pass_ends() noexcept {
  if (!tracing()) return;
  mine().passed = true;
  begin_phase(mine().optimizers != 0 ? PLEAT_TRACE_PHASE_OPTIMIZER : PLEAT_TRACE_PHASE_BETWEEN);
}

}  // namespace pleat::bridge
