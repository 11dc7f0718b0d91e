// What Python knows of where things come from, for people to read: the line of the script that
// runs, the names of parameters. The functions take the interpreter's lock, so no lock of ours may
// be held. All give nothing where no Python runs.
#pragma once

#include <c10/core/TensorImpl.h>

#include <exception>
#include <string>
#include <unordered_map>

namespace pleat::bridge {

// "file:line" of the innermost frame of this thread that is not torch's own.
[[nodiscard]] std::string python_line() noexcept;

// The names of all parameters of modules that live, as torch.nn.Module.named_parameters() has them;
// where several modules belong to no other, with the class of theirs before it. Keys compare only.
[[nodiscard]] std::unordered_map<const c10::TensorImpl*, std::string> parameter_names() noexcept;

// The class of a module that lives and has its parameters sharded by torch (FSDP); empty: there is
// none. Hooks of such a module count passes.
[[nodiscard]] std::string sharded_module() noexcept;

// True for an error of Python that is no Exception: KeyboardInterrupt, SystemExit. Whoever passes
// over what a function of the script raises must let these through.
[[nodiscard]] bool is_interruption(const std::exception& error) noexcept;

// Within a catch clause: the first line of the exception's message. Throws the exception on if it
// is an interruption.
[[nodiscard]] std::string line_of_exception();

}  // namespace pleat::bridge
