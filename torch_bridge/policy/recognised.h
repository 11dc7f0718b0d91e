// Normalisations and softmaxes that a script writes by hand: x * rsqrt(mean(x^2)), (x - m) /
// sqrt(v), x / norm(x), exp(x) / sum(exp(x)). Their poles are where a whole row is flat, as those
// of the native ones are, so they are treated as these.
#pragma once

#include <cstddef>
#include <optional>

#include "torch_bridge/policy/claim.h"
#include "torch_bridge/policy/node_facts.h"

namespace pleat::bridge {

// The root, or its inverse, of a sum of squares over rows.
struct RootOfRows {
  // The node that squares, and saves what it squares: a power, a product, a variance, a norm.
  const torch::autograd::Node* squares = nullptr;
  torch::autograd::Edge source;  // what is squared
  Reduction rows;                // what the sum runs over
};
// `node` takes the root; or it is a variance's or a norm's. Of living nodes. Never fails.
[[nodiscard]] std::optional<RootOfRows> root_of_rows(const torch::autograd::Node& node) noexcept;

// The node that takes an exponential of which the result of `node` is some; null: none. Never
// fails.
[[nodiscard]] const torch::autograd::Node* exponential_behind(
    const torch::autograd::Node* node) noexcept;
// It takes it of a contraction, but for constants: no scale is learned, nothing is added or capped.
[[nodiscard]] bool has_plain_scores(const torch::autograd::Node& exponential) noexcept;

// A factor of a product, or the dividend of a quotient, beside another.
enum class Beside : std::uint8_t {
  kAnything,
  kRootOfOwnRows,  // of the factor's own squares, or of those of what it is the deviation of
  kOwnSum,         // an exponential, beside a sum of it
};
struct Recognised {
  Beside beside = Beside::kAnything;
  RootOfRows root;  // of kRootOfOwnRows
};
// Inputs of `node` by number, both with an edge. Never fails.
[[nodiscard]] Recognised recognise(const torch::autograd::Node& node, std::size_t factor,
                                   std::size_t other) noexcept;

// Of a product or quotient that is a normalisation: the root of the rows that it normalises. Never
// fails.
[[nodiscard]] std::optional<RootOfRows> normalisation_by_hand(
    const torch::autograd::Node& node) noexcept;

// The other factor is made by a root, an inverse or another pole that is not recognised, and of
// what the factor is made of: of its own row, perhaps, which may be flat beside others. Inputs of
// `node` by number, both with an edge. Never fails.
[[nodiscard]] bool is_beside_pole_of_own(const torch::autograd::Node& node, std::size_t factor,
                                         std::size_t other) noexcept;

// Some pole that is not recognised has made the factor. Never fails.
[[nodiscard]] bool is_made_by_pole(const torch::autograd::Edge& factor) noexcept;

// The lines that such rows are in a tensor of that shape. Nothing where the rows are not apart in
// memory, or too short to be judged; lines of no length where all elements are one row.
[[nodiscard]] std::optional<compress::block::Lines> lines_of(const SavedShape& shape,
                                                             Reduction rows) noexcept;

}  // namespace pleat::bridge
