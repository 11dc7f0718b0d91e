#include "torch_bridge/policy/operator_table.h"

#include <gtest/gtest.h>

#include <set>
#include <string_view>

namespace pleat::bridge {
namespace {

constexpr Inputs kOne = 1, kTwo = 2, kThree = 4;

TEST(OperatorTable, NoNameStandsTwiceAndEachRowIsTheFirstThatFitsItsOwn) {
  ASSERT_GT(operator_rows().size(), 150u);
  std::set<std::string_view> names;
  for (const OperatorRow& row : operator_rows()) {
    EXPECT_FALSE(row.node.empty());
    EXPECT_TRUE(names.insert(row.node).second) << row.node << " stands twice";
    EXPECT_EQ(operator_row(row.node).node, row.node) << row.node << " is behind an earlier row";
  }
}

TEST(OperatorTable, RowsAreConsistent) {
  for (const OperatorRow& row : operator_rows()) {
    const bool of_operands = row.path == Path::kContracts || row.saves == Saves::kOperands ||
                             row.saves == Saves::kFactors;
    EXPECT_EQ(row.operands != 0, of_operands) << row.node;
    EXPECT_NE(row.path, Path::kUnknown) << row.node << ": no row says as much";
    const bool lossy = row.saves != Saves::kExact && row.saves != Saves::kShape;
    EXPECT_TRUE(lossy || row.noise == Noise::kBits) << row.node << ": noise in what is exact";
    EXPECT_TRUE(row.rows == Rows::kNone || row.saves == Saves::kInput) << row.node;
    EXPECT_TRUE((row.traits & kAliasesInput) == 0 || (row.traits & kPassesParameter) != 0)
        << row.node << ": a parameter may hide behind every view";
    // A pole: the noise of a saved tensor would be multiplied by what grows without bound. A
    // log-softmax is one by its readers only, which are looked at.
    EXPECT_TRUE(row.path != Path::kOpens || !lossy || row.saves == Saves::kLogProbabilities)
        << row.node;
    EXPECT_TRUE(row.poles == 0 || row.saves == Saves::kExact) << row.node;
  }
}

TEST(OperatorTable, ContractionsSumOverTheirOperandsAndNotOverWhatTheyAdd) {
  struct Case {
    const char* node;
    Inputs operands;
  };
  for (const auto& [node, operands] :
       {Case{"MmBackward0", kOne | kTwo}, Case{"BmmBackward0", kOne | kTwo},
        Case{"MvBackward0", kOne | kTwo}, Case{"DotBackward0", kOne | kTwo},
        Case{"AddmmBackward0", kTwo | kThree}, Case{"BaddbmmBackward0", kTwo | kThree},
        Case{"AddmvBackward0", kTwo | kThree}, Case{"AddrBackward0", kTwo | kThree},
        Case{"ConvolutionBackward0", kOne | kTwo},
        Case{"MkldnnConvolutionBackward0", kOne | kTwo}}) {
    const OperatorRow row = operator_row(node);
    EXPECT_EQ(row.path, Path::kContracts) << node;
    EXPECT_EQ(row.saves, Saves::kOperands) << node;
    EXPECT_EQ(row.operands, operands) << node;
    EXPECT_EQ(row.poles, 0) << node;
  }
  const OperatorRow product = operator_row("MulBackward0");  // sums over nothing
  EXPECT_EQ(product.path, Path::kPasses);
  EXPECT_EQ(product.saves, Saves::kFactors);
  EXPECT_EQ(product.operands, kOne | kTwo);
}

TEST(OperatorTable, NormalisationsCloseAlongTheRowsOfTheirStatistics) {
  struct Case {
    const char* node;
    Path path;
    Rows rows;
  };
  for (const auto& [node, path, rows] :
       {Case{"NativeLayerNormBackward0", Path::kCloses, Rows::kLastDimension},
        Case{"FusedRmsNormBackward0", Path::kCloses, Rows::kLastDimension},
        Case{"NativeGroupNormBackward0", Path::kCloses, Rows::kSamples},
        Case{"NativeBatchNormBackward0", Path::kCloses, Rows::kPlanes},
        Case{"CudnnBatchNormBackward0", Path::kCloses, Rows::kPlanes},
        // with running statistics: no statistics of its input, and linear
        Case{"NativeBatchNormLegitNoTrainingBackward0", Path::kPasses, Rows::kNone}}) {
    const OperatorRow row = operator_row(node);
    EXPECT_EQ(row.path, path) << node;
    EXPECT_EQ(row.saves, Saves::kInput) << node;
    EXPECT_EQ(row.rows, rows) << node;
  }
}

TEST(OperatorTable, PolesOpenAndBearNoNoise) {
  for (const char* const node :
       {"LogBackward0", "Log1PBackward0", "LogitBackward0", "SqrtBackward0", "RsqrtBackward0",
        "ReciprocalBackward0", "PowBackward1", "AcosBackward0", "ProdBackward0",
        "SpecialXlog1PyBackward0", "SpecialEntrBackward0", "SincBackward0", "LinalgInvExBackward0",
        // comparisons for equality
        "MaxBackward1", "AmaxBackward0",
        // losses
        "BinaryCrossEntropyBackward0", "BinaryCrossEntropyWithLogitsBackward0", "MseLossBackward0",
        "SmoothL1LossBackward0", "KlDivBackward0"}) {
    EXPECT_EQ(operator_row(node).path, Path::kOpens) << node;
    EXPECT_EQ(operator_row(node).saves, Saves::kExact) << node;
  }
  // Only by their divisor.
  EXPECT_EQ(operator_row("DivBackward0").poles, kTwo);
  EXPECT_EQ(operator_row("AddcdivBackward0").poles, kThree);
  EXPECT_EQ(operator_row("DivBackward0").path, Path::kPasses);
  // Of log-probabilities a loss takes those of the targets.
  EXPECT_EQ(operator_row("LogSoftmaxBackward0").saves, Saves::kLogProbabilities);
  EXPECT_EQ(operator_row("LogSoftmaxBackward0").noise, Noise::kExponent);
  EXPECT_EQ(operator_row("NllLossBackward0").path, Path::kOpens);
  EXPECT_EQ(operator_row("NllLoss2DBackward0").traits, kAtTarget);
}

TEST(OperatorTable, FactorsAndSolutionsOfLinearAlgebraAreKnownAsSuch) {
  for (const char* const node :
       {"LinalgEighBackward0", "LinalgSvdBackward0", "LinalgCholeskyExBackward0",
        "LinalgSolveExBackward0", "LinalgInvExBackward0", "LinalgSolveTriangularBackward0",
        "CholeskySolveBackward0", "TriangularSolveBackward0", "LuUnpackBackward0"}) {
    EXPECT_EQ(operator_row(node).path, Path::kOpens) << node;
    EXPECT_EQ(operator_row(node).traits, kFactorises) << node;
  }
  EXPECT_EQ(operator_row("LinalgVectorNormBackward0").traits, 0);
}

TEST(OperatorTable, ASumThatErrorsAddUpAlongIsExact) {
  EXPECT_EQ(operator_row("LogcumsumexpBackward0").saves, Saves::kExact);
  EXPECT_EQ(operator_row("LogcumsumexpBackward0").path, Path::kExponential);
}

TEST(OperatorTable, ViewsAndCastsHideParametersButOnlyViewsAreOnTheSameStorage) {
  for (const char* const node : {"TBackward0", "ViewBackward0", "TransposeBackward0",
                                 "PermuteBackward0", "UnsqueezeBackward0", "SqueezeBackward1"}) {
    EXPECT_EQ(operator_row(node).traits, kPassesParameter | kAliasesInput) << node;
    EXPECT_EQ(operator_row(node).path, Path::kPasses) << node;
    EXPECT_EQ(operator_row(node).saves, Saves::kExact) << node;
  }
  for (const char* const node : {"ToCopyBackward0", "CloneBackward0"}) {
    EXPECT_EQ(operator_row(node).traits, kPassesParameter) << node;
  }
  // A gathered row may be anybody's; a copied slice is a computed tensor.
  EXPECT_EQ(operator_row("EmbeddingBackward0").traits, kPicks);
  EXPECT_EQ(operator_row("CatBackward0").traits, 0);
}

TEST(OperatorTable, NamesThatBeginAlikeAreNotTakenForEachOther) {
  const auto path = [](const char* node) { return operator_row(node).path; };
  const auto saves = [](const char* node) { return operator_row(node).saves; };
  EXPECT_EQ(path("LogSigmoidBackward0"), Path::kPasses);  // a slope between 0 and 1
  EXPECT_EQ(path("LogsumexpBackward0"), Path::kExponential);
  EXPECT_EQ(path("PowBackward0"), Path::kPasses);  // by a number, which is looked at
  EXPECT_EQ(saves("ViewBackward0"), Saves::kExact);
  EXPECT_EQ(path("MaxBackward0"), Path::kPasses);  // by the place that it remembers
  EXPECT_EQ(saves("MaxPool2DWithIndicesBackward0"), Saves::kShape);
  EXPECT_EQ(saves("FractionalMaxPool2DBackward0"), Saves::kShape);
  EXPECT_EQ(path("FracBackward0"), Path::kPasses);
  EXPECT_EQ(path("NormalBackward0"), Path::kPasses);  // random numbers
  EXPECT_EQ(saves("NormBackward1"), Saves::kRows);
  EXPECT_EQ(path("StackBackward0"), Path::kPasses);
  EXPECT_EQ(saves("StdBackward0"), Saves::kRows);
  EXPECT_EQ(path("StdMeanBackward0"), Path::kOpens);
  EXPECT_EQ(path("SinBackward0"), Path::kExponential);
  EXPECT_EQ(operator_row("SinBackward0").noise, Noise::kExponent);  // of angles
  EXPECT_EQ(operator_row("ExpBackward0").noise, Noise::kEight);
  EXPECT_EQ(operator_row("GeluBackward0").noise, Noise::kCurved);
  EXPECT_NE(operator_row("GeluBackward0").traits & kRecomputable, 0);
  EXPECT_EQ(saves("ReluBackward0"), Saves::kSides);
}

TEST(OperatorTable, OfWhatWeCannotLookIntoNothingIsLossyAndNoPathLeadsThrough) {
  for (const char* const node :
       {"", "SomebodysOwnFunctionBackward", "torch::autograd::CppNode<Mine>", "ForeachExpBackward0",
        "GeluBackwardBackward0", "Gelu", "AccumulateGrad"}) {
    const OperatorRow row = operator_row(node);
    EXPECT_TRUE(row.node.empty()) << node;
    EXPECT_EQ(row.path, Path::kUnknown) << node;
    EXPECT_EQ(row.saves, Saves::kExact) << node;
    EXPECT_EQ(row.noise, Noise::kBits) << node;
    EXPECT_EQ(row.traits, 0) << node;
    EXPECT_EQ(row.operands, 0) << node;
    EXPECT_EQ(row.poles, 0) << node;
    EXPECT_EQ(row.rows, Rows::kNone) << node;
  }
}

TEST(OperatorTable, OnlyNodesThatRunAFormulaOnceHaveIt) {
  EXPECT_EQ(formula_of("GeluBackward0"), PLEAT_GELU_BACKWARD);
  EXPECT_EQ(formula_of("GeluBackwardBackward0"), PLEAT_GRADIENTS);
  EXPECT_EQ(formula_of("MulBackward0"), PLEAT_MUL);
  EXPECT_EQ(formula_of("MulBackward1"), PLEAT_GRADIENTS);
}

}  // namespace
}  // namespace pleat::bridge
