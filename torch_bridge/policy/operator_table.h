// The table of operators: what noise in the tensors that each saves does to the gradient, and what
// becomes of it on a path through the operator. Whatever the rest of this folder knows of operators
// stands here, once. docs/eligibility.md says the rule. Torch-free.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "compress/block/block_spec.h"
#include "torch_bridge/c_abi.h"

namespace pleat::bridge {

// What a path from an earlier node's result that meets the operator is. The first row of an enum
// that fits holds for operators that are not in the table.
enum class Path : std::uint8_t {
  kUnknown,      // we cannot look into it: open
  kOpens,        // a pole, a comparison for equality, a loss
  kPasses,       // passed on to the operator's own readers
  kAdds,         // passed on; where some reader closed it, what opens it later does no harm
  kExponential,  // passed on; what is before enters an exponential or an angle
  kContracts,    // closed if one of the operands is a weight, else passed on
  kCloses,       // closed
};

// What the operator does in backward with the tensors that it saves.
enum class Saves : std::uint8_t {
  kExact,             // no noise
  kWaits,             // noise where all paths from its result are closed
  kOperands,          // of a contraction: at once beside a weight, else as kWaits
  kFactors,           // of a product: as kWaits, but beside a root of its own rows
  kInput,             // a normalisation: its input at once, all else exact
  kRows,              // a norm or deviation of rows: its input as kWaits, flat rows exact
  kAtOnce,            // noise
  kSides,             // compares them with constants
  kShape,             // reads their shape
  kLogProbabilities,  // a log-softmax
};

// Along what a normalisation takes its statistics: compress/block/exact_lines.h.
enum class Rows : std::uint8_t {
  kNone,
  kLastDimension,
  kPlanes,   // of an image: all dimensions but the first two; of a matrix its columns
  kSamples,  // all dimensions but the first, or a part of them
};

// How much noise a lossy one may have.
enum class Noise : std::uint8_t {
  kBits,      // the width of its key
  kCurved,    // that, in steps that are small beside the curve of the derivative
  kEight,     // 8 bits at least
  kExponent,  // 8 bits at least, in steps that are small in an exponential
};

// Facts of an operator that are true or not, as bits.
using Traits = std::uint8_t;
inline constexpr Traits kPassesParameter = 1;  // a view or cast: a parameter may hide behind it
inline constexpr Traits kAliasesInput = 2;     // its output is on the storage of its only input
inline constexpr Traits kRecomputable = 4;     // its result can be: recomputed.h
inline constexpr Traits kPicks = 8;            // by indices: who made the source says nothing of it
inline constexpr Traits kAtTarget = 16;        // of log-probabilities it takes a few as they are
inline constexpr Traits kFactorises = 32;      // a factor or solution of linear algebra
inline constexpr Traits kByArguments = 128;  // what is true of it depends on the node: node_facts.h
inline constexpr Traits kSums = 64;  // over many elements: a dimension, or what an index joins

// A set of the operator's differentiable inputs, by number.
using Inputs = std::uint8_t;

struct OperatorRow {
  std::string_view node;  // how the name of its node begins
  Path path = Path::kUnknown;
  Saves saves = Saves::kExact;
  Noise noise = Noise::kBits;
  Traits traits = 0;
  Inputs operands = 0;  // of a contraction or product
  Inputs poles = 0;     // these open, whatever `path` says
  Rows rows = Rows::kNone;
};

// The first row that `node`, a class name like "AddmmBackward0", begins with; an empty row if there
// is none.
[[nodiscard]] OperatorRow operator_row(std::string_view node) noexcept;

// The formula that a node of this very name computes; PLEAT_GRADIENTS: none that can be in place.
[[nodiscard]] PleatGradient formula_of(std::string_view node) noexcept;

// All rows, in their order: for tests.
[[nodiscard]] std::span<const OperatorRow> operator_rows() noexcept;

}  // namespace pleat::bridge
