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
  kExact,     // a factor of linear algebra, a comparison, a coordinate: no noise at all
  kPole,      // a divisor, an argument of log or sqrt: nor may what it was made of (before_pole.h)
};

// What a node is to a pole behind it.
enum class BeforePole : std::uint8_t {
  kEnds,          // mixes elements, or is not known: noise before it is not looked for
  kPasses,        // element by element, reads nothing in backward that carries noise; a view
  kSums,          // over some dimensions
  kSavesResult,   // element by element, reads its result
  kSavesInput,    // element by element, reads its argument
  kSavesFactors,  // a product
};

struct NodeClass {
  std::string name;            // "AddmmBackward0"
  std::uint64_t hash = 0;
  Care as_producer = Care::kNone;  // for tensors this node saved of its own outputs
  Care as_consumer = Care::kNone;  // for any tensor this node saved
  BeforePole before_pole = BeforePole::kEnds;
  bool passes_parameter = false;   // a view or cast: a parameter may hide behind it
  bool accumulate_grad = false;
  bool of_torch = false;  // from derivatives.yaml; others are somebody's own, in C++ or Python
  bool python = false;  // a torch.autograd.Function: its class in Python says more, node by node
};

// Never fails; `node` must be alive. Thread-safe.
[[nodiscard]] const NodeClass& class_of(const torch::autograd::Node& node) noexcept;
[[nodiscard]] NodeClass classify(const std::string& name);

// The classes of what `node`, which must be alive, takes its first inputs from.
[[nodiscard]] std::uint64_t ancestors_hash(const torch::autograd::Node& node) noexcept;

void lock_node_classes_for_fork() noexcept;
void unlock_node_classes_after_fork() noexcept;

}  // namespace pleat::bridge
