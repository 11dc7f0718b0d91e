#include "torch_bridge/trace/module_paths.h"

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "torch_bridge/torch_access/python_api.h"
#include "torch_bridge/trace/context.h"
#include "torch_bridge/trace/state.h"

namespace pleat::bridge {
namespace {

// The path of a module begins with the class of the outermost one that runs, which is asked for the
// names of all within it. What it does not know of has its class for a name.
constexpr const char* kProgram = R"python(
import sys, threading, warnings, weakref

torch = sys.modules.get("torch")
nn = sys.modules.get("torch.nn.modules.module")
compiler = getattr(torch, "compiler", None)
handles = []

class Running(threading.local):
    def __init__(self):
        # Module, path, the frame that calls its hooks; the innermost last. What is interrupted (by no
        # Exception) has no hook at its end: it is over once its frame is none of the callers'.
        self.calls = []

def is_called_by(frame, number):
    while frame is not None:
        if id(frame) == number:
            return True
        frame = frame.f_back
    return False

class Names:
    MOST_LOOKS = 16  # a module that makes others in each call is not searched for ever

    def __init__(self):
        self.known, self.looks = {}, 0

    def of(self, root, module):
        for _ in range(2):
            reference, name = self.known.get(id(module), (None, None))
            if reference is not None and reference() is module:
                return name
            if self.looks >= self.MOST_LOOKS:
                return None
            self.looks += 1
            self.known = {id(m): (weakref.ref(m), n) for n, m in root.named_modules()}
        return None

running = Running()
names = weakref.WeakKeyDictionary()  # of roots

def path_of(module):
    own = type(module).__name__
    if not running.calls:
        return own
    root, path, _ = running.calls[0]
    try:
        root = root()
        if root not in names:
            names[root] = Names()
        name = names[root].of(root, module)
    except Exception:
        name = None
    return path + "." + name if name else running.calls[-1][1] + "." + own

def enters(module, args):
    if compiler.is_compiling():
        return
    calls, caller = running.calls, sys._getframe(1)
    while calls and not is_called_by(caller.f_back, calls[-1][2]):
        calls.pop()
    calls.append((weakref.ref(module), path_of(module), id(caller)))
    tell(calls[-1][1], len(calls))

def leaves(module, args, output):
    if compiler.is_compiling():
        return
    calls = running.calls
    for i in range(len(calls) - 1, -1, -1):
        if calls[i][0]() is module:
            del calls[i:]
            tell(calls[-1][1] if calls else "", len(calls))
            return

def forget():
    while handles:
        handles.pop().remove()

ready = "no"
if nn is not None and hasattr(compiler, "is_compiling") and hasattr(nn, "register_module_forward_hook"):
    # Not of the script's doing; nothing of what it warns of matters to these hooks.
    warnings.filterwarnings("ignore", message=".*torch.compile.* when there are global hooks on modules")
    handles.append(nn.register_module_forward_pre_hook(enters))
    handles.append(nn.register_module_forward_hook(leaves, always_call=True))
    ready = "yes"
)python";

void mark_module(std::string_view path, std::uint64_t depth) noexcept {
  const PleatRecorder* const recorder = trace_recorder();
  if (recorder == nullptr) return;
  const TraceCost::Timed timed(trace_state.callbacks);
  PleatTraceEvent mark = trace_mark(PLEAT_TRACE_MODULE);
  mark.op = path.empty() ? 0 : recorder->intern(path.data(), path.size());
  mark.bytes = depth;
  recorder->event(&mark);
}

// tell(path, depth)
void* tell(void* /*self*/, void* const* arguments, std::ptrdiff_t count) noexcept {
  const python::Api& api = python::api();
  if (count == 2) {
    std::ptrdiff_t size = 0;
    const char* const path = api.PyUnicode_AsUTF8AndSize(arguments[0], &size);
    const long depth = api.PyLong_AsLong(arguments[1]);
    if (path != nullptr && depth >= 0) {
      mark_module({path, static_cast<std::size_t>(size)}, static_cast<std::uint64_t>(depth));
    } else {  // a name that is no text
      python::forget_error();
    }
  }
  return api.Py_BuildValue("");
}

// As Python declares it; its functions keep a pointer to it.
struct MethodDefinition {
  const char* name;
  void* (*function)(void*, void* const*, std::ptrdiff_t);
  int flags;
  const char* text;
};
constexpr int kFastCall = 0x80;  // METH_FASTCALL
constexpr MethodDefinition kTell{"tell", tell, kFastCall, nullptr};

// torch.compile looks the functions' module up by its name.
constexpr const char* kModule = "_pleat_module_paths";

}  // namespace

bool listen_to_modules() noexcept {
  if (trace_state.modules_hooked) return true;
  const python::Lock lock;
  if (!lock) return false;
  const python::Api& api = python::api();
  const python::Object globals = python::new_globals(kModule);
  const python::Object function(
      api.PyCFunction_NewEx(const_cast<MethodDefinition*>(&kTell), nullptr, nullptr));
  const bool hooked = globals.get() != nullptr && function.get() != nullptr &&
                      api.PyDict_SetItemString(globals.get(), "tell", function.get()) == 0 &&
                      python::run(kProgram, globals) &&
                      python::variable(globals, "ready").text() == "yes";
  trace_state.modules_hooked = hooked;
  return hooked;
}

void forget_modules() noexcept {
  if (!trace_state.modules_hooked) return;
  const python::Lock lock;
  if (!lock) return;
  python::run("forget()", python::new_globals(kModule));
  trace_state.modules_hooked = false;
}

}  // namespace pleat::bridge
