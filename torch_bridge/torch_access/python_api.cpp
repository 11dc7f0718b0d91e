#include "torch_bridge/torch_access/python_api.h"

#include <dlfcn.h>

#include <type_traits>

namespace pleat::bridge::python {

Api::Api() noexcept {
  const auto find = [this](const char* name, auto& found) {
    found = reinterpret_cast<std::remove_reference_t<decltype(found)>>(::dlsym(RTLD_DEFAULT, name));
    complete = complete && found != nullptr;
  };
#define PLEAT_PYTHON_FIND(result, name, parameters) find(#name, name);
  PLEAT_PYTHON_FUNCTIONS(PLEAT_PYTHON_FIND)
#undef PLEAT_PYTHON_FIND
  find("PyExc_Exception", PyExc_Exception);
  find("PyExc_KeyboardInterrupt", PyExc_KeyboardInterrupt);
}

const Api& api() noexcept {
  static const Api found;
  return found;
}

Lock::Lock() noexcept {
  const Api& python = api();
  if (!python.complete || python.Py_IsInitialized() == 0 ||
      python.PyGILState_GetThisThreadState() == nullptr) {
    return;
  }
  state_ = python.PyGILState_Ensure();
  held_ = true;
  python.PyErr_Fetch(&error_[0], &error_[1], &error_[2]);
}

Lock::~Lock() {
  if (held_) {
    api().PyErr_Restore(error_[0], error_[1], error_[2]);
    api().PyGILState_Release(state_);
  }
}

std::string_view Object::text() const noexcept {
  std::ptrdiff_t size = 0;
  const char* const data =
      object_ != nullptr ? api().PyUnicode_AsUTF8AndSize(object_, &size) : nullptr;
  return data != nullptr ? std::string_view(data, static_cast<std::size_t>(size))
                         : std::string_view();
}

void forget_error() noexcept {
  const Api& python = api();
  void* error[3] = {};
  python.PyErr_Fetch(&error[0], &error[1], &error[2]);
  if (error[0] != nullptr &&
      python.PyErr_GivenExceptionMatches(error[0], *python.PyExc_KeyboardInterrupt) != 0) {
    python.PyErr_SetInterrupt();  // the script gets it next
  }
  for (void* const part : error) {
    if (part != nullptr) python.Py_DecRef(part);
  }
}

Object new_globals(const char* module) noexcept {
  const Api& python = api();
  Object globals(nullptr);
  if (module == nullptr) {
    globals.reset(python.PyDict_New());
  } else if (void* const made = python.PyImport_AddModule(module); made != nullptr) {
    void* const variables = python.PyModule_GetDict(made);
    python.Py_IncRef(variables);
    globals.reset(variables);
  }
  const Object builtins(python.PyImport_ImportModule("builtins"));
  if (globals.get() == nullptr || builtins.get() == nullptr ||
      python.PyDict_SetItemString(globals.get(), "__builtins__", builtins.get()) != 0) {
    return Object(nullptr);
  }
  return globals;
}

bool run_or_raise(const char* program, const Object& globals) noexcept {
  const Api& python = api();
  constexpr int kFileInput = 257;  // Py_file_input
  bool done = false;
  if (globals.get() != nullptr) {
    const Object code(python.Py_CompileString(program, "<pleat>", kFileInput));
    const Object result(code.get() != nullptr
                            ? python.PyEval_EvalCode(code.get(), globals.get(), globals.get())
                            : nullptr);
    done = result.get() != nullptr;
  }
  return done;
}

bool run(const char* program, const Object& globals) noexcept {
  const bool done = run_or_raise(program, globals);
  forget_error();  // the program's errors must not reach the job
  return done;
}

Object variable(const Object& globals, const char* name) noexcept {
  void* const found =
      globals.get() != nullptr ? api().PyDict_GetItemString(globals.get(), name) : nullptr;
  if (found != nullptr) api().Py_IncRef(found);
  return Object(found);
}

}  // namespace pleat::bridge::python
