// Marks in a trace which module of torch.nn a thread runs, by hooks on all modules, in Python.
#pragma once

namespace pleat::bridge {

// Sets the hooks, unless they are set. False: torch.nn is not loaded yet, or this thread cannot use
// Python. Takes the interpreter's lock, so no lock of ours may be held. One thread at a time.
bool listen_to_modules() noexcept;
// Removes them, under the same terms.
void forget_modules() noexcept;

}  // namespace pleat::bridge
