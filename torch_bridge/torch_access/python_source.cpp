#include "torch_bridge/torch_access/python_source.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
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
def functions(names, scope):
    names = set(names)
    yield from (scope[name] for name in names & scope.keys())
    module = scope.get("__name__")
    for value in list(scope.values()):
        kind = type(value)
        if issubclass(kind, type) and value.__module__ == module or (
                kind is types.ModuleType and not value.__name__.startswith("torch")):
            members = vars(value)
            for name in names & members.keys():
                yield getattr(members[name], "__func__", members[name])  # of a static or class method
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
        for f in functions(names, scope):
            if type(f) is types.FunctionType and not (f.__module__ or "").startswith("torch."):
                if asks(f.__code__, f.__globals__, depth - 1, met):
                    return True
    return False
def look(code, scope):
    try:
        return asks(code, scope, 0 if str(scope.get("__name__")).startswith("torch.") else 1, [])
    except Exception as error:
        trace = error.__traceback__
        while trace.tb_next is not None:
            trace = trace.tb_next
        if trace.tb_frame.f_code.co_filename in ("<pleat>", dis.__file__):
            return False
        raise  # a signal's handler
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

namespace {

// Lets the main thread raise a pending error of this thread in the script, as soon as it runs
// Python again: a handler of a signal has raised it, in code of ours. Under the interpreter's lock.
void hand_on_error() noexcept {
  const python::Api& api = python::api();
  using Error = std::array<void*, 3>;
  auto* const error = new (std::nothrow) Error{};
  if (error == nullptr) return;
  api.PyErr_Fetch(&(*error)[0], &(*error)[1], &(*error)[2]);
  const auto raise = [](void* pending) {
    const std::unique_ptr<Error> owned(static_cast<Error*>(pending));
    python::api().PyErr_Restore((*owned)[0], (*owned)[1], (*owned)[2]);
    return -1;
  };
  if ((*error)[0] == nullptr || api.Py_AddPendingCall(+raise, error) != 0) {
    api.PyErr_Restore((*error)[0], (*error)[1], (*error)[2]);
    delete error;
    python::forget_error();
  }
}

// Whether the code asks for create_graph. Code is known by its object, which lives on.
class KnownCode {
 public:
  [[nodiscard]] bool creates_graph(void* frame, void* code) {
    const python::Api& api = python::api();
    if (const auto known = known_.find(code); known != known_.end()) {
      return known->second;
    }
    if (look_.get() == nullptr) {
      const python::Object globals = python::new_globals();
      if (!python::run_or_raise(kCreateGraphProgram, globals)) {
        hand_on_error();
      }
      look_ = python::variable(globals, "look");
    }
    if (look_.get() == nullptr || known_.size() >= kMost) {
      return false;
    }
    const bool creates = call(frame, code);
    api.Py_IncRef(code);
    known_.emplace(code, creates);
    return creates;
  }

 private:
  static constexpr std::size_t kMost = 16384;  // a script that makes code anew has more
  [[nodiscard]] bool call(void* frame, void* code) const {
    const python::Api& api = python::api();
    const python::Object scope(api.PyObject_GetAttrString(frame, "f_globals"));
    const python::Object arguments(
        scope.get() != nullptr ? api.Py_BuildValue("(OO)", code, scope.get()) : nullptr);
    const python::Object answer(arguments.get() != nullptr
                                    ? api.PyObject_CallObject(look_.get(), arguments.get())
                                    : nullptr);
    if (answer.get() == nullptr) {
      hand_on_error();
      return false;
    }
    return api.PyLong_AsLong(answer.get()) != 0;
  }
  python::Object look_{nullptr};
  std::unordered_map<const void*, bool> known_;
};

}  // namespace

const void* code_that_creates_graph() noexcept {
  const python::Lock lock;
  if (!lock) {
    return nullptr;
  }
  static auto& known = *new KnownCode;  // under the interpreter's lock
  const python::Api& api = python::api();
  void* const innermost = api.PyEval_GetFrame();
  if (innermost == nullptr) {
    return nullptr;
  }
  api.Py_IncRef(innermost);
  try {
    for (python::Object frame(innermost); frame.get() != nullptr;
         frame.reset(api.PyFrame_GetBack(frame.get()))) {
      const python::Object code(api.PyFrame_GetCode(frame.get()));
      if (known.creates_graph(frame.get(), code.get())) return code.get();
    }
  } catch (...) {  // memory is short
  }
  return nullptr;
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
