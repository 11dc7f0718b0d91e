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
  std::string line;
  try {
    python::visit_frames([&](void* frame, void* code) {
      const python::Object name(api.PyObject_GetAttrString(code, "co_filename"));
      const std::string_view file = name.text();
      if (file.empty() || is_of_torch(file)) return false;
      line = std::string(file) + ':' + std::to_string(api.PyFrame_GetLineNumber(frame));
      return true;
    });
  } catch (...) {  // memory for the text is short
    return {};
  }
  return line;
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
