// NodeClass describes a class of autograd nodes: a process-independent hash and its row of the
// operator table. Looked up once per class, then a pointer compare.
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
  bool of_torch = false;      // from derivatives.yaml; other classes belong to users or libraries
  bool cpp_function = false;  // a torch::autograd::Function
  bool python = false;        // a torch.autograd.Function; details depend on its class in Python

  [[nodiscard]] bool has(Traits traits) const noexcept { return (row.traits & traits) != 0; }
};

// Looks the class up in the process's table, and caches the answer for this thread. Never fails.
[[nodiscard]] const NodeClass& look_up_class(const std::type_info* type) noexcept;

// Never fails; `node` must be alive. Thread-safe. The result lives until the process ends.
[[nodiscard]] inline const NodeClass& class_of(const torch::autograd::Node& node) noexcept {
  const std::type_info* const type = &typeid(node);
  const ThreadPolicy::CachedClass& cached = thread_policy.cached_class(type);
  return cached.type == type ? *cached.known : look_up_class(type);
}

// True if `node` is a leaf's accumulator, or makes its view, copy or cast. The graph is alive.
[[nodiscard]] bool leads_to_leaf(const torch::autograd::Node* node) noexcept;

// A hash of the classes of the nodes behind the first three inputs of `node`, which must be alive.
[[nodiscard]] std::uint64_t ancestors_hash(const torch::autograd::Node& node) noexcept;

}  // namespace pleat::bridge
