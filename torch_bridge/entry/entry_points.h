// The functions of torch that the preload library's jumps lead to us (PLEAT_HOOKS), and ours in
// their place.
#pragma once

#include "torch_bridge/c_abi.h"

namespace pleat::bridge {

// Remembers the real functions and fills `functions` with what calls of them shall reach instead;
// null where a call has to stay what it is. True if the constructor of SavedVariable is among them.
bool install_entry_points(const PleatHostFunctions& host, PleatBridgeFunctions& functions) noexcept;

}  // namespace pleat::bridge
