// Names from Python for people to read: the running line of the script, parameters, modules. The
// functions take the interpreter's lock, so the caller must hold no lock of Pleat's. All return
// empty results if no Python runs.
#pragma once

#include <c10/core/TensorImpl.h>

#include <exception>
#include <string>
#include <unordered_map>

namespace pleat::bridge {

// "file:line" of the innermost frame of this thread that is not torch's own.
[[nodiscard]] std::string python_line() noexcept;

// The names of all parameters of live modules, as in torch.nn.Module.named_parameters(). If there
// are several root modules, the class of the root precedes the name. Keys compare only.
[[nodiscard]] std::unordered_map<const c10::TensorImpl*, std::string> parameter_names() noexcept;

// The class of a live module whose parameters torch has sharded (FSDP); empty: none. Hooks of such
// a module count passes.
[[nodiscard]] std::string sharded_module() noexcept;

// True for an error of Python that is not an Exception: KeyboardInterrupt, SystemExit. A handler
// that ignores errors of the script's functions must let these through.
[[nodiscard]] bool is_interruption(const std::exception& error) noexcept;

// In a catch clause: the first line of the exception's message. Rethrows an interruption.
[[nodiscard]] std::string line_of_exception();

}  // namespace pleat::bridge
