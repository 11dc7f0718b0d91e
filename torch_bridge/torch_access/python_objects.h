// Facts that Python has about a tensor or a node, read without the interpreter's lock except where
// it says so. The functions call no code of the job's and take no reference.
#pragma once

#include <c10/core/TensorImpl.h>

#include "torch_bridge/torch_access/torch_version.h"

namespace pleat::bridge {

// True if its Python object is a torch.nn.Parameter. False in a process without Python.
[[nodiscard]] bool is_parameter(const c10::TensorImpl& tensor) noexcept;

// True if Python code refers to it, or if that is unknown: it has no Python object.
[[nodiscard]] bool may_be_held_by_python(const c10::TensorImpl& tensor) noexcept;

// True if its Python object is of a class derived from torch.Tensor, or has attributes: another
// object with the same values would not do for code in Python. Takes the interpreter's lock.
[[nodiscard]] bool has_python_state(const c10::TensorImpl& tensor) noexcept;
// True if this thread has the interpreter's lock.
[[nodiscard]] bool holds_interpreter() noexcept;

// The class behind a function in Python, which a node of class PyNode runs. The node and the class
// are alive. Renaming the class frees `name`. Nulls if unknown.
struct PythonClass {
  const void* type = nullptr;
  const char* name = nullptr;  // "MyFunctionBackward"
};
[[nodiscard]] PythonClass class_of_function(const torch::autograd::Node& node) noexcept;

}  // namespace pleat::bridge
