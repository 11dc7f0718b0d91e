// What we know of autograd nodes by their class: a hash that is the same in every process, and the
// few families whose saved tensors need care. Looked up once per class, then a pointer compare.
#pragma once

#include <cstdint>
#include <string>

#include "torch_bridge/torch_version.h"

namespace pleat::bridge {

// How much noise a saved tensor may carry, judged by the node that reads it in backward.
enum class Care : std::uint8_t {
  kNone,      // any width
  kEight,     // it enters an exponential, or is a logit of a loss: 8 bits at least
  kExact,     // a factor of linear algebra, a divisor, an argument of log or sqrt: no noise at all
};

struct NodeClass {
  std::string name;            // "AddmmBackward0"
  std::uint64_t hash = 0;
  Care as_producer = Care::kNone;  // for tensors this node saved of its own outputs
  Care as_consumer = Care::kNone;  // for any tensor this node saved
  bool passes_parameter = false;   // a view or cast: a parameter may hide behind it
  bool accumulate_grad = false;
  bool of_torch = false;  // from derivatives.yaml; others are somebody's own, in C++ or Python
  bool python = false;  // a torch.autograd.Function: its class in Python says more, node by node
};

// Never fails; `node` must be alive. Thread-safe.
[[nodiscard]] const NodeClass& class_of(const torch::autograd::Node& node) noexcept;
[[nodiscard]] NodeClass classify(const std::string& name);

void lock_node_classes_for_fork() noexcept;
void unlock_node_classes_after_fork() noexcept;

}  // namespace pleat::bridge
