#include "torch_bridge/policy/node_facts.h"

#include <torch/csrc/autograd/functions/tensor.h>
#include <torch/csrc/autograd/generated/Functions.h>

#include <cmath>
#include <limits>

#include "torch_bridge/policy/functions.h"

namespace pleat::bridge {
namespace {

using compress::Sides;
using torch::autograd::CopySlices;
using torch::autograd::Edge;
using torch::autograd::Node;
using namespace torch::autograd::generated;

constexpr double kNoBound = std::numeric_limits<double>::infinity();

template <class Class>
const Class* as(const Node& node) noexcept {
  return typeid(node) == typeid(Class) ? static_cast<const Class*>(&node) : nullptr;
}

double number(const at::Scalar& scalar) {
  TORCH_CHECK(!scalar.isSymbolic() && !scalar.isComplex());
  return scalar.toDouble();
}
double number(const std::optional<at::Scalar>& scalar, double otherwise) {
  return scalar ? number(*scalar) : otherwise;
}

NodeFacts::Bounds open(double low, double high, bool nan_inside) {
  return {Sides::Kind::kOpen, nan_inside, low, high};
}
NodeFacts::Bounds closed(double low, double high) {
  return {Sides::Kind::kClosed, false, low, high};
}

// Follows the comparisons in torch's kernels: threshold_backward drops where x <= t,
// leaky_relu_backward tests x > 0, hardtanh_backward drops where x <= low or x >= high, clamp keeps
// low <= x <= high. These also decide the side of NaN.
NodeFacts::Bounds bounds_of(const Node& node) {
  if (as<ReluBackward0>(node) != nullptr) return open(0, kNoBound, true);
  if (const auto* n = as<ThresholdBackward0>(node))
    return open(number(n->threshold), kNoBound, true);
  if (const auto* n = as<ThresholdBackward1>(node))
    return open(number(n->threshold), kNoBound, true);
  if (const auto* n = as<LeakyReluBackward0>(node); n != nullptr) return open(0, kNoBound, false);
  if (const auto* n = as<LeakyReluBackward1>(node); n != nullptr) return open(0, kNoBound, false);
  if (const auto* n = as<HardtanhBackward0>(node))
    return open(number(n->min_val), number(n->max_val), true);
  if (as<HardsigmoidBackward0>(node) != nullptr) return open(-3, 3, false);
  if (const auto* n = as<HardshrinkBackward0>(node))
    return closed(-number(n->lambd), number(n->lambd));
  if (const auto* n = as<SoftshrinkBackward0>(node))
    return closed(-number(n->lambd), number(n->lambd));
  if (const auto* n = as<ClampBackward1>(node))
    return closed(number(n->min, -kNoBound), number(n->max, kNoBound));
  if (const auto* n = as<ClampMinBackward0>(node)) return closed(number(n->min), kNoBound);
  if (const auto* n = as<ClampMaxBackward0>(node)) return closed(-kNoBound, number(n->max));
  if (as<PreluKernelBackward0>(node) != nullptr) return open(0, kNoBound, false);
  if (as<AbsBackward0>(node) != nullptr) return {Sides::Kind::kThree, false, 0, 0};
  return {};
}

// In evaluation the running statistics are constants, so the node is linear.
bool evaluates(const Node& node) noexcept {
  if (const auto* n = as<NativeBatchNormBackward0>(node)) return !n->training;
  if (const auto* n = as<NativeBatchNormLegitBackward0>(node)) return !n->training;
  if (const auto* n = as<NativeBatchNormLegitBackward1>(node)) return !n->training;
  if (const auto* n = as<CudnnBatchNormBackward0>(node)) return !n->training;
  if (const auto* n = as<MiopenBatchNormBackward0>(node)) return !n->training;
  return false;
}

// Norms of other orders have a pole for each element.
bool is_euclidean(const Node& node) {
  if (const auto* n = as<LinalgVectorNormBackward0>(node)) return number(n->ord) == 2;
  if (const auto* n = as<NormBackward0>(node)) return number(n->p) == 2;
  if (const auto* n = as<NormBackward1>(node)) return number(n->p, 2) == 2;
  if (const auto* n = as<NormBackward2>(node)) return number(n->p, 2) == 2;
  if (const auto* n = as<NormBackward3>(node)) return number(n->p, 2) == 2;
  return true;
}

template <class Dimensions>
std::optional<Reduction> reduction(const Dimensions& dimensions, std::size_t rank) {
  if (rank > 32) {
    return std::nullopt;
  }
  Reduction found{.dimensions = 0, .rank = static_cast<std::uint32_t>(rank)};
  for (const std::int64_t d : dimensions) {
    found.dimensions |= 1u << (d < 0 ? d + static_cast<std::int64_t>(rank) : d);
  }
  if (dimensions.size() == 0) {
    found.dimensions = static_cast<std::uint32_t>((std::uint64_t{1} << rank) - 1);
  }
  return found;
}
at::IntArrayRef list(const c10::OptionalArray<std::int64_t>& dimensions) {
  return dimensions.list ? at::IntArrayRef(*dimensions.list) : at::IntArrayRef();
}
// The rank of the only input of `node`.
std::size_t rank_of_input(const Node& node) {
  const auto& edge = node.next_edge(0);
  TORCH_CHECK(edge.is_valid());
  return edge.function->input_metadata(edge.input_nr).shape_as_dim_vector().size();
}

}  // namespace

c10::DimVector sizes_of(const Node& node, std::uint32_t output_number) {
  TORCH_CHECK(output_number < node.num_inputs());
  c10::DimVector sizes;
  for (const c10::SymInt& size : node.input_metadata(output_number).shape_as_dim_vector()) {
    sizes.push_back(size.expect_int());
  }
  return sizes;
}

c10::DimVector sizes_of(const Edge& edge) { return sizes_of(*edge.function, edge.input_nr); }

std::int64_t numel_of(const Node& node, std::uint32_t output_number) {
  return c10::multiply_integers(sizes_of(node, output_number));
}

std::int64_t numel_of(const Edge& edge) { return c10::multiply_integers(sizes_of(edge)); }

std::size_t rank_of(const Node& node, std::uint32_t output_number) {
  return sizes_of(node, output_number).size();
}

NodeFacts facts_of(const Node& node) noexcept {
  const Node* inner = &node;
  if (const auto* slices = as<CopySlices>(node); slices != nullptr && slices->fn) {
    inner = slices->fn.get();  // written in place, through a view of the node's result
  }
  const OperatorRow& row = class_of(*inner).row;
  NodeFacts facts{.path = row.path,
                  .saves = row.saves,
                  .noise = row.noise,
                  .operands = row.operands,
                  .poles = row.poles,
                  .rows = row.rows,
                  .bounds = {}};
  if (const auto* groups = as<NativeGroupNormBackward0>(*inner)) facts.groups = groups->group;
  facts.of_image = row.rows == Rows::kPlanes || row.rows == Rows::kSamples ||
                   as<ConvolutionBackward0>(*inner) != nullptr;
  if (facts.path == Path::kUnknown) {
    if (const Trust trust = trust_in(*inner); trust != Trust::kNone) {
      facts.path = trust == Trust::kCloses ? Path::kCloses : Path::kPasses;
      facts.saves = Saves::kWaits;
    }
  }
  try {
    if (facts.saves == Saves::kSides) {
      facts.bounds = bounds_of(*inner);
    } else if (facts.saves == Saves::kRows && !is_euclidean(*inner)) {
      facts = {.path = Path::kOpens, .bounds = {}};
    } else if ((row.traits & kByArguments) == 0) {
      // the row is complete
    } else if (as<PreluKernelBackward0>(*inner) != nullptr) {
      facts.bounds = bounds_of(*inner);
    } else if (as<PowBackward0>(*inner) != nullptr) {
      const double n = exponent_of(*inner).value_or(-1);
      if (n < 0 || std::floor(n) != n) {
        facts = {.path = Path::kOpens, .bounds = {}};  // a pole or a branch point at zero
      } else if (n > 2) {
        facts.noise = Noise::kEight;
      }
    } else if (evaluates(*inner)) {
      facts.path = Path::kPasses;
      facts.rows = Rows::kNone;
    }
  } catch (...) {
    facts = {};
  }
  if (inner != &node) {
    facts.poles = facts.poles != 0 ? Inputs{0xff} : Inputs{0};  // its inputs have other numbers
    facts.path =
        facts.path == Path::kContracts || facts.path == Path::kCloses ? Path::kPasses : facts.path;
  }
  return facts;
}

bool is_quotient(const Node& node) noexcept {
  return as<DivBackward0>(node) != nullptr || as<DivBackward2>(node) != nullptr;
}

std::optional<double> exponent_of(const Node& node) noexcept {
  try {
    if (const auto* pow = as<PowBackward0>(node)) {
      return number(pow->exponent);
    }
  } catch (...) {
  }
  return std::nullopt;
}

std::optional<Reduction> reduction_of(const Node& node) noexcept {
  try {
    if (const auto* n = as<SumBackward1>(node)) return reduction(list(n->dim), rank_of_input(node));
    if (const auto* n = as<MeanBackward1>(node))
      return reduction(list(n->dim), rank_of_input(node));
    if (const auto* n = as<VarBackward0>(node)) return reduction(list(n->dim), rank_of_input(node));
    if (const auto* n = as<VarMeanBackward0>(node))
      return reduction(list(n->dim), rank_of_input(node));
    if (const auto* n = as<StdBackward0>(node)) return reduction(list(n->dim), rank_of_input(node));
    if (const auto* n = as<LinalgVectorNormBackward0>(node))
      return reduction(list(n->dim), rank_of_input(node));
    if (const auto* n = as<NormBackward3>(node)) return reduction(n->dim, rank_of_input(node));
    if (const auto* n = as<NormBackward1>(node)) return reduction(n->dim, rank_of_input(node));
    if (as<NormBackward0>(node) != nullptr || as<NormBackward2>(node) != nullptr ||
        as<SumBackward0>(node) != nullptr || as<MeanBackward0>(node) != nullptr)
      return reduction(at::IntArrayRef(), rank_of_input(node));
  } catch (...) {
  }
  return std::nullopt;
}

}  // namespace pleat::bridge
