#include "torch_bridge/policy/saving_node.h"

#include <cstdint>

#include "torch_bridge/core/code_pages.h"
#include "torch_bridge/policy/call_sites.h"
#include "torch_bridge/policy/policy_state.h"

namespace pleat::bridge {
namespace {

using torch::autograd::Node;

// Takes the interpreter's lock, which a thread in a Python function's code already holds.
bool is_compiled(const Node& node) noexcept {
  try {
    return node.name() == "CompiledFunctionBackward";
  } catch (...) {
    return false;
  }
}

}  // namespace

void note_gradient_edge(const Node* node) noexcept {
  ThreadPolicy& thread = thread_policy;
  ++thread.gradient_edges;
  const NodeClass* const known = node != nullptr ? &class_of(*node) : nullptr;
  thread.last_is_python = known != nullptr && known->python;
  thread.last_is_cpp = known != nullptr && known->cpp_function;
  if (thread.last_is_python) [[unlikely]] {
    thread.last_is_compiled = is_compiled(*node);
    if (thread.python_code.end == 0) {
      thread.python_code = code_of("libtorch_python.so");
    }
  }
}

std::uint64_t gradient_edges() noexcept { return thread_policy.gradient_edges; }

bool saved_by_python_function(const void* call_site) noexcept {
  if (!thread_policy.last_is_python) [[likely]] {
    return false;
  }
  const CodeRange& python = thread_policy.python_code;
  const auto address = reinterpret_cast<std::uintptr_t>(call_site);
  return address >= python.begin && address < python.end;
}

bool saved_by_function(const void* call_site) noexcept {
  if (thread_policy.last_is_cpp) [[unlikely]] {
    const NodeClass* const saver = call_site_at(call_site).saver;
    return saver != nullptr && saver->cpp_function;
  }
  return saved_by_python_function(call_site);
}

bool saved_by_compiled_function(const void* call_site) noexcept {
  return saved_by_python_function(call_site) && thread_policy.last_is_compiled;
}

}  // namespace pleat::bridge
