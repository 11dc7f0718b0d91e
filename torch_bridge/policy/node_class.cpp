#include "torch_bridge/policy/node_class.h"

#include <c10/util/Type.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>

#include "sensitivity/key.h"

namespace pleat::bridge {
namespace {

// "ns::Scale" of "torch::autograd::CppNode<ns::Scale<float> >".
std::string without_arguments(std::string_view name) {
  std::string left;
  int depth = 0;
  for (const char c : name) {
    depth += c == '<' ? 1 : 0;
    if (depth == 0 && c != ' ') {
      left += c;
    }
    depth -= c == '>' && depth > 0 ? 1 : 0;
  }
  return left;
}

// `name`: with namespaces.
NodeClass classify(std::string name) {
  NodeClass c;
  c.of_torch = name.starts_with("torch::autograd::generated::") ||
               name == "torch::autograd::CopySlices";  // runs the node that it replaced
  constexpr std::string_view kCppFunction = "torch::autograd::CppNode<";
  c.cpp_function = name.starts_with(kCppFunction) && name.ends_with('>');
  if (c.cpp_function) {
    name = without_arguments(
        std::string_view(name).substr(kCppFunction.size(), name.size() - kCppFunction.size() - 1));
  }
  if (const auto colon = name.rfind("::"); colon != std::string::npos) {
    name.erase(0, colon + 2);
  }
  if (c.of_torch || name == "CopyBackwards") {
    c.row = operator_row(name);
  }
  if (name.ends_with("_copy")) {
    c.row.traits &= static_cast<Traits>(~kAliasesInput);
  }
  c.gradient = formula_of(name);
  c.accumulate_grad = name == "AccumulateGrad";
  c.python = name == "PyNode";
  c.hash = sensitivity::hash_text(name.c_str());
  c.name = std::move(name);
  return c;
}

// Both can throw std::bad_alloc.
const NodeClass* known_class(const std::type_info* type) {
  PolicyState& state = PolicyState::get();
  const std::lock_guard<std::mutex> guard(state.mutex);
  const auto it = state.classes.find(type);
  return it != state.classes.end() ? it->second : nullptr;
}
const NodeClass* add_class(const std::type_info* type) {
  auto made = std::make_unique<const NodeClass>(classify(c10::demangle(type->name())));
  PolicyState& state = PolicyState::get();
  const std::lock_guard<std::mutex> guard(state.mutex);
  const NodeClass*& known = state.classes[type];
  if (known == nullptr) {
    known = made.release();
  }
  return known;
}

}  // namespace

const NodeClass& look_up_class(const std::type_info* type) noexcept {
  try {
    const NodeClass* known = known_class(type);
    if (known == nullptr) {
      known = add_class(type);
    }
    thread_policy.cached_class(type) = {type, known};
    return *known;
  } catch (...) {  // out of memory
    static const NodeClass unknown{};
    return unknown;
  }
}

bool leads_to_leaf(const torch::autograd::Node* node) noexcept {
  while (node != nullptr && class_of(*node).has(kPassesParameter) && node->num_outputs() == 1) {
    node = node->next_edge(0).function.get();
  }
  return node != nullptr && class_of(*node).accumulate_grad;
}

std::uint64_t ancestors_hash(const torch::autograd::Node& node) noexcept {
  std::uint64_t h = 0;
  const std::size_t most = std::min<std::size_t>(node.num_outputs(), 3);
  for (std::size_t i = 0; i < most; ++i) {
    const torch::autograd::Node* const input = node.next_edge(i).function.get();
    h = sensitivity::mix(h ^ (input != nullptr ? class_of(*input).hash : 0));
  }
  return h;
}

}  // namespace pleat::bridge
