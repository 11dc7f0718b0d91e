#include "torch_bridge/saving_node.h"

#include <torch/csrc/autograd/generated/Functions.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>

#include "torch_bridge/code_pages.h"

namespace pleat::bridge {
namespace {

using torch::autograd::Node;

thread_local bool exact_pow = false;
// Of the function in Python that this thread recorded last.
thread_local bool last_was_compiled = false;

constexpr std::string_view kCompiledFunction = "CompiledFunctionBackward";

// Takes the interpreter's lock, which a thread in code of a Python function has.
bool is_compiled_function(const Node& node) noexcept {
  try {
    return node.name() == kCompiledFunction;
  } catch (...) {
    return false;
  }
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

PowInProgress::PowInProgress(const at::Scalar& exponent) noexcept : outer_(exact_pow) {
  exact_pow = outer_ || !is_polynomial(exponent);
}

PowInProgress::~PowInProgress() { exact_pow = outer_; }

Care care_of_saves_in_progress() noexcept { return exact_pow ? Care::kExact : Care::kNone; }

void note_gradient_edge(const Node* node) noexcept {
  if (node != nullptr && class_of(*node).python) [[unlikely]] {
    last_was_compiled = is_compiled_function(*node);
  }
}

bool saved_by_compiled_function(const void* call_site) noexcept {
  if (!last_was_compiled) [[likely]] {
    return false;
  }
  // Known from here on: a function in Python has been seen, so its library is loaded.
  static const CodeRange python = code_of("libtorch_python.so");
  const auto address = reinterpret_cast<std::uintptr_t>(call_site);
  return address >= python.begin && address < python.end;
}

Care care_of_consumer(const Node& node) noexcept {
  const NodeClass& c = class_of(node);
  if (c.python) {
    return is_compiled_function(node) ? Care::kExact : c.as_consumer;
  }
  if (const auto* const pow = dynamic_cast<const torch::autograd::generated::PowBackward0*>(&node)) {
    return is_polynomial(pow->exponent) ? c.as_consumer : Care::kExact;
  }
  return c.as_consumer;
}

}  // namespace pleat::bridge
