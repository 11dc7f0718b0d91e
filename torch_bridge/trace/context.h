// TraceContext is the state of a thread for a trace: operators, phase of the step, pass. It is kept
// only while a trace is written.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "torch_bridge/c_abi.h"

namespace pleat::bridge {

// A thread knows each phase but backward by itself: nodes of devices run in other threads.
struct TraceContext {
  static constexpr std::uint32_t kMostDepth = 64;
  struct Running {
    const void* function;  // at::RecordFunction, to compare only: it can end in another thread
    std::uint64_t node;
    std::uint32_t op;  // of nodes, and of an operator in no other
    bool is_node;
  };
  std::array<Running, kMostDepth> running;  // the innermost last
  std::uint32_t depth = 0;                  // can be more than fit
  PleatTracePhase phase = PLEAT_TRACE_PHASE_OTHER;
  std::uint32_t optimizers = 0;  // steps of optimizers this thread is in, one within the other
  bool passed = false;           // a backward pass has ended since the last step
  bool evaluates = false;        // the phase is an evaluation, where data was expected
  std::uint32_t stack_of_pass = 0;
  std::uint64_t last_node = 0;

  std::uint32_t of_trace = 0;  // number of the trace in which all this was learned

  [[nodiscard]] std::uint32_t kept() const noexcept { return std::min(depth, kMostDepth); }

  // This thread's, of this trace.
  [[nodiscard]] static TraceContext& get() noexcept;
};

// The phase of this thread. Takes no lock.
[[nodiscard]] std::uint8_t trace_phase() noexcept;
// The operator that this thread runs, as the recorder numbers texts: the backward node where there
// is one, else the outermost operator. 0: none.
[[nodiscard]] std::uint32_t trace_operator() noexcept;
// The number of the forward operator whose backward node runs in this thread:
// PleatTraceEvent::node.
[[nodiscard]] std::uint64_t trace_node() noexcept;
// The stack of this thread. In a backward pass the interpreter's lock can be held by a thread that
// waits for a node of the pass: where this thread does not have it, the stack is that of the pass's
// call.
[[nodiscard]] std::uint32_t trace_stack(const PleatRecorder& recorder) noexcept;

// An event of this thread that is none of an allocator's, now.
[[nodiscard]] PleatTraceEvent trace_mark(PleatTraceKind kind) noexcept;

}  // namespace pleat::bridge
