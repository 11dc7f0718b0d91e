// Tests the results of a check, with gradients whose errors are given.
#include "torch_bridge/measure/book/check_book.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace pleat::bridge {
namespace {

using Json = nlohmann::json;

// Of a gradient of norm 10, with errors in parts of it.
GradientErrors errors(double noisy, double yardstick = 0, double repeated = 0) {
  return {100, 100 * noisy * noisy, 100 * yardstick * yardstick, 100 * repeated * repeated};
}

TEST(CheckBookTest, ASurpriseIsWellAboveTheYardstickAndAFifthOfTheNorm) {
  constexpr double kLargest = 100;
  EXPECT_EQ(judge(errors(0), kLargest, 4), Verdict::kGood);
  EXPECT_EQ(judge(errors(0.19), kLargest, 4), Verdict::kGood);
  EXPECT_EQ(judge(errors(0.21), kLargest, 4), Verdict::kSurprise);
  EXPECT_EQ(judge(errors(0.4, 0.12), kLargest, 4), Verdict::kGood);
  EXPECT_EQ(judge(errors(0.4, 0.11), kLargest, 4), Verdict::kSurprise);
  EXPECT_EQ(judge(errors(0.6, 0.3), kLargest, 4), Verdict::kSurprise)
      << "more than half of the norm";
  EXPECT_EQ(judge(errors(0.6, 0.55), kLargest, 4), Verdict::kSurprise)
      << "of whatever the yardstick";
}

TEST(CheckBookTest, AtFewerBitsTheBarsGrowAsTheStepsDo) {
  EXPECT_EQ(judge(errors(0.9), 100, 2), Verdict::kGood);  // 15 / 3 times as wide: a bar of 1
  EXPECT_EQ(judge(errors(1.1), 100, 2), Verdict::kSurprise);
  EXPECT_EQ(judge(errors(0.21), 100, 8), Verdict::kSurprise);
  EXPECT_EQ(judge(errors(0.21), 100, 0), Verdict::kSurprise) << "lossless";
}

TEST(CheckBookTest, WhatIsSmallUnsteadyOrNoNumberIsNotTakenForGood) {
  EXPECT_EQ(judge(errors(5), 100 * 1.1e6, 4), Verdict::kSmall);
  EXPECT_EQ(judge(errors(5), 100 * 0.9e6, 4), Verdict::kSurprise);
  EXPECT_EQ(judge(errors(0, 0, 0.01), 100, 4), Verdict::kUnsteady);
  EXPECT_EQ(judge(errors(NAN), 100, 4), Verdict::kSurprise);
  EXPECT_EQ(judge(errors(std::numeric_limits<double>::infinity()), 100, 4), Verdict::kSurprise);
}

TEST(CheckBookTest, PassesAddUpAndTheLastOneEndsTheWatch) {
  CheckBook book;
  EXPECT_FALSE(book.watching());
  EXPECT_FALSE(book.begin_look());
  book.ask(2, "");
  ASSERT_TRUE(book.watching());
  ASSERT_TRUE(book.begin_look());
  EXPECT_FALSE(book.begin_look()) << "one thread at a time";
  const int leaf = 0;
  const std::vector<CheckBook::Parameter> first{{&leaf, "weight [2]", errors(0.1)}};
  // Of other leaves there may be several with one name, and each step has others.
  std::vector<CheckBook::Parameter> second{
      {&leaf, "weight [2]", errors(0.3)}, {nullptr, "[3]", errors(0)}, {nullptr, "[3]", errors(0)}};
  book.add_pass(first, 4);
  book.end_look();
  EXPECT_TRUE(Json::parse(book.json())["parameters"][0]["batch"].is_null()) << "no pass before";
  ASSERT_TRUE(book.begin_look());
  second[0].errors.batch = 49;  // of gradients of norm 10
  second[0].errors.pairs = 1;
  book.add_pass(second, 4);
  book.end_look();
  EXPECT_FALSE(book.watching());
  const Json json = Json::parse(book.json());
  EXPECT_EQ(json["passes"], 2);
  ASSERT_EQ(json["parameters"].size(), 3u);
  const Json& weight = json["parameters"][0];
  EXPECT_EQ(weight["passes"], 2);
  EXPECT_NEAR(weight["norm"], 10, 1e-4);
  EXPECT_NEAR(weight["error"], std::sqrt((0.01 + 0.09) / 2), 1e-5);
  EXPECT_NEAR(weight["batch"], 0.7, 1e-5);
  EXPECT_EQ(weight["verdict"], "surprise");
}

TEST(CheckBookTest, AGradientThatIsNotFiniteIsNotAddedUp) {
  CheckBook book;
  book.ask(3, "");
  const int leaf = 0;
  GradientErrors overflow = errors(0);
  overflow.gradient = std::numeric_limits<double>::infinity();
  book.add_pass(std::vector<CheckBook::Parameter>{{&leaf, "weight", overflow}}, 4);
  EXPECT_EQ(Json::parse(book.json())["parameters"][0]["verdict"], "not_finite");
  book.add_pass(std::vector<CheckBook::Parameter>{{&leaf, "weight", errors(0.1)}}, 4);
  EXPECT_EQ(Json::parse(book.json())["parameters"][0]["verdict"], "good");
}

TEST(CheckBookTest, PlacesAreCountedByReasonWhateverTheyAreCalled) {
  CheckBook book;
  book.add_exactness(Exactness::kPole, 0, 100);  // nobody watches
  book.ask(1, "");
  const std::uint32_t place = book.place("a \"file\"\n.py:3");
  EXPECT_EQ(book.place("a \"file\"\n.py:3"), place);
  EXPECT_NE(book.place("b.py:3"), place);
  book.add_exactness(Exactness::kPole, place, 10);
  book.add_exactness(Exactness::kPole, place, 20);
  book.add_exactness(Exactness::kNoProof, place, 1);
  const Json json = Json::parse(book.json());
  ASSERT_EQ(json["saved"].size(), 2u);
  EXPECT_EQ(json["saved"][0]["place"], "a \"file\"\n.py:3");
  EXPECT_EQ(json["saved"][0]["bytes"], 30);
  EXPECT_EQ(json["saved"][0]["storages"], 2);
  EXPECT_EQ(json["saved"][1]["why"], "no_proof");
}

TEST(CheckBookTest, EachPassAndAnEndBeforeTheLastWriteALine) {
  const std::filesystem::path file =
      std::filesystem::path(::testing::TempDir()) / "check_book_test.json";
  std::filesystem::remove(file);
  {
    CheckBook book;
    book.ask(3, file.string());
    book.add_refusal("create_graph");
    book.add_refusal("create_graph");
    book.add_pass({}, 4);
    book.finish();
    EXPECT_FALSE(book.watching());
  }
  std::ifstream stream(file);
  std::vector<Json> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(Json::parse(line));
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[2]["passes"], 1);
  EXPECT_EQ(lines[2]["refused"][0]["why"], "create_graph");
  EXPECT_EQ(lines[2]["refused"][0]["passes"], 2);
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace pleat::bridge
