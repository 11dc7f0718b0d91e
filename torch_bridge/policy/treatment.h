// What becomes of a tensor that a node saves, by what the node does with it in backward: noise at
// once, noise once a proof has come, or none.
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
  Exactness exactness = Exactness::kMayBearNoise;  // else it is exact
  bool waits = false;
  bool beyond_doubt = false;  // an operand beside a weight, or input of a native normalisation
  CodecChoice choice{};
};

// What the graph around a node says of it.
class Surroundings {
 public:
  // One of the operands in the set is a weight, but no table of probabilities, and not one of unit
  // rows beside unit rows: a cosine's gradient is what is left of two vectors that nearly cancel.
  [[nodiscard]] virtual bool has_weight(const torch::autograd::Node& node, Inputs operands) = 0;
  // Another contraction without a weight has read the tensor of that input as its operand.
  [[nodiscard]] virtual bool reads_again(const torch::autograd::Node& node, std::size_t input) = 0;

 protected:
  ~Surroundings() = default;
};

// `input`: which of the node's inputs the tensor is; -1: none that is known. Of its results for
// claims of outputs. The node is alive.
[[nodiscard]] Treatment treat(Runtime& runtime, const Claim& claim,
                              const torch::autograd::Node& node, int input,
                              Surroundings& surroundings);

// The choice with at least so much care.
[[nodiscard]] CodecChoice with_noise(CodecChoice choice, Noise noise) noexcept;

// Of a node's result, of an edge's tensor. Throw where sizes are symbolic.
[[nodiscard]] c10::DimVector sizes_of(const torch::autograd::Node& node,
                                      std::uint32_t output_number);
[[nodiscard]] c10::DimVector sizes_of(const torch::autograd::Edge& edge);
[[nodiscard]] std::int64_t numel_of(const torch::autograd::Node& node, std::uint32_t output_number);
[[nodiscard]] std::int64_t numel_of(const torch::autograd::Edge& edge);
[[nodiscard]] std::size_t rank_of(const torch::autograd::Node& node, std::uint32_t output_number);

}  // namespace pleat::bridge
