// Which module of torch.nn a thread runs, for a trace: hooks on all modules, in Python, tell of
// each call when it begins and when it is over.
#pragma once

#include <cstdint>
#include <string_view>

namespace pleat::bridge {

// Who is told: the path of the module that runs from now on in this thread, or an empty one, and
// how many modules deep that is. Under the interpreter's lock.
using ModuleListener = void (*)(std::string_view path, std::uint64_t depth) noexcept;

// Sets the hooks, unless they are set. False: torch.nn is not there yet, or no Python that this
// thread may ask. Takes the interpreter's lock, so no lock of ours may be held. One thread at a
// time.
bool listen_to_modules(ModuleListener listener) noexcept;
// Removes them. The same.
void forget_modules() noexcept;

}  // namespace pleat::bridge
