// What we know of autograd nodes by their class: a hash that is the same in every process, and the
// few families whose saved tensors need care. Looked up once per class, then a pointer compare.
#pragma once

#include <cstdint>
#include <string>

#include "torch_bridge/c_abi.h"
#include "torch_bridge/core/needs.h"
#include "torch_bridge/torch_access/torch_version.h"

namespace pleat::bridge {

// What a node is to a pole behind it.
enum class BeforePole : std::uint8_t {
  kEnds,          // mixes elements, or is not known: noise before it is not looked for
  kPasses,        // element by element, reads nothing in backward that carries noise; a view
  kSums,          // over some dimensions
  kAverages,      // over some dimensions
  kSavesResult,   // element by element, reads its result
  kSavesInput,    // element by element, reads its argument
  kSavesFactors,  // a product
  kMixes,         // a matrix product
  kVariance,      // over some dimensions, reads its argument
};

struct NodeClass {
  std::string name;  // "AddmmBackward0"
  std::uint64_t hash = 0;
  Care as_producer = Care::kNone;  // for its outputs; above kEight not for savers that bear noise
  Needs as_consumer;               // for any tensor this node saved
  bool statistics = false;         // its outputs but the first are a normalisation's
  BeforePole before_pole = BeforePole::kEnds;
  PleatGradient gradient = PLEAT_GRADIENTS;  // the formula it works out; PLEAT_GRADIENTS: others
  bool passes_parameter = false;             // a view or cast: a parameter may hide behind it
  bool aliases_input = false;   // a view: its output is on the storage of its only input
  bool saves_argument = false;  // an activation that elementwise.h can repeat
  bool bears_noise = false;     // a gentle function of what it saves: whoever made that
  bool accumulate_grad = false;
  bool of_torch = false;  // from derivatives.yaml; others are somebody's own, in C++ or Python
  bool python = false;    // a torch.autograd.Function: its class in Python says more, node by node
};

// Never fails; `node` must be alive. Thread-safe.
[[nodiscard]] const NodeClass& class_of(const torch::autograd::Node& node) noexcept;
[[nodiscard]] NodeClass classify(const std::string& name);

// The classes of what `node`, which must be alive, takes its first inputs from.
[[nodiscard]] std::uint64_t ancestors_hash(const torch::autograd::Node& node) noexcept;

}  // namespace pleat::bridge
