// What we know of one autograd node: its row of the table of operators, and what only its own
// fields say, such as an exponent or the bounds that it compares with.
#pragma once

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
  // Of kSides. Exact doubles: of none where it has others than numbers.
  struct Bounds {
    compress::Sides::Kind kind = compress::Sides::Kind::kNone;
    bool nan_inside = false;
    double low = 0, high = 0;
  } bounds;
};

// `node` must be alive. Never fails.
[[nodiscard]] NodeFacts facts_of(const torch::autograd::Node& node) noexcept;

// a / b.
[[nodiscard]] bool is_quotient(const torch::autograd::Node& node) noexcept;

// x^n with this n; nothing for other nodes, and for an n that is no real number.
[[nodiscard]] std::optional<double> exponent_of(const torch::autograd::Node& node) noexcept;

// The dimensions that a sum, mean, variance or norm runs over, as a set of bits, and the rank of
// its argument. Nothing for other nodes, and for more than 32 dimensions.
struct Reduction {
  std::uint32_t dimensions = 0;
  std::uint32_t rank = 0;
};
[[nodiscard]] std::optional<Reduction> reduction_of(const torch::autograd::Node& node) noexcept;

}  // namespace pleat::bridge
