#include "torch_bridge/torch_access/python_source.h"

#include <dlfcn.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <typeinfo>
#include <utility>

namespace pleat::bridge {
namespace {

// The part of Python's documented C API that is used here, in every release from 3.10 on: result,
// name, parameters. Found in the process, as the bridge links no Python.
#define PLEAT_PYTHON_FUNCTIONS(ROW)                                   \
  ROW(int, Py_IsInitialized, ())                                      \
  ROW(void*, PyGILState_GetThisThreadState, ())                       \
  ROW(int, PyGILState_Ensure, ())                                     \
  ROW(void, PyGILState_Release, (int))                                \
  ROW(void*, PyEval_GetFrame, ())                                     \
  ROW(void*, PyFrame_GetBack, (void*))                                \
  ROW(void*, PyFrame_GetCode, (void*))                                \
  ROW(int, PyFrame_GetLineNumber, (void*))                            \
  ROW(void*, PyObject_GetAttrString, (void*, const char*))            \
  ROW(const char*, PyUnicode_AsUTF8AndSize, (void*, std::ptrdiff_t*)) \
  ROW(void, Py_IncRef, (void*))                                       \
  ROW(void, Py_DecRef, (void*))                                       \
  ROW(void, PyErr_Fetch, (void**, void**, void**))                    \
  ROW(void, PyErr_Restore, (void*, void*, void*))                     \
  ROW(int, PyErr_GivenExceptionMatches, (void*, void*))               \
  ROW(void, PyErr_SetInterrupt, ())                                   \
  ROW(void*, PyDict_New, ())                                          \
  ROW(void*, PyDict_GetItemString, (void*, const char*))              \
  ROW(int, PyDict_SetItemString, (void*, const char*, void*))         \
  ROW(void*, PyImport_ImportModule, (const char*))                    \
  ROW(void*, Py_CompileString, (const char*, const char*, int))       \
  ROW(void*, PyEval_EvalCode, (void*, void*, void*))

struct Api {
#define PLEAT_PYTHON_MEMBER(result, name, parameters) result(*name) parameters;
  PLEAT_PYTHON_FUNCTIONS(PLEAT_PYTHON_MEMBER)
#undef PLEAT_PYTHON_MEMBER
  void** PyExc_Exception;
  void** PyExc_KeyboardInterrupt;
  bool complete = true;

  Api() noexcept {
    const auto find = [this](const char* name, auto& found) {
      found =
          reinterpret_cast<std::remove_reference_t<decltype(found)>>(::dlsym(RTLD_DEFAULT, name));
      complete = complete && found != nullptr;
    };
#define PLEAT_PYTHON_FIND(result, name, parameters) find(#name, name);
    PLEAT_PYTHON_FUNCTIONS(PLEAT_PYTHON_FIND)
#undef PLEAT_PYTHON_FIND
    find("PyExc_Exception", PyExc_Exception);
    find("PyExc_KeyboardInterrupt", PyExc_KeyboardInterrupt);
  }
};

const Api& python() noexcept {
  static const Api api;
  return api;
}

// The interpreter's lock, for a thread that Python knows. Keeps the error that may be set.
class Lock {
 public:
  Lock() noexcept {
    const Api& api = python();
    if (!api.complete || api.Py_IsInitialized() == 0 ||
        api.PyGILState_GetThisThreadState() == nullptr) {
      return;
    }
    state_ = api.PyGILState_Ensure();
    held_ = true;
    api.PyErr_Fetch(&error_[0], &error_[1], &error_[2]);
  }
  ~Lock() {
    if (held_) {
      python().PyErr_Restore(error_[0], error_[1], error_[2]);
      python().PyGILState_Release(state_);
    }
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  [[nodiscard]] explicit operator bool() const noexcept { return held_; }

 private:
  int state_ = 0;
  bool held_ = false;
  void* error_[3] = {};
};

// A reference, given up at the end. Under the lock.
class Object {
 public:
  explicit Object(void* owned) noexcept : object_(owned) {}
  ~Object() { reset(nullptr); }
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  void reset(void* owned) noexcept {
    if (void* const old = std::exchange(object_, owned); old != nullptr) {
      python().Py_DecRef(old);
    }
  }
  [[nodiscard]] void* get() const noexcept { return object_; }
  // Of a str; empty of anything else.
  [[nodiscard]] std::string_view text() const noexcept {
    std::ptrdiff_t size = 0;
    const char* const data =
        object_ != nullptr ? python().PyUnicode_AsUTF8AndSize(object_, &size) : nullptr;
    return data != nullptr ? std::string_view(data, static_cast<std::size_t>(size))
                           : std::string_view();
  }

 private:
  void* object_;
};

bool is_of_torch(std::string_view file) noexcept {
  return file.find("/torch/") != std::string_view::npos || file.starts_with("<");
}

// What one module refuses costs its own names only.
constexpr const char* kNamesProgram = R"python(
import gc, sys
found = {}
torch = sys.modules.get("torch")
Module = getattr(getattr(torch, "nn", None), "Module", None)
if Module is not None:
    modules = [o for o in gc.get_objects() if issubclass(type(o), Module)]
    inner = set()
    for m in modules:
        try:
            inner.update(map(id, m.__dict__["_modules"].values()))
        except Exception:
            pass
    roots = []
    for m in modules:
        try:
            named = [] if id(m) in inner else [(p._cdata, name) for name, p in m.named_parameters()]
            if named:
                roots.append((m, named))
        except Exception:
            pass
    for m, named in roots:
        before = type(m).__name__ + "." if len(roots) > 1 else ""
        for cdata, name in named:
            found.setdefault(cdata, before + name)
lines = "\n".join("%d %s" % (k, v.replace("\n", " ")) for k, v in found.items())
lines = lines.encode("utf-8", "replace").decode()
)python";

constexpr const char* kShardedProgram = R"python(
import gc, sys
dist = sys.modules.get("torch.distributed")
# Torch's optimizers import fsdp, too, and a walk over all objects takes a tenth of a second.
spread = dist is not None and dist.is_available() and dist.is_initialized()
fsdp = sys.modules.get("torch.distributed.fsdp") if spread else None
kinds = (getattr(fsdp, "FullyShardedDataParallel", None), getattr(fsdp, "FSDPModule", None))
kinds = tuple(kind for kind in kinds if isinstance(kind, type))
lines = ""
if kinds:
    sharded = (type(o).__name__ for o in gc.get_objects() if issubclass(type(o), kinds))
    lines = next(sharded, "")
)python";

std::unordered_map<const c10::TensorImpl*, std::string> parse_names(std::string_view lines) {
  std::unordered_map<const c10::TensorImpl*, std::string> names;
  while (!lines.empty()) {
    const std::size_t length = std::min(lines.find('\n'), lines.size());
    const std::string_view line = lines.substr(0, length);
    lines.remove_prefix(std::min(length + 1, lines.size()));
    std::uintptr_t address = 0;
    const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), address);
    if (error == std::errc{} && end != line.data() + line.size()) {
      names.emplace(reinterpret_cast<const c10::TensorImpl*>(address),
                    std::string(end + 1, line.data() + line.size()));
    }
  }
  return names;
}

// What the program leaves in its variable `lines`; empty if it fails.
std::string lines_of(const char* program) noexcept {
  const Lock lock;
  if (!lock) {
    return {};
  }
  const Api& api = python();
  std::string text;
  try {
    constexpr int kFileInput = 257;  // Py_file_input
    const Object globals(api.PyDict_New());
    const Object builtins(api.PyImport_ImportModule("builtins"));
    const Object code(api.Py_CompileString(program, "<pleat>", kFileInput));
    if (globals.get() != nullptr && builtins.get() != nullptr && code.get() != nullptr &&
        api.PyDict_SetItemString(globals.get(), "__builtins__", builtins.get()) == 0) {
      const Object result(api.PyEval_EvalCode(code.get(), globals.get(), globals.get()));
      void* const lines =
          result.get() != nullptr ? api.PyDict_GetItemString(globals.get(), "lines") : nullptr;
      if (lines != nullptr) {
        api.Py_IncRef(lines);
        text = Object(lines).text();
      }
    }
  } catch (...) {  // no memory for the text
  }
  void* error[3] = {};
  api.PyErr_Fetch(&error[0], &error[1], &error[2]);  // whatever went wrong there is not the job's
  if (error[0] != nullptr &&
      api.PyErr_GivenExceptionMatches(error[0], *api.PyExc_KeyboardInterrupt) != 0) {
    api.PyErr_SetInterrupt();  // but this came from outside: the script gets it next
  }
  for (void* const part : error) {
    if (part != nullptr) {
      api.Py_DecRef(part);
    }
  }
  return text;
}

}  // namespace

std::string python_line() noexcept {
  const Lock lock;
  if (!lock) {
    return {};
  }
  const Api& api = python();
  void* const innermost = api.PyEval_GetFrame();
  if (innermost == nullptr) {
    return {};
  }
  api.Py_IncRef(innermost);
  try {
    for (Object frame(innermost); frame.get() != nullptr;
         frame.reset(api.PyFrame_GetBack(frame.get()))) {
      const Object code(api.PyFrame_GetCode(frame.get()));
      const Object name(api.PyObject_GetAttrString(code.get(), "co_filename"));
      if (const std::string_view file = name.text(); !file.empty() && !is_of_torch(file)) {
        return std::string(file) + ':' + std::to_string(api.PyFrame_GetLineNumber(frame.get()));
      }
    }
  } catch (...) {  // no memory for a text
  }
  return {};
}

std::unordered_map<const c10::TensorImpl*, std::string> parameter_names() noexcept {
  try {
    return parse_names(lines_of(kNamesProgram));
  } catch (...) {  // no memory for the names
    return {};
  }
}

std::string sharded_module() noexcept { return lines_of(kShardedProgram); }

bool is_interruption(const std::exception& error) noexcept {
  // The head of torch's python_error, whose own header needs Python's.
  struct PythonError : std::exception {
    void* type;
  };
  if (std::strcmp(typeid(error).name(), "12python_error") != 0) {
    return false;
  }
  const Lock lock;
  void* const type = static_cast<const PythonError&>(error).type;
  return lock && type != nullptr &&
         python().PyErr_GivenExceptionMatches(type, *python().PyExc_Exception) == 0;
}

std::string line_of_exception() {
  try {
    throw;
  } catch (const std::exception& error) {
    if (is_interruption(error)) {
      throw;
    }
    const std::string text = error.what();
    const std::string line = text.substr(0, text.find('\n'));
    return line.empty() ? "an exception without a message" : line;
  } catch (...) {
    return "an unknown failure";
  }
}

}  // namespace pleat::bridge
