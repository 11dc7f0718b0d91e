#include "torch_bridge/torch_access/python_objects.h"

#include <dlfcn.h>

#include <array>
#include <cstddef>
#include <cstring>

namespace pleat::bridge {
namespace {

// Looked up in the process, because the bridge does not link Python. The offset of an object's type
// differs between builds of Python. It follows from `type`, which is its own type.
struct Interpreter {
  void* const* parameter_class = nullptr;  // libtorch_python's ParameterClass
  int (*is_subtype)(void* type, void* of) = nullptr;
  std::size_t type_offset = 0;

  Interpreter() noexcept {
    void* const torch = ::dlopen("libtorch_python.so", RTLD_LAZY | RTLD_NOLOAD);
    void* const type = ::dlsym(RTLD_DEFAULT, "PyType_Type");
    if (torch == nullptr || type == nullptr) {
      return;
    }
    constexpr std::size_t kLargestHeader = 5;  // words
    for (std::size_t word = 1; word < kLargestHeader; ++word) {
      void* found = nullptr;
      std::memcpy(&found, static_cast<const char*>(type) + word * sizeof found, sizeof found);
      if (found == type) {
        type_offset = word * sizeof found;
        break;
      }
    }
    is_subtype = reinterpret_cast<int (*)(void*, void*)>(::dlsym(RTLD_DEFAULT, "PyType_IsSubtype"));
    if (type_offset != 0 && is_subtype != nullptr) {
      parameter_class = static_cast<void* const*>(::dlsym(torch, "ParameterClass"));
    }
  }
};

// Before 2.15, PyNode declares only this member, and its header needs all of Python's headers.
template <class Base>
struct WithObject : Base {
  void* object;
};
template <class Node>
const void* object_of(const Node& node) noexcept {
  if constexpr (requires { node.pyobj_slot(); }) {
    return node.pyobj_slot()->load_pyobj();
  } else {
    return static_cast<const WithObject<Node>&>(node).object;
  }
}

const Interpreter& interpreter() noexcept {
  static const Interpreter found;
  return found;
}

}  // namespace

bool is_parameter(const c10::TensorImpl& tensor) noexcept {
  const void* const object = tensor.pyobj_slot()->load_pyobj();
  const Interpreter& python = interpreter();
  if (object == nullptr || python.parameter_class == nullptr ||
      *python.parameter_class == nullptr) {
    return false;
  }
  void* type = nullptr;
  std::memcpy(&type, static_cast<const char*>(object) + python.type_offset, sizeof type);
  return type == *python.parameter_class || python.is_subtype(type, *python.parameter_class) != 0;
}

PythonClass class_of_function(const torch::autograd::Node& node) noexcept {
  const Interpreter& python = interpreter();
  const void* const object = object_of(node);
  PythonClass found;
  if (object == nullptr || python.type_offset == 0) {
    return found;
  }
  std::memcpy(&found.type, static_cast<const char*>(object) + python.type_offset,
              sizeof found.type);
  // A class is an object with a size; its name follows.
  const std::size_t name_offset = python.type_offset + 2 * sizeof(void*);
  std::memcpy(&found.name, static_cast<const char*>(found.type) + name_offset, sizeof found.name);
  return found;
}

bool may_be_held_by_python(const c10::TensorImpl& tensor) noexcept {
  return !tensor.pyobj_slot()->has_unique_reference();
}

}  // namespace pleat::bridge
