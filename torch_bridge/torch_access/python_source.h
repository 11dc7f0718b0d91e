// What Python knows of where things come from, for people to read: the line of the script that
// runs, the names of parameters. The functions take the interpreter's lock, so no lock of ours may
// be held. All give nothing where no Python runs.
#pragma once

#include <c10/core/TensorImpl.h>

#include <string>
#include <unordered_map>

namespace pleat::bridge {

// "file:line" of the innermost frame of this thread that is not torch's own.
[[nodiscard]] std::string python_line() noexcept;

// The names of all parameters of modules that live, as torch.nn.Module.named_parameters() has them;
// where several modules belong to no other, with the class of theirs before it. Keys compare only.
[[nodiscard]] std::unordered_map<const c10::TensorImpl*, std::string> parameter_names() noexcept;

}  // namespace pleat::bridge
