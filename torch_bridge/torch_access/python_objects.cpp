#include "torch_bridge/torch_access/python_objects.h"

#include <dlfcn.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "torch_bridge/torch_access/python_api.h"

namespace pleat::bridge {
namespace {

// Looked up in the process, because the bridge does not link Python. The offset of an object's type
// differs between builds of Python. It follows from `type`, which is its own type.
struct Interpreter {
  void* const* parameter_class = nullptr;  // libtorch_python's ParameterClass
  void* const* tensor_class = nullptr;     // and its THPVariableClass, torch.Tensor
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
      tensor_class = static_cast<void* const*>(::dlsym(torch, "THPVariableClass"));
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

void* type_of(const void* object, const Interpreter& python) noexcept {
  void* type = nullptr;
  std::memcpy(&type, static_cast<const char*>(object) + python.type_offset, sizeof type);
  return type;
}

}  // namespace

bool is_parameter(const c10::TensorImpl& tensor) noexcept {
  const void* const object = tensor.pyobj_slot()->load_pyobj();
  const Interpreter& python = interpreter();
  if (object == nullptr || python.parameter_class == nullptr ||
      *python.parameter_class == nullptr) {
    return false;
  }
  void* const type = type_of(object, python);
  return type == *python.parameter_class || python.is_subtype(type, *python.parameter_class) != 0;
}

bool has_python_state(const c10::TensorImpl& tensor) noexcept {
  void* const object = tensor.pyobj_slot()->load_pyobj();
  const Interpreter& of_torch = interpreter();
  if (object == nullptr || of_torch.tensor_class == nullptr) {
    return false;
  }
  if (type_of(object, of_torch) != *of_torch.tensor_class) {
    return true;
  }
  const python::Lock lock;
  if (!lock) {
    return false;
  }
  const python::Api& api = python::api();
  const python::Object attributes(api.PyObject_GetAttrString(object, "__dict__"));
  const bool any = attributes.get() != nullptr && api.PyDict_Size(attributes.get()) > 0;
  python::forget_error();
  return any;
}

bool holds_interpreter() noexcept {
  const python::Api& api = python::api();
  return api.complete && api.PyGILState_GetThisThreadState() != nullptr &&
         api.PyGILState_Check() != 0;
}

PythonClass class_of_function(const torch::autograd::Node& node) noexcept {
  const Interpreter& python = interpreter();
  const void* const object = object_of(node);
  PythonClass found;
  if (object == nullptr || python.type_offset == 0) {
    return found;
  }
  found.type = type_of(object, python);
  // A class is an object with a size; its name follows.
  const std::size_t name_offset = python.type_offset + 2 * sizeof(void*);
  std::memcpy(&found.name, static_cast<const char*>(found.type) + name_offset, sizeof found.name);
  return found;
}

bool may_be_held_by_python(const c10::TensorImpl& tensor) noexcept {
  const void* const object = tensor.pyobj_slot()->load_pyobj();
  // The count of references is in front of the type; from Python 3.12 on it has 32 bits. A build
  // without the interpreter's lock spreads it.
  if (object == nullptr || interpreter().type_offset != sizeof(void*)) {
    return true;
  }
  std::uint32_t references = 0;
  std::memcpy(&references, object, sizeof references);
  return references != 1;
}

}  // namespace pleat::bridge
