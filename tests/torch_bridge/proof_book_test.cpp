// Tests the promises of users about functions, and their rows in the report.
#include "torch_bridge/core/proof_book.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

namespace pleat::bridge {
namespace {

TEST(ProofBook, TrustIsTheMostThatNameOrClassWereGiven) {
  ProofBook book;
  const std::array<int, 2> classes{};
  EXPECT_FALSE(book.trusts_any());
  const std::array<TrustedName, 3> names{{{"A", false}, {"B", true}, {"B", false}}};
  book.trust_names(names);
  book.trust_class(&classes[0], Trust::kPasses);
  EXPECT_TRUE(book.trusts_any());
  EXPECT_EQ(book.trust_in("A", nullptr), Trust::kPasses);
  EXPECT_EQ(book.trust_in("B", &classes[0]), Trust::kCloses);
  EXPECT_EQ(book.trust_in("C", &classes[0]), Trust::kPasses);
  EXPECT_EQ(book.trust_in("C", &classes[1]), Trust::kNone);
  EXPECT_EQ(book.trust_in("a", nullptr), Trust::kNone);
}

TEST(ProofBook, ANameIsThatOfTheClassOrOfItsNodes) {
  ProofBook book;
  const std::array<TrustedName, 2> names{{{"ScaleBackward", false}, {"Backward", false}}};
  book.trust_names(names);
  EXPECT_EQ(book.trust_in("Scale", nullptr), Trust::kPasses);
  EXPECT_EQ(book.trust_in("ScaleBackward", nullptr), Trust::kPasses);
  EXPECT_EQ(book.trust_in("Backward", nullptr), Trust::kPasses);
  EXPECT_EQ(book.trust_in("", nullptr), Trust::kNone);
}

TEST(ProofBook, NamesTakeThePlaceOfEarlierOnesAndClassesStay) {
  ProofBook book;
  const int a_class = 0;
  book.trust_names(std::array<TrustedName, 1>{{{"A", false}}});
  book.trust_class(&a_class, Trust::kCloses);
  book.trust_names({});
  EXPECT_EQ(book.trust_in("A", nullptr), Trust::kNone);
  EXPECT_EQ(book.trust_in("A", &a_class), Trust::kCloses);
  EXPECT_TRUE(book.trusts_any());
}

TEST(ProofBook, CostsAreTheLargestFirstAndWithoutThoseThatCostNothing) {
  ProofBook book;
  book.find("saves", true)->saved_bytes += 10;
  book.find("hides", false)->behind_bytes += 30;
  book.find("both", true)->saved_bytes += 20;
  book.find("both", true)->behind_bytes += 5;
  EXPECT_NE(book.find("nothing", true), nullptr);
  const auto costs = book.costs();
  ASSERT_EQ(costs.size(), 3u);
  EXPECT_EQ(costs[0].name, "hides");
  EXPECT_FALSE(costs[0].may_be_trusted);
  EXPECT_EQ(costs[1].name, "both");
  EXPECT_EQ(costs[1].saved_bytes, 20u);
  EXPECT_EQ(costs[1].behind_bytes, 5u);
  EXPECT_EQ(costs[2].name, "saves");
}

TEST(ProofBook, OneNameTooManyIsNotCountedAndThoseKnownStillAre) {
  ProofBook book;
  std::size_t known = 0;
  while (book.find("f" + std::to_string(known), true) != nullptr) {
    ASSERT_LT(++known, 100000u);
  }
  EXPECT_GT(known, 100u);
  EXPECT_NE(book.find("f0", true), nullptr);
  for (std::size_t i = 0; i < 100000; ++i) {
    book.add_late_pole("log", std::to_string(i));
  }
  book.add_late_pole("log", "0");
  const auto late = book.late_poles();
  EXPECT_LT(late.size(), 1000u);
  EXPECT_EQ(late[0].saver, "0");
  EXPECT_EQ(late[0].number, 2u);
}

}  // namespace
}  // namespace pleat::bridge
