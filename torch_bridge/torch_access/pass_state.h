// The backward passes that run: who is in one, how deep, and whether it makes a graph. And what
// else is true of this thread that decides if operators of ours may run in it.
//
// A pass is known by its thread. Nodes on the CPU run in the thread that has called backward; what
// must hold in another thread too asks autograd for the graph task.
#pragma once

#include "torch_bridge/torch_access/torch_version.h"

namespace pleat::bridge {

// A pass of this thread while it lives. Nested ones (a backward within a backward, the wrapped
// engine within the wrapper) count as one outermost pass.
void enter_pass() noexcept;
// True if the outermost one is over.
bool leave_pass() noexcept;

// Of the passes that this thread is in: 0 outside of any that is seen.
[[nodiscard]] int backward_depth() noexcept;
// This thread is in a backward pass, whether that was seen to begin or autograd alone knows of it:
// nodes of other devices run in threads of their own.
[[nodiscard]] bool in_backward() noexcept;
// In a child of fork(): passes of threads that it does not have are over.
void forget_other_threads_passes() noexcept;
// Any thread is in one.
[[nodiscard]] bool backward_is_running() noexcept;

// True while this thread is in a backward pass with create_graph. Not known without the preload
// library.
[[nodiscard]] bool backward_creates_graph() noexcept;
// Returns what was set before.
bool set_backward_creates_graph(bool creates_graph) noexcept;

// The node that this thread is unpacking for, where autograd says so: outputs, functions of users.
[[nodiscard]] const torch::autograd::Node* unpacking_node() noexcept;
// Returns what was set before.
const torch::autograd::Node* set_unpacking_node(const torch::autograd::Node* node) noexcept;

// True while the operators that this thread runs are recorded or replaced by somebody: dispatch
// modes (fake tensors, proxies, loggers), tracing, function transforms. Ours must not be among
// them.
[[nodiscard]] bool operators_are_watched() noexcept;

}  // namespace pleat::bridge
