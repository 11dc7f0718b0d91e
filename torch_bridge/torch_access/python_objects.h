// What Python knows of a tensor, without the interpreter's lock: nothing is called that could run
// anybody's code, and no reference is taken.
#pragma once

#include <c10/core/TensorImpl.h>

namespace pleat::bridge {

// Its Python object is a torch.nn.Parameter. False in a process without Python.
[[nodiscard]] bool is_parameter(const c10::TensorImpl& tensor) noexcept;

// Somebody in Python refers to it, or nobody can know: it has no Python object.
[[nodiscard]] bool may_be_held_by_python(const c10::TensorImpl& tensor) noexcept;

}  // namespace pleat::bridge
