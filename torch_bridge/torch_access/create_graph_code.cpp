#include "torch_bridge/torch_access/create_graph_code.h"

#include <array>
#include <cstddef>
#include <memory>
#include <new>
#include <unordered_map>

#include "torch_bridge/torch_access/python_api.h"

namespace pleat::bridge {
namespace {

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
  const void* found = nullptr;
  try {
    python::visit_frames([&](void* frame, void* code) {
      if (known.creates_graph(frame, code)) found = code;
      return found != nullptr;
    });
  } catch (...) {  // memory is short
  }
  return found;
}

}  // namespace pleat::bridge
