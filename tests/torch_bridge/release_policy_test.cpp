#include "torch_bridge/core/release_policy.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

namespace pleat::bridge {
namespace {

using compress::ElementType;
using compress::block::Look;
using compress::block::Steps;

constexpr CodecChoice kFourBits{
    .type = ElementType::kFloat32, .bits = 4, .lines = {Look::kZeroRows, 512}};

TEST(ReleasePolicy, WithoutLessonsWhatWasChosenAtTheSavesStands) {
  const ReleaseDecision decision = decide_at_release({.choice = kFourBits, .whole = true}, nullptr);
  EXPECT_EQ(decision.choice, kFourBits);
  EXPECT_FALSE(decision.may_be_recomputed);
}

TEST(ReleasePolicy, ALessonMakesItExact) {
  for (const Care care : {Care::kExact, Care::kPole}) {
    EXPECT_EQ(decide_at_release({.choice = kFourBits, .taught = care}, nullptr).choice.bits, 0);
  }
  EXPECT_EQ(decide_at_release({.choice = kFourBits, .taught = Care::kEight}, nullptr).choice.bits,
            4);
}

TEST(ReleasePolicy, ALessonOfRowsHasAllRowsLookedAtAndNotOnlyThoseOfZeros) {
  const Needs rows(Care::kNone, Rows::kLastDimension);
  EXPECT_EQ(decide_at_release({.choice = kFourBits, .taught = rows}, nullptr).choice.lines.look,
            Look::kRows);
  CodecChoice columns = kFourBits;
  columns.lines.look = Look::kColumns;
  EXPECT_EQ(decide_at_release({.choice = columns, .taught = rows}, nullptr).choice, columns);
}

TEST(ReleasePolicy, WhatIsExactAlreadyStaysAsItIs) {
  const CodecChoice exact{
      .type = ElementType::kFloat32, .bits = 0, .lines = {Look::kZeroRows, 512}};
  const Needs all(Care::kPole, Rows::kSamples);
  EXPECT_EQ(decide_at_release({.choice = exact, .taught = all}, nullptr).choice, exact);
}

TEST(ReleasePolicy, AResultIsRecomputedOnlyFromAnArgumentThatIsAsGood) {
  struct Case {
    std::string what;
    bool recomputed;
    std::function<void(ReleasedStorage& released, ReleasedStorage& argument)> change;
  };
  const Case cases[] = {
      {"alike", true, [](auto&, auto&) {}},
      {"argument exact", true, [](auto&, auto& argument) { argument.choice.bits = 0; }},
      {"argument of 8 bits", true, [](auto&, auto& argument) { argument.choice.bits = 8; }},
      {"argument of 3 bits", false, [](auto&, auto& argument) { argument.choice.bits = 3; }},
      {"argument of another type", false,
       [](auto&, auto& argument) { argument.choice.type = ElementType::kBFloat16; }},
      {"a part of the argument", false, [](auto&, auto& argument) { argument.whole = false; }},
      {"a part of the result", false, [](auto& released, auto&) { released.whole = false; }},
      {"written to", false, [](auto& released, auto&) { released.written = true; }},
      {"exact by choice", false, [](auto& released, auto&) { released.choice.bits = 0; }},
      {"exact by a lesson", false, [](auto& released, auto&) { released.taught = Care::kPole; }},
      {"rows by a lesson", false,
       [](auto& released, auto&) { released.taught.rows = Rows::kLastDimension; }},
      {"an exponent", false,
       [](auto& released, auto&) { released.choice.steps = Steps::kExponent; }},
  };
  for (const Case& c : cases) {
    ReleasedStorage released{.choice = kFourBits, .whole = true};
    ReleasedStorage argument = released;
    c.change(released, argument);
    EXPECT_EQ(decide_at_release(released, &argument).may_be_recomputed, c.recomputed) << c.what;
  }
}

}  // namespace
}  // namespace pleat::bridge
