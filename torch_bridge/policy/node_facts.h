// NodeFacts describes one autograd node: its row of the operator table, refined by the node's own
// fields. Examples of such fields are an exponent and the bounds of a comparison.
#pragma once

#include <c10/util/DimVector.h>

#include <cstdint>
#include <optional>

#include "compress/block/block_spec.h"
#include "torch_bridge/policy/node_class.h"

namespace pleat::bridge {

struct NodeFacts {
  Path path = Path::kUnknown;
  Saves saves = Saves::kExact;
  Noise noise = Noise::kBits;
  Inputs operands = 0, poles = 0;
  Rows rows = Rows::kNone;
  std::int64_t groups = 1;  // of channels, that a group normalisation reads together
  bool of_image = false;    // dimension 1 has the channels
  // The bounds of kSides, as exact doubles; kNone if a bound is not a number.
  struct Bounds {
    compress::Sides::Kind kind = compress::Sides::Kind::kNone;
    bool nan_inside = false;
    double low = 0, high = 0;
  } bounds;
};

// `node` must be alive. Never fails.
[[nodiscard]] NodeFacts facts_of(const torch::autograd::Node& node) noexcept;

// True for a / b.
[[nodiscard]] bool is_quotient(const torch::autograd::Node& node) noexcept;

// The n of x^n; empty for other nodes, and if n is not a real number.
[[nodiscard]] std::optional<double> exponent_of(const torch::autograd::Node& node) noexcept;

// The dimensions that a sum, mean, variance or norm runs over, as a set of bits, and the rank of
// its argument. Empty for other nodes, and above 32 dimensions.
struct Reduction {
  std::uint32_t dimensions = 0;
  std::uint32_t rank = 0;
};
[[nodiscard]] std::optional<Reduction> reduction_of(const torch::autograd::Node& node) noexcept;

// Shapes of a node's result and of an edge's tensor. These throw if sizes are symbolic.
[[nodiscard]] c10::DimVector sizes_of(const torch::autograd::Node& node,
                                      std::uint32_t output_number);
[[nodiscard]] c10::DimVector sizes_of(const torch::autograd::Edge& edge);
[[nodiscard]] std::int64_t numel_of(const torch::autograd::Node& node, std::uint32_t output_number);
[[nodiscard]] std::int64_t numel_of(const torch::autograd::Edge& edge);
[[nodiscard]] std::size_t rank_of(const torch::autograd::Node& node, std::uint32_t output_number);

}  // namespace pleat::bridge
