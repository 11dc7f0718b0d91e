// What we know of autograd nodes by their class: a hash that is the same in every process, and its
// row of the table of operators. Looked up once per class, then a pointer compare.
#pragma once

#include <cstdint>
#include <string>
#include <typeinfo>

#include "torch_bridge/policy/operator_table.h"
#include "torch_bridge/policy/policy_state.h"
#include "torch_bridge/torch_access/torch_version.h"

namespace pleat::bridge {

struct NodeClass {
  std::string name;  // "AddmmBackward0"
  std::uint64_t hash = 0;
  OperatorRow row;
  PleatGradient gradient = PLEAT_GRADIENTS;  // the formula it computes; PLEAT_GRADIENTS: others
  bool accumulate_grad = false;
  bool of_torch = false;      // from derivatives.yaml; others are somebody's own, in C++ or Python
  bool cpp_function = false;  // a torch::autograd::Function
  bool python = false;  // a torch.autograd.Function: its class in Python says more, node by node

  [[nodiscard]] bool has(Traits traits) const noexcept { return (row.traits & traits) != 0; }
};

// Looks the class up among those of the process, and remembers the answer for this thread. Never
// fails.
[[nodiscard]] const NodeClass& look_up_class(const std::type_info* type) noexcept;

// Never fails; `node` must be alive. Thread-safe. The answer lives for good.
[[nodiscard]] inline const NodeClass& class_of(const torch::autograd::Node& node) noexcept {
  const std::type_info* const type = &typeid(node);
  const ThreadPolicy::CachedClass& cached = thread_policy.cached_class(type);
  return cached.type == type ? *cached.known : look_up_class(type);
}

// `node` is a leaf's accumulator, or makes its view, copy or cast. Null: no. The graph is alive.
[[nodiscard]] bool leads_to_leaf(const torch::autograd::Node* node) noexcept;

// A hash of the classes of the nodes that the first three inputs of `node` come from. `node` must
// be alive.
[[nodiscard]] std::uint64_t ancestors_hash(const torch::autograd::Node& node) noexcept;

}  // namespace pleat::bridge
