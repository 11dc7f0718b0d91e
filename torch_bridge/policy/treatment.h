// The treatment of a tensor that a node saves: noise at once, noise once a proof has come, or none.
// It follows from the use of the tensor in the node's backward.
#pragma once

#include <c10/util/DimVector.h>

#include <cstdint>

#include "torch_bridge/core/codec_adapter.h"
#include "torch_bridge/core/reasons.h"
#include "torch_bridge/core/runtime.h"
#include "torch_bridge/policy/node_facts.h"

namespace pleat::bridge {

struct Claim;

struct Treatment {
  Exactness exactness = Exactness::kMayBearNoise;  // other values: exact
  bool waits = false;
  bool beyond_doubt = false;  // an operand next to a weight, or input of a native normalisation
  CodecChoice choice{};
};

// Facts about the graph around a node.
class Surroundings {
 public:
  // True if one of the operands in the set is a weight, with two exceptions. A table of
  // probabilities does not count. Unit rows next to unit rows do not count: a cosine's gradient is
  // the small rest of two vectors that nearly cancel.
  [[nodiscard]] virtual bool has_weight(const torch::autograd::Node& node, Inputs operands) = 0;
  // True if another contraction without a weight has read the tensor of that input as its operand.
  [[nodiscard]] virtual bool reads_again(const torch::autograd::Node& node, std::size_t input) = 0;

 protected:
  ~Surroundings() = default;
};

// `input`: number of the node's input that is the tensor; -1: unknown. For claims of outputs, the
// number of the result. The node is alive.
[[nodiscard]] Treatment treat(Runtime& runtime, const Claim& claim,
                              const torch::autograd::Node& node, int input,
                              Surroundings& surroundings);

// The choice with at least the given care.
[[nodiscard]] CodecChoice with_noise(CodecChoice choice, Noise noise) noexcept;

// Shapes of a node's result and of an edge's tensor. These throw if sizes are symbolic.
[[nodiscard]] c10::DimVector sizes_of(const torch::autograd::Node& node,
                                      std::uint32_t output_number);
[[nodiscard]] c10::DimVector sizes_of(const torch::autograd::Edge& edge);
[[nodiscard]] std::int64_t numel_of(const torch::autograd::Node& node, std::uint32_t output_number);
[[nodiscard]] std::int64_t numel_of(const torch::autograd::Edge& edge);
[[nodiscard]] std::size_t rank_of(const torch::autograd::Node& node, std::uint32_t output_number);

}  // namespace pleat::bridge
