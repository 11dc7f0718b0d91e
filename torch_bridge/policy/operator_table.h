// The table of operators: what each asks of the tensors that its autograd node saves, and what it
// says of those that it makes. Whatever the rest of this folder knows of operators stands here,
// once. Torch-free.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "torch_bridge/c_abi.h"
#include "torch_bridge/core/needs.h"

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

// Facts of an operator that are true or not, as bits.
using Traits = std::uint8_t;
inline constexpr Traits kBearsNoise = 1;  // a gentle function of what it saves: whoever made that
inline constexpr Traits kPassesParameter = 2;  // a view or cast: a parameter may hide behind it
inline constexpr Traits kAliasesInput = 4;     // its output is on the storage of its only input
inline constexpr Traits kRecomputable = 8;     // its result can be: recomputed.h

struct OperatorRow {
  std::string_view node;           // how the name of its node begins
  Care as_producer = Care::kNone;  // of what it makes; above kEight not for savers that bear noise
  Care as_consumer = Care::kNone;  // of what it saves
  BeforePole before_pole = BeforePole::kEnds;
  Traits traits = 0;
  Rows rows =
      Rows::kNone;  // it is a normalisation along these: its outputs but the first are exact
};

// The first row that `node`, a class name like "AddmmBackward0", begins with; an empty row if there
// is none. The node of a list of tensors ("ForeachExpBackward0") has the cares of its operator's
// row, and nothing else.
[[nodiscard]] OperatorRow operator_row(std::string_view node) noexcept;

// The formula that a node of this very name computes; PLEAT_GRADIENTS: none that can be in place.
[[nodiscard]] PleatGradient formula_of(std::string_view node) noexcept;

// All rows, in their order: for tests.
[[nodiscard]] std::span<const OperatorRow> operator_rows() noexcept;

}  // namespace pleat::bridge
