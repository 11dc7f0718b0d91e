// What we know of autograd nodes by their class: a hash that is the same in every process, and the
// few families whose saved tensors need care. Looked up once per class, then a pointer compare.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "torch_bridge/c_abi.h"
#include "torch_bridge/torch_access/torch_version.h"

namespace pleat::bridge {

// How much noise a saved tensor may carry, judged by the node that reads it in backward.
enum class Care : std::uint8_t {
  kNone,   // any width
  kEight,  // it enters an exponential, or is a logit of a loss: 8 bits at least
  kExact,  // a factor of linear algebra, a comparison, a coordinate: no noise at all
  kPole,   // a divisor, an argument of log or sqrt: nor may what it was made of (before_pole.h)
};

// Along what a normalisation takes its statistics: exact_lines.h.
enum class Rows : std::uint8_t {
  kNone,
  kLastDimension,
  kPlanes,   // of an image: all dimensions but the first two; of a matrix its columns
  kSamples,  // all dimensions but the first, or a part of them
};

// What a tensor needs of those that save it.
struct Needs {
  Care care = Care::kNone;
  Rows rows = Rows::kNone;

  constexpr Needs() = default;
  constexpr Needs(Care c, Rows r = Rows::kNone)
      : care(c), rows(r) {}  // implicit: most need care only
  constexpr void raise(Needs other) noexcept {
    care = std::max(care, other.care);
    rows = std::max(rows, other.rows);
  }
  // As Runtime::learn() takes it: the halves are raised apart.
  [[nodiscard]] constexpr std::uint8_t pack() const noexcept {
    return static_cast<std::uint8_t>(static_cast<unsigned>(rows) << 4 |
                                     static_cast<unsigned>(care));
  }
  [[nodiscard]] static constexpr Needs unpack(std::uint8_t packed) noexcept {
    return {static_cast<Care>(packed & 15), static_cast<Rows>(packed >> 4)};
  }
};

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

void lock_node_classes_for_fork() noexcept;
void unlock_node_classes_after_fork() noexcept;

}  // namespace pleat::bridge
