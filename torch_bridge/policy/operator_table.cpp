#include "torch_bridge/policy/operator_table.h"

#include <cstddef>

namespace pleat::bridge {
namespace {

using namespace std::string_view_literals;
using enum Care;
using enum BeforePole;

constexpr Traits kView = kPassesParameter | kAliasesInput;

// Names are those of torch's derivatives.yaml. Of two rows that fit a name the first holds.
//   the node, care of what it makes, of what it saves, before a pole, traits, normalised rows
constexpr OperatorRow kOperators[] = {
    // exponentials: exp(x) enters again, an error of e in the exponent is a factor of 1 + e
    {"ExpBackward"sv, kEight, kEight, kSavesResult},
    {"Exp2Backward"sv, kEight, kEight, kSavesResult},
    {"Expm1Backward"sv, kEight, kEight, kSavesResult},
    {"Sinh"sv, kNone, kEight},
    {"Cosh"sv, kNone, kEight},
    {"Softmax"sv, kEight, kEight, kSavesResult},
    {"LogSoftmax"sv, kEight, kEight},
    {"SafeSoftmax"sv, kEight, kEight, kSavesResult},
    {"Logsumexp"sv, kEight, kEight},
    {"Logaddexp"sv, kEight, kEight},
    {"Logcumsumexp"sv, kEight, kEight},
    {"ScaledDotProduct"sv, kEight, kEight, kEnds, kBearsNoise},
    {"EfficientAttention"sv, kEight, kEight},
    {"FlashAttention"sv, kEight, kEight},
    // losses
    {"BinaryCrossEntropyWithLogits"sv, kEight, kEight},
    {"BinaryCrossEntropy"sv, kEight, kPole},  // of probabilities: 1 / x and 1 / (1 - x)
    {"CtcLoss"sv, kExact, kExact},
    {"NllLoss"sv, kNone, kEight},
    {"SoftMarginLoss"sv, kEight, kEight},
    {"MultilabelMarginLoss"sv, kEight, kEight},
    {"PoissonNllLoss"sv, kEight, kEight},
    {"KlDiv"sv, kEight, kEight},
    {"Softplus"sv, kEight, kEight, kSavesInput},
    // factors and solutions of linear algebra
    {"Linalg"sv, kExact, kExact},
    {"Cholesky"sv, kExact, kExact},
    {"TriangularSolve"sv, kExact, kExact},
    {"Lu"sv, kExact, kExact},
    {"Geqrf"sv, kExact, kExact},
    {"Ormqr"sv, kExact, kExact},
    {"HouseholderProduct"sv, kExact, kExact},
    {"Svd"sv, kExact, kExact},
    {"Matrix"sv, kExact, kExact},
    {"Pinverse"sv, kExact, kExact},
    // comparisons for equality: a value and the extreme it may be must stay the same number
    {"Amax"sv, kExact, kExact},
    {"Amin"sv, kExact, kExact},  // and Aminmax
    {"MaxBackward"sv, kExact, kExact},
    {"MinBackward"sv, kExact, kExact},
    {"Median"sv, kExact, kExact},
    {"Nanmedian"sv, kExact, kExact},
    {"Maximum"sv, kExact, kExact, kPasses},
    {"Minimum"sv, kExact, kExact, kPasses},
    {"Fmax"sv, kExact, kExact},
    {"Fmin"sv, kExact, kExact},
    {"IndexReduce"sv, kExact, kExact},
    {"ScatterReduce"sv, kExact, kExact},
    {"SegmentReduce"sv, kExact, kExact},
    // comparisons with a threshold: noise near it picks the wrong slope. (The result of ReLU is
    // not here: the codec keeps zeros zero and positive values positive.)
    {"LeakyRelu"sv, kNone, kEight},
    {"Prelu"sv, kNone, kEight},
    {"AbsBackward"sv, kNone, kExact, kPasses},  // its slope jumps by 2
    // (before a pole, which a cut keeps away from: at the cut the slope is the steepest)
    {"Clamp"sv, kNone, kEight, kSavesInput},
    {"Hardtanh"sv, kNone, kEight, kPasses},
    {"Hardswish"sv, kNone, kEight},
    {"Hardshrink"sv, kNone, kEight},
    {"Softshrink"sv, kNone, kEight},
    {"Threshold"sv, kNone, kEight, kPasses},
    {"Rrelu"sv, kNone, kEight},
    {"SmoothL1Loss"sv, kNone, kEight},
    {"HuberLoss"sv, kNone, kEight},
    // coordinates: an error is another pixel
    {"GridSampler"sv, kExact, kExact},
    {"CudnnGridSampler"sv, kExact, kExact},
    {"DeformConv2d"sv, kExact, kExact},  // torchvision's
    // a graph of TorchScript's: whatever operators it is of
    {"DifferentiableGraph"sv, kNone, kExact},
    // periods: an error is an angle, and networks of sines work with arguments of thirty and
    // more
    {"SinBackward"sv, kNone, kEight, kSavesInput},
    {"CosBackward"sv, kNone, kEight, kSavesInput},
    // poles and branch points: a value restored a little closer to them is a gradient far off
    {"DivBackward"sv, kExact, kExact, kPasses},
    {"Addcdiv"sv, kExact, kExact},
    {"Copysign"sv, kExact, kExact},
    {"Sqrt"sv, kPole, kPole, kPasses},
    {"Rsqrt"sv, kPole, kPole, kPasses},
    {"Reciprocal"sv, kPole, kPole, kPasses},
    {"LogSigmoid"sv},
    {"LogBackward"sv, kPole, kPole, kPasses},
    {"Log1PBackward"sv, kPole, kPole, kPasses},
    {"Log"sv, kPole, kPole},  // Log2, Log10, LogNdtr, Logit
    {"Xlogy"sv, kPole, kPole},
    {"SpecialXlog1Py"sv, kExact, kPole},
    // x^n with a number n: saving_node.h looks at n; the usual 2 and 3 are polynomials. With n
    // a tensor (PowBackward1): exact.
    {"ForeachPow"sv, kPole, kPole},
    {"PowBackward0"sv, kNone, kNone, kSavesInput},
    {"Pow"sv, kPole, kPole},
    {"FloatPower"sv, kPole, kPole},
    {"Norm"sv, kExact, kExact},
    {"Dist"sv, kExact, kExact},
    {"EuclideanDist"sv, kExact, kExact},
    {"Cdist"sv, kExact, kExact},
    {"Pdist"sv, kExact, kExact},
    {"Renorm"sv, kExact, kExact},
    {"WeightNorm"sv, kExact, kExact},
    {"Prod"sv, kExact, kExact},
    {"Cumprod"sv, kExact, kExact},
    {"Atan2"sv, kExact, kExact},
    {"Hypot"sv, kExact, kExact},
    {"Acos"sv, kPole, kPole},  // Acos, Acosh
    {"Asin"sv, kPole, kPole},
    {"Atanh"sv, kPole, kPole},
    {"Erfinv"sv, kPole, kPole},
    {"Lgamma"sv, kExact, kExact},
    {"Digamma"sv, kExact, kExact},
    {"Polygamma"sv, kExact, kExact},
    {"Mvlgamma"sv, kExact, kExact},
    {"Igamma"sv, kExact, kExact},
    {"Special"sv, kExact, kExact},
    {"I0"sv, kExact, kExact},
    {"Sinc"sv, kExact, kExact},
    {"StandardGamma"sv, kExact, kExact},
    {"DirichletGrad"sv, kExact, kExact},
    {"StdBackward"sv, kExact, kExact},
    {"StdMean"sv, kExact, kExact},
    {"Ldexp"sv, kExact, kExact},
    {"Fmod"sv, kExact, kExact},
    {"Remainder"sv, kExact, kExact},
    // polynomials of their result, and gentle functions
    {"TanhBackward"sv, kNone, kNone, kSavesResult},
    {"Sigmoid"sv, kNone, kNone, kSavesResult},
    {"ErfBackward"sv, kNone, kNone, kSavesInput, kBearsNoise},
    {"ErfcBackward"sv, kNone, kNone, kSavesInput},
    {"GeluBackward0"sv, kNone, kNone, kEnds, kRecomputable},
    {"SiluBackward0"sv, kNone, kNone, kEnds, kRecomputable},
    {"ReluBackward"sv, kNone, kNone, kPasses},
    // sums
    {"AddBackward"sv, kNone, kNone, kPasses},
    {"SubBackward"sv, kNone, kNone, kPasses},
    {"RsubBackward"sv, kNone, kNone, kPasses},
    {"NegBackward"sv, kNone, kNone, kPasses},
    {"LerpBackward0"sv, kNone, kNone, kPasses},
    {"CumsumBackward"sv, kNone, kNone, kPasses},
    {"SumBackward"sv, kNone, kNone, kSums},
    {"MeanBackward"sv, kNone, kNone, kAverages},
    {"AvgPool"sv, kNone, kNone, kAverages},
    {"VarBackward"sv, kNone, kNone, kVariance},
    {"VarMeanBackward"sv, kNone, kNone, kVariance},
    // products
    {"MulBackward"sv, kNone, kNone, kSavesFactors, kBearsNoise},
    {"AddcmulBackward"sv, kNone, kNone, kSavesFactors},
    {"LerpBackward1"sv, kNone, kNone, kSavesFactors},
    {"MmBackward"sv, kNone, kNone, kMixes, kBearsNoise},
    {"MvBackward"sv, kNone, kNone, kMixes, kBearsNoise},
    {"BmmBackward"sv, kNone, kNone, kMixes, kBearsNoise},
    {"AddmmBackward"sv, kNone, kNone, kEnds, kBearsNoise},
    {"BaddbmmBackward"sv, kNone, kNone, kEnds, kBearsNoise},
    {"AddmvBackward"sv, kNone, kNone, kEnds, kBearsNoise},
    {"DotBackward"sv, kNone, kNone, kEnds, kBearsNoise},
    {"Convolution"sv, kNone, kNone, kEnds, kBearsNoise},
    // normalisations
    {"NativeLayerNorm"sv, kNone, kNone, kEnds, kBearsNoise, Rows::kLastDimension},
    {"FusedRmsNorm"sv, kNone, kNone, kEnds, kBearsNoise, Rows::kLastDimension},
    {"NativeBatchNorm"sv, kNone, kNone, kEnds, kBearsNoise, Rows::kPlanes},
    {"NativeGroupNorm"sv, kNone, kNone, kEnds, kBearsNoise, Rows::kSamples},
    {"CudnnBatchNorm"sv, kNone, kNone, kEnds, 0, Rows::kPlanes},
    {"MiopenBatchNorm"sv, kNone, kNone, kEnds, 0, Rows::kPlanes},
    // which elements there are, and where
    {"NanToNum"sv, kNone, kNone, kPasses},
    {"IndexBackward"sv, kNone, kNone, kPasses},
    {"IndexSelect"sv, kNone, kNone, kPasses},
    {"GatherBackward"sv, kNone, kNone, kPasses},
    {"TakeBackward"sv, kNone, kNone, kPasses},
    {"TakeAlongDim"sv, kNone, kNone, kPasses},
    {"WhereBackward"sv, kNone, kNone, kPasses},
    {"MaskedFill"sv, kNone, kNone, kPasses},
    {"MaskedSelect"sv, kNone, kNone, kPasses},
    {"CatBackward"sv, kNone, kNone, kPasses},
    {"StackBackward"sv, kNone, kNone, kPasses},
    {"FlipBackward"sv, kNone, kNone, kPasses},
    {"RollBackward"sv, kNone, kNone, kPasses},
    {"RepeatBackward"sv, kNone, kNone, kPasses},
    {"ConstantPadNd"sv, kNone, kNone, kPasses},
    {"SortBackward"sv, kNone, kNone, kPasses},
    {"TopkBackward"sv, kNone, kNone, kPasses},
    {"ScatterBackward"sv, kNone, kNone, kPasses},
    {"ScatterAdd"sv, kNone, kNone, kPasses},
    {"IndexPut"sv, kNone, kNone, kPasses},
    {"IndexAdd"sv, kNone, kNone, kPasses},
    {"IndexFill"sv, kNone, kNone, kPasses},
    {"IndexCopy"sv, kNone, kNone, kPasses},
    {"UnfoldBackward"sv, kNone, kNone, kPasses},
    {"CopySlices"sv, kNone, kNone, kPasses},
    {"MaxPool"sv, kNone, kNone, kPasses},
    {"DiagonalBackward"sv, kNone, kNone, kPasses},
    {"TrilBackward"sv, kNone, kNone, kPasses},
    {"TriuBackward"sv, kNone, kNone, kPasses},
    // views and casts
    {"TBackward"sv, kNone, kNone, kPasses, kView},
    {"TransposeBackward"sv, kNone, kNone, kPasses, kView},
    {"ViewBackward"sv, kNone, kNone, kPasses, kView},
    {"PermuteBackward"sv, kNone, kNone, kPasses, kView},
    {"ReshapeAlias"sv, kNone, kNone, kPasses, kView},
    {"UnsqueezeBackward"sv, kNone, kNone, kPasses, kView},
    {"SqueezeBackward"sv, kNone, kNone, kPasses, kView},
    {"AliasBackward"sv, kNone, kNone, kPasses, kView},
    {"UnsafeViewBackward"sv, kNone, kNone, kPasses, kPassesParameter},
    {"ToCopyBackward"sv, kNone, kNone, kPasses, kPassesParameter},
    {"ExpandBackward"sv, kNone, kNone, kPasses, kPassesParameter},
    {"SliceBackward"sv, kNone, kNone, kPasses, kPassesParameter},
    {"SelectBackward"sv, kNone, kNone, kPasses, kPassesParameter},
    {"AsStridedBackward"sv, kNone, kNone, kPasses, kPassesParameter},
    {"CloneBackward"sv, kNone, kNone, kPasses, kPassesParameter},
    {"SplitBackward"sv, kNone, kNone, kPasses, kPassesParameter},
    {"SplitWithSizes"sv, kNone, kNone, kPasses, kPassesParameter},
    {"UnbindBackward"sv, kNone, kNone, kPasses, kPassesParameter},
    {"DetachBackward"sv, kNone, kNone, kPasses, kPassesParameter},
    {"ConjBackward"sv, kNone, kNone, kPasses, kPassesParameter},
    {"NumpyTBackward"sv, kNone, kNone, kPasses, kPassesParameter},
    {"NarrowBackward"sv, kNone, kNone, kPasses, kPassesParameter},
    {"MovedimBackward"sv, kNone, kNone, kPasses, kPassesParameter},
    {"SwapdimsBackward"sv, kNone, kNone, kPasses, kPassesParameter},
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

}  // namespace

OperatorRow operator_row(std::string_view node) noexcept {
  constexpr std::string_view kForeach = "Foreach";
  std::string_view single = node;
  single.remove_prefix(node.starts_with(kForeach) ? kForeach.size() : 0);
  for (const OperatorRow& row : kOperators) {
    if (node.starts_with(row.node)) {
      return row;
    }
    if (single.starts_with(row.node)) {
      return {row.node, row.as_producer, row.as_consumer};
    }
  }
  return {};
}

PleatGradient formula_of(std::string_view node) noexcept {
  for (const NamedFormula& formula : kFormulas) {
    if (node == formula.name) {
      return formula.gradient;
    }
  }
  return PLEAT_GRADIENTS;
}

std::span<const OperatorRow> operator_rows() noexcept { return kOperators; }

}  // namespace pleat::bridge
