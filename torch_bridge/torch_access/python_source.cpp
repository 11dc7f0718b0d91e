#include "torch_bridge/torch_access/python_source.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <system_error>
#include <typeinfo>

#include "torch_bridge/torch_access/python_api.h"

namespace pleat::bridge {
namespace {

bool is_of_torch(std::string_view file) noexcept {
  return file.find("/torch/") != std::string_view::npos || file.starts_with("<");
}

// A module that raises loses only its own names.
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

// A call takes the names of its keywords as a tuple, and before that loads their values. True among
// computed values is not found. A name that code uses can be a function of its module, of a class
// or a module there, or one imported.
constexpr const char* kCreateGraphProgram = R"python(
import dis, sys, types
known = {}  # by the number of a code object: it, whether it asks for create_graph
def functions(name, scope):
    yield scope.get(name)
    for value in list(scope.values()):
        kind = type(value)
        if issubclass(kind, type) and value.__module__ == scope.get("__name__") or (
                kind is types.ModuleType and not value.__name__.startswith("torch")):
            found = vars(value).get(name)
            yield getattr(found, "__func__", found)  # of a static or class method
def is_true(code, names):
    loads = []
    for i in dis.get_instructions(code):
        value = code.co_consts[i.arg] if i.opname == "KW_NAMES" else i.argval
        if type(value) is tuple and value == names:
            behind = len(names) - names.index("create_graph")
            if len(loads) >= behind and loads[-behind].argval is True:
                return True
        simple = i.opname.startswith("LOAD_") and i.opname not in ("LOAD_ATTR", "LOAD_METHOD")
        loads = loads + [i] if simple else []
    return False
def asks(code, scope, depth, met):
    if code in met or len(met) > 300:
        return False
    met.append(code)
    for constant in code.co_consts:
        if type(constant) is tuple:
            if "create_graph" in constant and is_true(code, constant):
                return True
        elif type(constant) is types.CodeType and code.co_name != "<module>":
            if asks(constant, scope, depth, met):
                return True
    if depth:
        names = code.co_names
        if code.co_name == "<module>":  # its names are also those of the functions that it defines
            loads = ("LOAD_NAME", "LOAD_ATTR", "LOAD_METHOD")
            names = {i.argval for i in dis.get_instructions(code) if i.opname in loads}
        for name in names:
            for f in functions(name, scope):
                if type(f) is types.FunctionType and not (f.__module__ or "").startswith("torch."):
                    if asks(f.__code__, f.__globals__, depth - 1, met):
                        return True
    return False
def look():
    if len(known) > 10000:
        known.clear()
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if id(code) not in known:
            torch = (frame.f_globals.get("__name__") or "").startswith("torch.")
            known[id(code)] = code, asks(code, frame.f_globals, 0 if torch else 1, [])
        if known[id(code)][1]:
            return id(code)
        frame = frame.f_back
    return 0
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

// The value of the program's variable `lines`; empty if it fails.
std::string lines_of(const char* program) noexcept {
  const python::Lock lock;
  if (!lock) return {};
  try {
    const python::Object globals = python::new_globals();
    if (!python::run(program, globals)) return {};
    return std::string(python::variable(globals, "lines").text());
  } catch (...) {  // memory for the text is short
    return {};
  }
}

}  // namespace

std::string python_line() noexcept {
  const python::Lock lock;
  if (!lock) {
    return {};
  }
  const python::Api& api = python::api();
  void* const innermost = api.PyEval_GetFrame();
  if (innermost == nullptr) {
    return {};
  }
  api.Py_IncRef(innermost);
  try {
    for (python::Object frame(innermost); frame.get() != nullptr;
         frame.reset(api.PyFrame_GetBack(frame.get()))) {
      const python::Object code(api.PyFrame_GetCode(frame.get()));
      const python::Object name(api.PyObject_GetAttrString(code.get(), "co_filename"));
      if (const std::string_view file = name.text(); !file.empty() && !is_of_torch(file)) {
        return std::string(file) + ':' + std::to_string(api.PyFrame_GetLineNumber(frame.get()));
      }
    }
  } catch (...) {  // memory for the text is short
  }
  return {};
}

const void* code_that_creates_graph() noexcept {
  const python::Lock lock;
  if (!lock) {
    return nullptr;
  }
  static auto& look = *new python::Object(nullptr);  // under the interpreter's lock
  if (look.get() == nullptr) {
    const python::Object globals = python::new_globals();
    python::run(kCreateGraphProgram, globals);
    look = python::variable(globals, "look");
  }
  const python::Api& api = python::api();
  const python::Object code(look.get() != nullptr ? api.PyObject_CallObject(look.get(), nullptr)
                                                  : nullptr);
  const long address = code.get() != nullptr ? api.PyLong_AsLong(code.get()) : 0;
  python::forget_error();
  return reinterpret_cast<const void*>(address);
}

std::unordered_map<const c10::TensorImpl*, std::string> parameter_names() noexcept {
  try {
    return parse_names(lines_of(kNamesProgram));
  } catch (...) {  // memory for the names is short
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
  const python::Lock lock;
  void* const type = static_cast<const PythonError&>(error).type;
  return lock && type != nullptr &&
         python::api().PyErr_GivenExceptionMatches(type, *python::api().PyExc_Exception) == 0;
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
