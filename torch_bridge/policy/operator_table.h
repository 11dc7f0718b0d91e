// The operator table lists the effect of noise for each operator: in its saved tensors, and on
// paths through it. It is the only place in this folder with facts about operators.
// docs/eligibility.md explains the rule. Torch-free.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "compress/block/block_spec.h"
#include "torch_bridge/c_abi.h"

namespace pleat::bridge {

// The effect of the operator on a path from an earlier node's result. In each enum, the first value
// holds for operators that are not in the table.
enum class Path : std::uint8_t {
  kUnknown,      // Pleat cannot inspect it: open
  kOpens,        // a pole, a comparison for equality, a loss
  kPasses,       // passed on to the operator's own readers
  kAdds,         // passed on; once some reader has closed it, a later opener does no harm
  kExponential,  // passed on; the earlier tensors enter an exponential or an angle
  kContracts,    // closed if one of the operands is a weight, else passed on
  kCloses,       // closed
};

// The use of the saved tensors in the operator's backward.
enum class Saves : std::uint8_t {
  kExact,             // no noise
  kWaits,             // noise if all paths from its result are closed
  kOperands,          // a contraction: at once if an operand is a weight, else like kWaits
  kFactors,           // a product: like kWaits, unless a factor is a root of its own rows
  kInput,             // a normalisation: its input at once, the other saves exact
  kRows,              // a norm or deviation of rows: its input like kWaits, flat rows exact
  kAtOnce,            // noise at once
  kSides,             // compares the saves with constants
  kShape,             // reads only their shape
  kLogProbabilities,  // a log-softmax
};

// The rows over which a normalisation takes its statistics: compress/lines/exact_lines.h.
enum class Rows : std::uint8_t {
  kNone,
  kLastDimension,
  kPlanes,   // of an image: all dimensions but the first two; of a matrix its columns
  kSamples,  // all dimensions but the first, or a part of them
};

// The noise of a lossy tensor.
enum class Noise : std::uint8_t {
  kBits,      // the width of its key
  kCurved,    // that, in steps that are small relative to the curvature of the derivative
  kEight,     // 8 bits at least
  kExponent,  // 8 bits at least, in steps that are small in an exponential
};

// Yes-or-no facts about an operator, as bits.
using Traits = std::uint8_t;
inline constexpr Traits kPassesParameter = 1;  // a view or cast: a parameter may hide behind it
inline constexpr Traits kAliasesInput = 2;     // its output shares the storage of its only input
inline constexpr Traits kRecomputable = 4;     // its result can be recomputed: recomputed.h
inline constexpr Traits kPicks = 8;          // by indices: the maker of the source does not matter
inline constexpr Traits kAtTarget = 16;      // reads single elements of log-probabilities
inline constexpr Traits kFactorises = 32;    // a factor or solution of linear algebra
inline constexpr Traits kByArguments = 128;  // its facts depend on the node: node_facts.h
inline constexpr Traits kSums = 64;  // over many elements: a dimension, or elements with one index

// A set of the operator's differentiable inputs, by number.
using Inputs = std::uint8_t;

struct OperatorRow {
  std::string_view node;  // prefix of the node's name
  Path path = Path::kUnknown;
  Saves saves = Saves::kExact;
  Noise noise = Noise::kBits;
  Traits traits = 0;
  Inputs operands = 0;  // of a contraction or product
  Inputs poles = 0;     // these inputs open, whatever `path` is
  Rows rows = Rows::kNone;
};

// The first row with a prefix of `node`, a class name like "AddmmBackward0"; else an empty row.
[[nodiscard]] OperatorRow operator_row(std::string_view node) noexcept;

// The formula that a node of exactly this name computes; PLEAT_GRADIENTS: no formula in place.
[[nodiscard]] PleatGradient formula_of(std::string_view node) noexcept;

// All rows, in their order: for tests.
[[nodiscard]] std::span<const OperatorRow> operator_rows() noexcept;

}  // namespace pleat::bridge
