// What Python knows of a tensor or a node, without the interpreter's lock: nothing is called that
// could run anybody's code, and no reference is taken.
#pragma once

#include <c10/core/TensorImpl.h>

#include "torch_bridge/torch_access/torch_version.h"

namespace pleat::bridge {

// Its Python object is a torch.nn.Parameter. False in a process without Python.
[[nodiscard]] bool is_parameter(const c10::TensorImpl& tensor) noexcept;

// Somebody in Python refers to it, or nobody can know: it has no Python object.
[[nodiscard]] bool may_be_held_by_python(const c10::TensorImpl& tensor) noexcept;

// The class behind a function in Python, which a node of class PyNode runs. The node is alive, and
// so is the class. `name` is for now: who renames the class frees it. Nulls where it is not known.
struct PythonClass {
  const void* type = nullptr;
  const char* name = nullptr;  // "MyFunctionBackward"
};
[[nodiscard]] PythonClass class_of_function(const torch::autograd::Node& node) noexcept;

}  // namespace pleat::bridge
