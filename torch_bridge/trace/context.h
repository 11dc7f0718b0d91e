// What a thread is doing, for a trace: the operator, the phase of a step, the pass. Kept while a
// trace is written only.
#pragma once

#include <cstdint>

#include "torch_bridge/c_abi.h"
#include "torch_bridge/torch_access/torch_version.h"

namespace pleat::bridge {

// Listens to operators, backward nodes, optimizers and, if they are wanted, to modules from now on,
// for a trace that begins; to none of them.
void listen_to_operators(bool modules);
void forget_operators() noexcept;

// Another one for each trace.
[[nodiscard]] std::uint32_t number_of_trace() noexcept;

// The phase of this thread. Takes no lock.
[[nodiscard]] std::uint8_t trace_phase() noexcept;
// The operator that this thread runs, as the recorder numbers texts: the backward node where there
// is one, else the outermost operator. 0: none.
[[nodiscard]] std::uint32_t trace_operator() noexcept;
// Which forward operator's backward node runs in this thread: PleatTraceEvent::node.
[[nodiscard]] std::uint64_t trace_node() noexcept;
// The stack of this thread. In a backward pass the interpreter's lock may be wanted by who waits
// for a node of the pass: where this thread does not have it, the stack is that of the pass's call.
[[nodiscard]] std::uint32_t trace_stack(const PleatRecorder& recorder) noexcept;

// An event of this thread that is none of an allocator's, now.
[[nodiscard]] PleatTraceEvent trace_mark(PleatTraceKind kind) noexcept;

// Forward has recorded the node in this thread.
void trace_recorded(const torch::autograd::Node& node) noexcept;
// An outermost backward pass of this thread begins, ends.
void trace_pass_begins() noexcept;
void trace_pass_ends() noexcept;

}  // namespace pleat::bridge
