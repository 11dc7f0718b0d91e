// Where autograd meets us: an Engine that wraps the one in force and offers our saved-tensor hooks
// where Python's own have nothing to say, and the functions the preload library's jumps lead to.
#pragma once

#include "torch_bridge/c_abi.h"
#include "torch_bridge/core/runtime.h"

namespace pleat::bridge {

// Remembers the real functions and fills `functions`. `host.engine_stub` null: wraps the default
// engine in force now.
void install_engine(Runtime& runtime, const PleatHostFunctions& host,
                    PleatBridgeFunctions& functions);

// A C++ program that was served before main and embeds Python later: Python's engine replaces the
// one wrapped first.
void rewrap_engine(void* engine_stub);

// Start and end of an outermost backward pass, for installations without the preload library: over
// what this thread has recorded.
void backward_enter() noexcept;
void backward_exit() noexcept;

}  // namespace pleat::bridge
