#include "torch_bridge/policy/saving_node.h"

#include <torch/csrc/autograd/generated/Functions.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>

#include "torch_bridge/core/code_pages.h"
#include "torch_bridge/policy/policy_state.h"

namespace pleat::bridge {
namespace {

using torch::autograd::Node;

using PythonFunction = ThreadPolicy::PythonFunction;

// Of torch's own functions in Python those that cannot bear the noise of any user's. Takes the
// interpreter's lock, which a thread in code of a Python function has.
PythonFunction python_function(const Node& node) noexcept {
  try {
    const std::string name = node.name();
    if (name == "CompiledFunctionBackward") {
      return {.compiled = true, .care = Care::kExact};
    }
    if (name == "FlexAttentionAutogradOpBackward") {
      return {.care = Care::kEight};
    }
    // cond, map, scan and the like: their backward is a graph of the user's.
    if (name.ends_with("AutogradOpBackward") || name == "_DirichletBackward" ||
        name == "LOBPCGAutogradFunctionBackward" ||
        name == "_ReversibleFunctionBackward") {  // rebuilds what it has not saved
      return {.care = Care::kExact};
    }
  } catch (...) {
  }
  return {};
}

bool is_called_by_python_function(const void* call_site) noexcept {
  const CodeRange& python = thread_policy.python_code;
  const auto address = reinterpret_cast<std::uintptr_t>(call_site);
  return address >= python.begin && address < python.end;
}

}  // namespace

bool is_polynomial(const at::Scalar& exponent) noexcept {
  try {
    if (exponent.isSymbolic() || exponent.isComplex()) {
      return false;
    }
    const double value = exponent.toDouble();
    return value >= 0 && std::floor(value) == value;
  } catch (...) {
    return false;
  }
}

PowInProgress::PowInProgress(const at::Scalar& exponent) noexcept
    : outer_(thread_policy.pow_with_pole) {
  thread_policy.pow_with_pole = outer_ || !is_polynomial(exponent);
  ++thread_policy.pows;
}

PowInProgress::~PowInProgress() {
  thread_policy.pow_with_pole = outer_;
  --thread_policy.pows;
}

bool pow_is_in_progress() noexcept { return thread_policy.pows != 0; }

Care care_of_saves_in_progress(const void* call_site) noexcept {
  const ThreadPolicy& thread = thread_policy;
  if (thread.last_function.care != Care::kNone && is_called_by_python_function(call_site))
      [[unlikely]] {
    return thread.last_function.care;
  }
  return thread.pow_with_pole ? Care::kPole : Care::kNone;
}

void note_gradient_edge(const Node* node) noexcept {
  ThreadPolicy& thread = thread_policy;
  ++thread.gradient_edges;
  if (node != nullptr && class_of(*node).python) [[unlikely]] {
    thread.last_function = python_function(*node);
    if (thread.last_function.care != Care::kNone && thread.python_code.end == 0) {
      thread.python_code = code_of("libtorch_python.so");
    }
  }
}

std::uint64_t gradient_edges() noexcept { return thread_policy.gradient_edges; }

bool saved_by_compiled_function(const void* call_site) noexcept {
  return thread_policy.last_function.compiled && is_called_by_python_function(call_site);
}

Needs needs_of_consumer(const Node& node) noexcept {
  const NodeClass& c = class_of(node);
  if (c.python) {
    return python_function(node).care;
  }
  if (const auto* const pow =
          dynamic_cast<const torch::autograd::generated::PowBackward0*>(&node)) {
    return is_polynomial(pow->exponent) ? c.as_consumer : Needs(Care::kPole);
  }
  return c.as_consumer;
}

}  // namespace pleat::bridge
