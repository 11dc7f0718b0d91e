// The backward passes that run: which thread is in one, how deep, and whether it makes a graph.
// Also whether operators of ours may run in this thread.
//
// A pass is known by its thread. Nodes on the CPU run in the thread that has called backward; what
// must hold in another thread too asks autograd for the graph task.
#pragma once

#include <cstdint>

#include "torch_bridge/torch_access/torch_version.h"

namespace pleat::bridge {

// A pass of this thread while it lives. Nested ones (a backward within a backward, the wrapped
// engine within the wrapper) count as one outermost pass.
void enter_pass() noexcept;
// True if the outermost one is over.
bool leave_pass() noexcept;

// How many backward passes this thread is in, one within the other; 0 where none is seen.
[[nodiscard]] int backward_depth() noexcept;
// True if this thread is in a backward pass, seen to begin or known to autograd alone. Nodes of
// other devices run in threads of their own, which see no pass begin.
[[nodiscard]] bool in_backward() noexcept;
// Called in a child of fork(): the passes of threads that the child does not have are over.
void forget_other_threads_passes() noexcept;
// True if any thread is in one.
[[nodiscard]] bool backward_is_running() noexcept;

// True if this thread runs nodes of a pass that another thread has begun: those of a device other
// than the host.
[[nodiscard]] bool in_device_thread() noexcept;

// True while this thread is in a backward pass with create_graph, or runs nodes of one. Not known
// without the preload library.
[[nodiscard]] bool backward_creates_graph() noexcept;
// Returns what was set before.
bool set_backward_creates_graph(bool creates_graph) noexcept;

// Which values a pass of this thread reads of what is compressed. Others than the payload's are
// there only where Runtime::check keeps them.
enum class PassValues : std::uint8_t {
  kPayload,    // as it always is
  kOriginal,   // what was saved
  kUndoubted,  // the payload's where nobody doubts that noise is harmless, else what was saved
};
[[nodiscard]] PassValues pass_values() noexcept;
// Returns what was set before.
PassValues set_pass_values(PassValues values) noexcept;

// True while this thread is in a pass of ours (entry/extra_passes.h), of which nothing may stay.
[[nodiscard]] bool in_extra_pass() noexcept;
// Returns what was set before.
bool set_in_extra_pass(bool extra) noexcept;

// The node that this thread is unpacking for, where autograd says so: outputs, functions of users.
[[nodiscard]] const torch::autograd::Node* unpacking_node() noexcept;
// Returns what was set before.
const torch::autograd::Node* set_unpacking_node(const torch::autograd::Node* node) noexcept;

// True while the operators that this thread runs are recorded or replaced by somebody: dispatch
// modes (fake tensors, proxies, loggers), tracing, function transforms. Ours must not be among
// them.
[[nodiscard]] bool operators_are_watched() noexcept;

}  // namespace pleat::bridge
