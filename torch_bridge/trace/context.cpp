#include "torch_bridge/trace/context.h"

#include "torch_bridge/core/clock.h"
#include "torch_bridge/torch_access/pass_state.h"
#include "torch_bridge/trace/state.h"

namespace pleat::bridge {

TraceContext& TraceContext::get() noexcept {
  static constinit thread_local TraceContext context{.running = {}};
  const std::uint32_t trace = trace_state.number.load(std::memory_order_relaxed);
  if (context.of_trace != trace) [[unlikely]] {
    context.depth = context.optimizers = context.stack_of_pass = 0;
    context.phase = PLEAT_TRACE_PHASE_OTHER;
    context.passed = context.evaluates = false;
    context.last_node = 0;
    context.of_trace = trace;
  }
  return context;
}

std::uint8_t trace_phase() noexcept {
  return static_cast<std::uint8_t>(in_backward() ? PLEAT_TRACE_PHASE_BACKWARD
                                                 : TraceContext::get().phase);
}

std::uint32_t trace_operator() noexcept {
  const TraceContext& own = TraceContext::get();
  const std::uint32_t kept = own.kept();
  return kept != 0 ? own.running[kept - 1].op : 0;
}

std::uint64_t trace_node() noexcept {
  const TraceContext& own = TraceContext::get();
  for (std::uint32_t i = own.kept(); i-- > 0;) {
    if (own.running[i].is_node) return own.running[i].node;
  }
  return 0;
}

std::uint32_t trace_stack(const PleatRecorder& recorder) noexcept {
  if (!in_backward()) return recorder.stack(1);
  const std::uint32_t own = recorder.stack(0);
  return own != 0 ? own : TraceContext::get().stack_of_pass;
}

PleatTraceEvent trace_mark(PleatTraceKind kind) noexcept {
  PleatTraceEvent mark{};
  mark.time_ns = monotonic_ns();
  mark.kind = static_cast<std::uint8_t>(kind);
  mark.phase = trace_phase();
  mark.device = -1;
  return mark;
}

}  // namespace pleat::bridge
