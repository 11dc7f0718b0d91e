// Recognises normalisations and softmaxes that a script writes by hand. Examples are x *
// rsqrt(mean(x^2)), (x - m) / sqrt(v), x / norm(x) and exp(x) / sum(exp(x)). Like native ones they
// have poles only where a whole row is flat, so they are treated like native ones.
#pragma once

#include <cstddef>
#include <optional>

#include "torch_bridge/policy/claim.h"
#include "torch_bridge/policy/node_facts.h"

namespace pleat::bridge {

// The root, or its inverse, of a sum of squares over rows.
struct RootOfRows {
  // The node that squares, and saves its argument: a power, a product, a variance, a norm.
  const torch::autograd::Node* squares = nullptr;
  torch::autograd::Edge source;  // the argument that is squared
  Reduction rows;                // the dimensions that the sum runs over
};
// Set if `node` takes such a root, or is a variance or a norm. All nodes are alive. Never fails.
[[nodiscard]] std::optional<RootOfRows> root_of_rows(const torch::autograd::Node& node) noexcept;

// The node of the exponential whose elements the result of `node` selects; null: none. Never fails.
[[nodiscard]] const torch::autograd::Node* exponential_behind(
    const torch::autograd::Node* node) noexcept;
// True if its argument is a contraction, up to constants: no learned scale, no added term, no cap.
[[nodiscard]] bool has_plain_scores(const torch::autograd::Node& exponential) noexcept;

// The relation of a factor of a product, or of the dividend of a quotient, to the other operand.
enum class Beside : std::uint8_t {
  kAnything,
  kRootOfOwnRows,  // the root is of the factor's own squares, or of its source's deviations
  kOwnSum,         // an exponential, and a sum of it
};
struct Recognised {
  Beside beside = Beside::kAnything;
  RootOfRows root;  // set for kRootOfOwnRows
};
// `factor` and `other`: inputs of `node` by number, both with an edge. Never fails.
[[nodiscard]] Recognised recognise(const torch::autograd::Node& node, std::size_t factor,
                                   std::size_t other) noexcept;

// The root of the rows that a product or quotient normalises; empty for other nodes. Never fails.
[[nodiscard]] std::optional<RootOfRows> normalisation_by_hand(
    const torch::autograd::Node& node) noexcept;

// True if a root, an inverse or another unrecognised pole makes the other factor from this factor's
// own source. That pole can belong to the factor's own row, which can be flat relative to others.
// Inputs of `node` by number, both with an edge. Never fails.
[[nodiscard]] bool is_beside_pole_of_own(const torch::autograd::Node& node, std::size_t factor,
                                         std::size_t other) noexcept;

// True if some unrecognised pole made the factor. Never fails.
[[nodiscard]] bool is_made_by_pole(const torch::autograd::Edge& factor) noexcept;

// The lines of such rows in a tensor of that shape. Empty if the rows are not separate in memory,
// or too short; lines of length 0 if all elements are one row.
[[nodiscard]] std::optional<compress::block::Lines> lines_of(const SavedShape& shape,
                                                             Reduction rows) noexcept;

}  // namespace pleat::bridge
