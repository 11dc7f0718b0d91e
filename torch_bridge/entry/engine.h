// Where autograd meets us: an Engine that wraps the one in force and offers our saved-tensor hooks
// where Python's own have nothing to say, and the functions the preload library's jumps lead to.
#pragma once

#include "torch_bridge/c_abi.h"
#include "torch_bridge/core/runtime.h"
#include "torch_bridge/torch_access/torch_version.h"

namespace pleat::bridge {

// Remembers the real functions and fills `functions`. `host.engine_stub` null: wraps the default
// engine in force now.
void install_engine(Runtime& runtime, const PleatHostFunctions& host,
                    PleatBridgeFunctions& functions);

// A C++ program that was served before main and embeds Python later: Python's engine replaces the
// one wrapped first.
void rewrap_engine(void* engine_stub);

// True while the operators that this thread runs are recorded or replaced by somebody: dispatch
// modes (fake tensors, proxies, loggers), tracing, function transforms. Ours must not be among
// them.
[[nodiscard]] bool operators_are_watched() noexcept;

// True while this thread is in a backward pass with create_graph. Not known without the preload
// library.
[[nodiscard]] bool backward_creates_graph() noexcept;

// The node that this thread is unpacking for, where autograd says so: outputs, functions of users.
[[nodiscard]] const torch::autograd::Node* unpacking_node() noexcept;

// The hooks of ours that a saved variable has, null if none. Nobody may take them off meanwhile.
[[nodiscard]] torch::autograd::SavedVariableHooks* saved_tensor_hooks_of(
    const torch::autograd::SavedVariable& saved) noexcept;

// Start and end of an outermost backward pass, for installations without the preload library.
void backward_enter() noexcept;
void backward_exit() noexcept;

// Of the passes that this thread is in: 0 outside of any that is seen.
[[nodiscard]] int backward_depth() noexcept;
// Any thread is in one.
[[nodiscard]] bool backward_is_running() noexcept;

}  // namespace pleat::bridge
