// torch's entry points: the functions that the preload library's jumps lead to (PLEAT_HOOKS), and
// an Engine that wraps the one in force and offers saved-tensor hooks.
#pragma once

#include "torch_bridge/c_abi.h"

namespace pleat::bridge {

// Remembers the real functions and fills `functions` with what calls of them shall reach instead;
// null where a call has to stay what it is. True if the constructor of SavedVariable is among them.
bool install_entry_points(const PleatHostFunctions& host, PleatBridgeFunctions& functions) noexcept;

// The stub of the wrapping engine, for torch's set_default_engine_stub(). `engine_stub`: of the
// engine to wrap; null: the default engine in force now. Once.
[[nodiscard]] void* wrap_engine(void* engine_stub);

// Wraps Python's engine in place of the one wrapped first. For a C++ program that was served before
// main and embeds Python later.
void rewrap_engine(void* engine_stub);

}  // namespace pleat::bridge
