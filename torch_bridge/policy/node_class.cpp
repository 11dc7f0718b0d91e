#include "torch_bridge/policy/node_class.h"

#include <c10/util/Type.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <memory>
#include <mutex>
#include <string_view>
#include <typeinfo>
#include <unordered_map>
#include <utility>

#include "sensitivity/key.h"
#include "torch_bridge/core/fork_locks.h"

namespace pleat::bridge {
namespace {

using namespace std::string_view_literals;

struct Family {
  std::string_view prefix;
  Care as_producer;
  Care as_consumer;
};

// First match wins. Names are those of torch's derivatives.yaml; a trailing "Backward0" is implied,
// and a leading "Foreach" passed over.
constexpr Family kFamilies[] = {
    // exponentials: exp(x) enters again, an error of e in the exponent is a factor of 1 + e
    {"ExpBackward"sv, Care::kEight, Care::kEight},
    {"Exp2Backward"sv, Care::kEight, Care::kEight},
    {"Expm1Backward"sv, Care::kEight, Care::kEight},
    {"Sinh"sv, Care::kNone, Care::kEight},
    {"Cosh"sv, Care::kNone, Care::kEight},
    {"Softmax"sv, Care::kEight, Care::kEight},
    {"LogSoftmax"sv, Care::kEight, Care::kEight},
    {"SafeSoftmax"sv, Care::kEight, Care::kEight},
    {"Logsumexp"sv, Care::kEight, Care::kEight},
    {"Logaddexp"sv, Care::kEight, Care::kEight},
    {"Logcumsumexp"sv, Care::kEight, Care::kEight},
    {"ScaledDotProduct"sv, Care::kEight, Care::kEight},
    {"EfficientAttention"sv, Care::kEight, Care::kEight},
    {"FlashAttention"sv, Care::kEight, Care::kEight},
    {"BinaryCrossEntropy"sv, Care::kEight, Care::kEight},
    {"CtcLoss"sv, Care::kExact, Care::kExact},
    {"NllLoss"sv, Care::kNone, Care::kEight},
    {"SoftMarginLoss"sv, Care::kEight, Care::kEight},
    {"MultilabelMarginLoss"sv, Care::kEight, Care::kEight},
    {"Softplus"sv, Care::kEight, Care::kEight},
    // factors and solutions of linear algebra
    {"Linalg"sv, Care::kExact, Care::kExact},
    {"Cholesky"sv, Care::kExact, Care::kExact},
    {"TriangularSolve"sv, Care::kExact, Care::kExact},
    {"Lu"sv, Care::kExact, Care::kExact},
    {"Geqrf"sv, Care::kExact, Care::kExact},
    {"Ormqr"sv, Care::kExact, Care::kExact},
    {"HouseholderProduct"sv, Care::kExact, Care::kExact},
    {"Svd"sv, Care::kExact, Care::kExact},
    {"Matrix"sv, Care::kExact, Care::kExact},
    {"Pinverse"sv, Care::kExact, Care::kExact},
    // comparisons for equality: a value and the extreme it may be must stay the same number
    {"Amax"sv, Care::kExact, Care::kExact},
    {"Amin"sv, Care::kExact, Care::kExact},  // and Aminmax
    {"MaxBackward"sv, Care::kExact, Care::kExact},
    {"MinBackward"sv, Care::kExact, Care::kExact},
    {"Median"sv, Care::kExact, Care::kExact},
    {"Nanmedian"sv, Care::kExact, Care::kExact},
    {"Maximum"sv, Care::kExact, Care::kExact},
    {"Minimum"sv, Care::kExact, Care::kExact},
    {"Fmax"sv, Care::kExact, Care::kExact},
    {"Fmin"sv, Care::kExact, Care::kExact},
    {"IndexReduce"sv, Care::kExact, Care::kExact},
    {"ScatterReduce"sv, Care::kExact, Care::kExact},
    {"SegmentReduce"sv, Care::kExact, Care::kExact},
    // comparisons with a threshold: noise near it picks the wrong slope. (The result of ReLU is not
    // here: the codec keeps zeros zero and positive values positive.)
    {"LeakyRelu"sv, Care::kNone, Care::kEight},
    {"Prelu"sv, Care::kNone, Care::kEight},
    {"Abs"sv, Care::kNone, Care::kExact},  // its slope jumps by 2
    {"Clamp"sv, Care::kNone, Care::kEight},
    {"Hardtanh"sv, Care::kNone, Care::kEight},
    {"Hardswish"sv, Care::kNone, Care::kEight},
    {"Hardshrink"sv, Care::kNone, Care::kEight},
    {"Softshrink"sv, Care::kNone, Care::kEight},
    {"Threshold"sv, Care::kNone, Care::kEight},
    {"Rrelu"sv, Care::kNone, Care::kEight},
    {"SmoothL1Loss"sv, Care::kNone, Care::kEight},
    {"HuberLoss"sv, Care::kNone, Care::kEight},
    // coordinates: an error is another pixel
    {"GridSampler"sv, Care::kExact, Care::kExact},
    {"CudnnGridSampler"sv, Care::kExact, Care::kExact},
    {"DeformConv2d"sv, Care::kExact, Care::kExact},  // torchvision's
    // a graph of TorchScript's: whatever operators it is of
    {"DifferentiableGraph"sv, Care::kNone, Care::kExact},
    // periods: an error is an angle, and networks of sines work with arguments of thirty and more
    {"SinBackward"sv, Care::kNone, Care::kEight},
    {"CosBackward"sv, Care::kNone, Care::kEight},
    // poles and branch points: a value restored a little closer to them is a gradient far off
    {"DivBackward"sv, Care::kExact, Care::kExact},
    {"Addcdiv"sv, Care::kExact, Care::kExact},
    {"Copysign"sv, Care::kExact, Care::kExact},
    {"Sqrt"sv, Care::kPole, Care::kPole},
    {"Rsqrt"sv, Care::kPole, Care::kPole},
    {"Reciprocal"sv, Care::kPole, Care::kPole},
    {"LogSigmoid"sv, Care::kNone, Care::kNone},
    {"Log"sv, Care::kPole, Care::kPole},  // Log, Log2, Log10, Log1P, LogNdtr, Logit
    {"Xlogy"sv, Care::kPole, Care::kPole},
    // x^n with a number n: saving_node.h looks at n; the usual 2 and 3 are polynomials. With n a
    // tensor (PowBackward1): exact.
    {"ForeachPow"sv, Care::kPole, Care::kPole},
    {"PowBackward0"sv, Care::kNone, Care::kNone},
    {"Pow"sv, Care::kPole, Care::kPole},
    {"FloatPower"sv, Care::kPole, Care::kPole},
    {"Norm"sv, Care::kExact, Care::kExact},
    {"Dist"sv, Care::kExact, Care::kExact},
    {"EuclideanDist"sv, Care::kExact, Care::kExact},
    {"Cdist"sv, Care::kExact, Care::kExact},
    {"Pdist"sv, Care::kExact, Care::kExact},
    {"Renorm"sv, Care::kExact, Care::kExact},
    {"WeightNorm"sv, Care::kExact, Care::kExact},
    {"Prod"sv, Care::kExact, Care::kExact},
    {"Cumprod"sv, Care::kExact, Care::kExact},
    {"Atan2"sv, Care::kExact, Care::kExact},
    {"Hypot"sv, Care::kExact, Care::kExact},
    {"Acos"sv, Care::kPole, Care::kPole},  // Acos, Acosh
    {"Asin"sv, Care::kPole, Care::kPole},
    {"Atanh"sv, Care::kPole, Care::kPole},
    {"Tan"sv, Care::kNone, Care::kNone},  // Tan, Tanh: polynomials of their result
    {"Erfinv"sv, Care::kPole, Care::kPole},
    {"Lgamma"sv, Care::kExact, Care::kExact},
    {"Digamma"sv, Care::kExact, Care::kExact},
    {"Polygamma"sv, Care::kExact, Care::kExact},
    {"Mvlgamma"sv, Care::kExact, Care::kExact},
    {"Igamma"sv, Care::kExact, Care::kExact},
    {"Special"sv, Care::kExact, Care::kExact},
    {"I0"sv, Care::kExact, Care::kExact},
    {"Sinc"sv, Care::kExact, Care::kExact},
    {"StandardGamma"sv, Care::kExact, Care::kExact},
    {"DirichletGrad"sv, Care::kExact, Care::kExact},
    {"StdBackward"sv, Care::kExact, Care::kExact},
    {"StdMean"sv, Care::kExact, Care::kExact},
    {"PoissonNllLoss"sv, Care::kEight, Care::kEight},
    {"KlDiv"sv, Care::kEight, Care::kEight},
    {"Ldexp"sv, Care::kExact, Care::kExact},
    {"Fmod"sv, Care::kExact, Care::kExact},
    {"Remainder"sv, Care::kExact, Care::kExact},
};

// Towards a pole behind them. Views (kPassesParameter) pass; what is not here ends the search.
struct TowardsPole {
  std::string_view prefix;
  BeforePole role;
};
// clang-format off: tables in columns
constexpr TowardsPole kTowardsPole[] = {
    {"AddBackward"sv, BeforePole::kPasses},
    {"SubBackward"sv, BeforePole::kPasses},
    {"RsubBackward"sv, BeforePole::kPasses},
    {"NegBackward"sv, BeforePole::kPasses},
    {"DivBackward"sv, BeforePole::kPasses},
    {"LerpBackward0"sv, BeforePole::kPasses},
    {"ReluBackward"sv, BeforePole::kPasses},
    {"AbsBackward"sv, BeforePole::kPasses},
    {"Hardtanh"sv, BeforePole::kPasses},
    {"ThresholdBackward"sv, BeforePole::kPasses},
    {"NanToNum"sv, BeforePole::kPasses},
    {"Maximum"sv, BeforePole::kPasses},
    {"Minimum"sv, BeforePole::kPasses},
    {"SqrtBackward"sv, BeforePole::kPasses},
    {"RsqrtBackward"sv, BeforePole::kPasses},
    {"Reciprocal"sv, BeforePole::kPasses},
    {"LogBackward"sv, BeforePole::kPasses},
    {"Log1PBackward"sv, BeforePole::kPasses},
    // which elements there are, and where
    {"IndexBackward"sv, BeforePole::kPasses},
    {"IndexSelect"sv, BeforePole::kPasses},
    {"GatherBackward"sv, BeforePole::kPasses},
    {"TakeBackward"sv, BeforePole::kPasses},
    {"TakeAlongDim"sv, BeforePole::kPasses},
    {"WhereBackward"sv, BeforePole::kPasses},
    {"MaskedFill"sv, BeforePole::kPasses},
    {"MaskedSelect"sv, BeforePole::kPasses},
    {"CatBackward"sv, BeforePole::kPasses},
    {"StackBackward"sv, BeforePole::kPasses},
    {"FlipBackward"sv, BeforePole::kPasses},
    {"RollBackward"sv, BeforePole::kPasses},
    {"RepeatBackward"sv, BeforePole::kPasses},
    {"ConstantPadNd"sv, BeforePole::kPasses},
    {"SortBackward"sv, BeforePole::kPasses},
    {"TopkBackward"sv, BeforePole::kPasses},
    {"ScatterBackward"sv, BeforePole::kPasses},
    {"ScatterAdd"sv, BeforePole::kPasses},
    {"IndexPut"sv, BeforePole::kPasses},
    {"IndexAdd"sv, BeforePole::kPasses},
    {"IndexFill"sv, BeforePole::kPasses},
    {"IndexCopy"sv, BeforePole::kPasses},
    {"UnfoldBackward"sv, BeforePole::kPasses},
    {"CopySlices"sv, BeforePole::kPasses},
    {"MaxPool"sv, BeforePole::kPasses},
    {"AvgPool"sv, BeforePole::kAverages},
    {"DiagonalBackward"sv, BeforePole::kPasses},
    {"TrilBackward"sv, BeforePole::kPasses},
    {"TriuBackward"sv, BeforePole::kPasses},
    {"CumsumBackward"sv, BeforePole::kPasses},
    {"SumBackward"sv, BeforePole::kSums},
    {"MeanBackward"sv, BeforePole::kAverages},
    {"VarBackward"sv, BeforePole::kVariance},
    {"VarMeanBackward"sv, BeforePole::kVariance},
    {"Sigmoid"sv, BeforePole::kSavesResult},
    {"TanhBackward"sv, BeforePole::kSavesResult},
    {"Softmax"sv, BeforePole::kSavesResult},
    {"SafeSoftmax"sv, BeforePole::kSavesResult},
    {"ExpBackward"sv, BeforePole::kSavesResult},
    {"Exp2Backward"sv, BeforePole::kSavesResult},
    {"Expm1Backward"sv, BeforePole::kSavesResult},
    {"PowBackward0"sv, BeforePole::kSavesInput},
    {"SinBackward"sv, BeforePole::kSavesInput},
    {"CosBackward"sv, BeforePole::kSavesInput},
    {"ErfBackward"sv, BeforePole::kSavesInput},
    {"ErfcBackward"sv, BeforePole::kSavesInput},
    {"SoftplusBackward"sv, BeforePole::kSavesInput},
    // cut off to stay away from the pole: at the cut the slope is the steepest
    {"Clamp"sv, BeforePole::kSavesInput},
    {"MulBackward"sv, BeforePole::kSavesFactors},
    {"AddcmulBackward"sv, BeforePole::kSavesFactors},
    {"LerpBackward1"sv, BeforePole::kSavesFactors},
    {"MmBackward"sv, BeforePole::kMixes},
    {"MvBackward"sv, BeforePole::kMixes},
    {"BmmBackward"sv, BeforePole::kMixes},
};

struct Normalisation {
  std::string_view prefix;
  Rows rows;
};
constexpr Normalisation kNormalisations[] = {
    {"NativeLayerNorm"sv, Rows::kLastDimension}, {"FusedRmsNorm"sv, Rows::kLastDimension},
    {"NativeBatchNorm"sv, Rows::kPlanes},        {"NativeGroupNorm"sv, Rows::kSamples},
    {"CudnnBatchNorm"sv, Rows::kPlanes},         {"MiopenBatchNorm"sv, Rows::kPlanes},
};

struct NamedFormula {
  std::string_view name;
  PleatGradient gradient;
};
constexpr NamedFormula kFormulas[] = {
    {"GeluBackward0"sv, PLEAT_GELU_BACKWARD},
    {"SiluBackward0"sv, PLEAT_SILU_BACKWARD},
    {"ReluBackward0"sv, PLEAT_THRESHOLD_BACKWARD},
    {"ThresholdBackward0"sv, PLEAT_THRESHOLD_BACKWARD},
    {"ThresholdBackward1"sv, PLEAT_THRESHOLD_BACKWARD},
    {"SigmoidBackward0"sv, PLEAT_SIGMOID_BACKWARD},
    {"TanhBackward0"sv, PLEAT_TANH_BACKWARD},
    {"LeakyReluBackward0"sv, PLEAT_LEAKY_RELU_BACKWARD},
    {"LeakyReluBackward1"sv, PLEAT_LEAKY_RELU_BACKWARD},
    {"HardtanhBackward0"sv, PLEAT_HARDTANH_BACKWARD},
    {"HardtanhBackward1"sv, PLEAT_HARDTANH_BACKWARD},
    {"EluBackward0"sv, PLEAT_ELU_BACKWARD},
    {"EluBackward1"sv, PLEAT_ELU_BACKWARD},
    {"CeluBackward0"sv, PLEAT_ELU_BACKWARD},
    {"CeluBackward1"sv, PLEAT_ELU_BACKWARD},
    {"SoftmaxBackward0"sv, PLEAT_SOFTMAX_BACKWARD},
    {"LogSoftmaxBackward0"sv, PLEAT_LOG_SOFTMAX_BACKWARD},
    {"MulBackward0"sv, PLEAT_MUL},
    {"DivBackward0"sv, PLEAT_DIV},
};

constexpr std::string_view kBearsNoise[] = {
    "MulBackward"sv,     "MmBackward"sv,       "MvBackward"sv,      "AddmmBackward"sv,
    "BmmBackward"sv,     "BaddbmmBackward"sv,  "AddmvBackward"sv,   "DotBackward"sv,
    "Convolution"sv,     "ScaledDotProduct"sv, "NativeLayerNorm"sv, "FusedRmsNorm"sv,
    "NativeBatchNorm"sv, "NativeGroupNorm"sv,  "ErfBackward"sv,
};

constexpr std::string_view kPassesParameter[] = {
    "TBackward"sv,      "TransposeBackward"sv, "ViewBackward"sv,    "UnsafeViewBackward"sv,
    "ToCopyBackward"sv, "PermuteBackward"sv,   "ExpandBackward"sv,  "SliceBackward"sv,
    "SelectBackward"sv, "UnsqueezeBackward"sv, "SqueezeBackward"sv, "AsStridedBackward"sv,
    "ReshapeAlias"sv,   "AliasBackward"sv,     "CloneBackward"sv,   "SplitBackward"sv,
    "SplitWithSizes"sv, "UnbindBackward"sv,    "DetachBackward"sv,  "ConjBackward"sv,
    "NumpyTBackward"sv, "NarrowBackward"sv,    "MovedimBackward"sv, "SwapdimsBackward"sv,
};

constexpr std::string_view kAliasesInput[] = {
    "TBackward"sv,       "TransposeBackward"sv,    "ViewBackward"sv,
    "PermuteBackward"sv, "ReshapeAliasBackward"sv, "UnsqueezeBackward"sv,
    "SqueezeBackward"sv, "AliasBackward"sv,
};

constexpr std::string_view kSavesArgument[] = {"GeluBackward0"sv, "SiluBackward0"sv};
// clang-format on

template <std::size_t kNames>
bool starts_with_any(std::string_view name, const std::string_view (&prefixes)[kNames]) noexcept {
  return std::any_of(std::begin(prefixes), std::end(prefixes),
                     [&](std::string_view prefix) { return name.starts_with(prefix); });
}

struct Registry {
  std::mutex mutex;
  ForkLock fork_lock{ForkPlace::kNodeClasses, mutex};
  std::unordered_map<const std::type_info*, std::unique_ptr<NodeClass>> classes;
};
// Leaked: nodes are looked up until the process ends. Made when the library is loaded: the first
// look may be in a child.
Registry& registry = *new Registry;

}  // namespace

NodeClass classify(const std::string& name) {
  NodeClass c;
  c.name = name;
  c.hash = sensitivity::hash_text(name.c_str());
  c.accumulate_grad = name == "AccumulateGrad";
  c.python = name == "PyNode";
  constexpr std::string_view kForeach = "Foreach";
  std::string_view single = name;
  single.remove_prefix(single.starts_with(kForeach) ? kForeach.size() : 0);
  for (const Family& family : kFamilies) {
    if (single.starts_with(family.prefix) || std::string_view(name).starts_with(family.prefix)) {
      c.as_producer = family.as_producer;
      c.as_consumer = family.as_consumer;
      break;
    }
  }
  for (const Normalisation& known : kNormalisations) {
    if (std::string_view(name).starts_with(known.prefix)) {
      c.as_consumer.rows = known.rows;
      c.statistics = true;
    }
  }
  for (const NamedFormula& known : kFormulas) {
    if (name == known.name) {
      c.gradient = known.gradient;
    }
  }
  c.bears_noise = starts_with_any(name, kBearsNoise);
  c.passes_parameter = starts_with_any(name, kPassesParameter);
  c.aliases_input = !name.ends_with("_copy") && starts_with_any(name, kAliasesInput);
  c.saves_argument = starts_with_any(name, kSavesArgument);
  c.before_pole = c.passes_parameter ? BeforePole::kPasses : BeforePole::kEnds;
  for (const TowardsPole& known : kTowardsPole) {
    if (std::string_view(name).starts_with(known.prefix)) {
      c.before_pole = known.role;
      break;
    }
  }
  return c;
}

const NodeClass& class_of(const torch::autograd::Node& node) noexcept {
  static const NodeClass unknown{};
  const std::type_info* const type = &typeid(node);
  thread_local std::array<std::pair<const std::type_info*, const NodeClass*>, 64> cache{};
  auto& cached = cache[(reinterpret_cast<std::uintptr_t>(type) >> 4) % cache.size()];
  if (cached.first == type) {
    return *cached.second;
  }
  try {
    Registry& r = registry;
    const NodeClass* found = nullptr;
    {
      const std::lock_guard<std::mutex> guard(r.mutex);
      if (const auto it = r.classes.find(type); it != r.classes.end()) {
        found = it->second.get();
      }
    }
    if (found == nullptr) {
      std::string name = c10::demangle(type->name());
      const bool of_torch = name.starts_with("torch::autograd::generated::") ||
                            name == "torch::autograd::CopySlices";  // runs the node that was there
      if (const auto colon = name.rfind("::"); colon != std::string::npos) {
        name.erase(0, colon + 2);
      }
      auto made = std::make_unique<NodeClass>(classify(name));
      made->of_torch = of_torch;
      made->aliases_input = made->aliases_input && of_torch;
      made->saves_argument = made->saves_argument && of_torch;
      const std::lock_guard<std::mutex> guard(r.mutex);
      auto& slot = r.classes[type];
      if (slot == nullptr) {
        slot = std::move(made);
      }
      found = slot.get();
    }
    cached = {type, found};
    return *found;
  } catch (...) {
    return unknown;
  }
}

std::uint64_t ancestors_hash(const torch::autograd::Node& node) noexcept {
  std::uint64_t h = 0;
  const std::size_t most = std::min<std::size_t>(node.num_outputs(), 3);
  for (std::size_t i = 0; i < most; ++i) {
    const torch::autograd::Node* const input = node.next_edge(i).function.get();
    h = sensitivity::mix(h ^ (input != nullptr ? class_of(*input).hash : 0));
  }
  return h;
}

}  // namespace pleat::bridge
