#include "torch_bridge/policy/operator_table.h"

#include <gtest/gtest.h>

namespace pleat::bridge {
namespace {

TEST(OperatorTable, EachRowIsTheFirstThatFitsItsOwnName) {
  ASSERT_GT(operator_rows().size(), 150u);
  for (const OperatorRow& row : operator_rows()) {
    EXPECT_EQ(operator_row(row.node).node, row.node) << "hidden behind an earlier row";
  }
}

TEST(OperatorTable, NamesThatBeginAlikeAreNotTakenForEachOther) {
  const auto care = [](const char* node) { return operator_row(node).as_consumer; };
  EXPECT_EQ(care("LogBackward0"), Care::kPole);  // d/dx is 1 / x
  EXPECT_EQ(care("LogitBackward0"), Care::kPole);
  EXPECT_EQ(care("LogSoftmaxBackward0"), Care::kEight);
  EXPECT_EQ(care("LogSigmoidBackward0"), Care::kNone);  // a slope between 0 and 1
  EXPECT_EQ(care("PowBackward0"), Care::kNone);         // by a number, which is looked at
  EXPECT_EQ(care("PowBackward1"), Care::kPole);
  EXPECT_EQ(care("MaxBackward1"), Care::kExact);
  EXPECT_EQ(care("MaxPool2DWithIndicesBackward0"), Care::kNone);
  EXPECT_EQ(care("BinaryCrossEntropyBackward0"), Care::kPole);  // of probabilities
  EXPECT_EQ(care("BinaryCrossEntropyWithLogitsBackward0"), Care::kEight);
  EXPECT_EQ(care("SpecialXlog1PyBackward0"), Care::kPole);
  EXPECT_EQ(care("SpecialEntrBackward0"), Care::kExact);
  EXPECT_EQ(care("StdBackward0"), Care::kExact);
  EXPECT_EQ(care("StackBackward0"), Care::kNone);
  EXPECT_EQ(care("SinBackward0"), Care::kEight);
  EXPECT_EQ(care("SincBackward0"), Care::kExact);
}

TEST(OperatorTable, OfAListOfTensorsOnlyTheCareIsItsOperators) {
  const OperatorRow one = operator_row("ExpBackward0");
  const OperatorRow list = operator_row("ForeachExpBackward0");
  EXPECT_EQ(one.before_pole, BeforePole::kSavesResult);
  EXPECT_EQ(list.before_pole, BeforePole::kEnds);
  EXPECT_EQ(list.as_producer, Care::kEight);
  EXPECT_EQ(list.as_consumer, Care::kEight);
  EXPECT_EQ(operator_row("ForeachMulBackward1").traits, 0);
  EXPECT_NE(operator_row("MulBackward0").traits & kBearsNoise, 0);
}

TEST(OperatorTable, AnUnknownNodeAsksForNothing) {
  const OperatorRow row = operator_row("SomebodysOwnFunctionBackward");
  EXPECT_TRUE(row.node.empty());
  EXPECT_EQ(row.as_producer, Care::kNone);
  EXPECT_EQ(row.as_consumer, Care::kNone);
  EXPECT_EQ(row.before_pole, BeforePole::kEnds);
  EXPECT_EQ(row.rows, Rows::kNone);
  EXPECT_EQ(row.traits, 0);
}

TEST(OperatorTable, OnlyNodesThatRunAFormulaOnceHaveIt) {
  EXPECT_EQ(formula_of("GeluBackward0"), PLEAT_GELU_BACKWARD);
  EXPECT_EQ(formula_of("GeluBackwardBackward0"), PLEAT_GRADIENTS);
  EXPECT_EQ(formula_of("MulBackward0"), PLEAT_MUL);
  EXPECT_EQ(formula_of("MulBackward1"), PLEAT_GRADIENTS);
}

}  // namespace
}  // namespace pleat::bridge
