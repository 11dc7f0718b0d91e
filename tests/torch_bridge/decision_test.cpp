#include "torch_bridge/core/decision.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>
#include <vector>

namespace pleat::bridge {
namespace {

using allocator::Start;
using compress::ElementType;
using compress::block::Kept;
using compress::block::Look;
using compress::block::Steps;

Decision four_bits() {
  Decision decision = Decision::ask(ElementType::kFloat32, Why::kBits, 4);
  decision.choice.lines = {Look::kParts, 512};
  decision.whole = true;
  return decision;
}

Decision released(const Decision& decision, const Decision* argument = nullptr) {
  return decision.released(Start::kRelease, /*proven=*/true, argument);
}

// "bits:4 pole:0"
std::string trail_of(const Decision& decision) {
  std::string trail;
  for (const Decision::Step& step : decision.trail()) {
    trail += (trail.empty() ? "" : " ") + step_text(step.why, step.width);
  }
  return trail;
}

// ---- the release --------------------------------------------------------------------------------

TEST(Decision, WhatMayBearNoiseIsStoredAsItsSavesChose) {
  const Decision decision = released(four_bits());
  EXPECT_EQ(decision.stored(), four_bits().choice);
  EXPECT_EQ(decision.when, Start::kRelease);
  EXPECT_FALSE(decision.may_be_recomputed);
}

TEST(Decision, WhateverTheReasonWhatIsExactBearsNoNoise) {
  for (std::size_t i = 1; i < static_cast<std::size_t>(Exactness::kCount); ++i) {
    Decision decision = four_bits();
    decision.choice.steps = Steps::kExponent;
    decision.choice.near_zero = true;
    const auto why = static_cast<Exactness>(i);
    decision = released(decision.exact(why));
    EXPECT_EQ(decision.stored(), compress::block::lossless(ElementType::kFloat32))
        << exactness_name(why);
    EXPECT_EQ(decision.width(), 0) << exactness_name(why);
    EXPECT_EQ(trail_of(decision), "bits:4 " + std::string(exactness_name(why)) + ":0");
  }
}

TEST(Decision, WhatIsExactAlreadyStaysExact) {
  Decision decision;
  decision.choice = compress::block::lossless(ElementType::kBFloat16);
  EXPECT_EQ(released(decision).stored(), decision.choice);
  EXPECT_EQ(released(decision.exact(Exactness::kPole)).stored(), decision.choice);
}

TEST(Decision, WithoutAProofTheStartOfItsEncodeIsTheReason) {
  const auto at = [](Start start, Exactness known) {
    return trail_of(four_bits().exact(known).released(start, /*proven=*/false, nullptr));
  };
  EXPECT_EQ(at(Start::kForwardEnd, Exactness::kMayBearNoise), "bits:4 no_proof:0");
  EXPECT_EQ(at(Start::kShortage, Exactness::kMayBearNoise), "bits:4 no_room:0");
  EXPECT_EQ(at(Start::kShortage, Exactness::kRule), "bits:4 rule:0");
}

TEST(Decision, AnExactKeyIsExactUnlessAPassMeasures) {
  const Decision asked = Decision::ask(ElementType::kFloat32, Why::kBudget, 0);
  const Decision decision = released(asked.raised(Why::kOwnOperator, 8));
  EXPECT_EQ(trail_of(decision), "budget:0 assigned:0");
  EXPECT_EQ(decision.stored().bits, 0);
  EXPECT_TRUE(decision.may_be_noisy());
  EXPECT_EQ(decision.choice.bits, 8);
  const Decision shape = released(asked.keeping(Why::kShape, Kept::kNothing));
  EXPECT_EQ(shape.stored().kept, Kept::kValues);
  EXPECT_FALSE(shape.may_be_noisy());
}

TEST(Decision, AResultIsRecomputedOnlyFromAnArgumentThatIsAsGood) {
  struct Case {
    std::string what;
    bool recomputed;
    std::function<void(Decision& own, Decision& argument)> change;
  };
  const Case cases[] = {
      {"alike", true, [](auto&, auto&) {}},
      {"argument exact", true, [](auto&, auto& argument) { argument.choice.bits = 0; }},
      {"argument of 8 bits", true, [](auto&, auto& argument) { argument.choice.bits = 8; }},
      {"argument of 3 bits", false, [](auto&, auto& argument) { argument.choice.bits = 3; }},
      {"argument of another type", false,
       [](auto&, auto& argument) { argument.choice.type = ElementType::kBFloat16; }},
      {"a part of the argument", false, [](auto&, auto& argument) { argument.whole = false; }},
      {"a part of the result", false, [](auto& own, auto&) { own.whole = false; }},
      {"written to", false, [](auto& own, auto&) { own.written = true; }},
      {"exact by choice", false, [](auto& own, auto&) { own.choice.bits = 0; }},
      {"exact for want of a proof", false,
       [](auto& own, auto&) { own = own.exact(Exactness::kNoProof); }},
      {"exact before a pole", false, [](auto& own, auto&) { own = own.exact(Exactness::kPole); }},
      {"rows looked at", false, [](auto& own, auto&) { own.choice.lines.look = Look::kRows; }},
      {"an exponent", false, [](auto& own, auto&) { own.choice.steps = Steps::kExponent; }},
  };
  for (const Case& c : cases) {
    Decision own = four_bits();
    Decision argument = own;
    c.change(own, argument);
    argument = released(argument);
    EXPECT_EQ(released(own, &argument).may_be_recomputed, c.recomputed) << c.what;
  }
}

// ---- the trail ----------------------------------------------------------------------------------

TEST(Decision, EachReasonHasItsOwnNameAndWords) {
  std::set<std::string_view> names, words;
  for (std::size_t i = 0; i < static_cast<std::size_t>(Why::kCount); ++i) {
    const auto why = static_cast<Why>(i);
    EXPECT_EQ(why_named(name_of(why)), why);
    EXPECT_EQ(name_of(why).find_first_of(" :"), std::string_view::npos) << name_of(why);
    EXPECT_TRUE(names.insert(name_of(why)).second) << name_of(why);
    EXPECT_TRUE(!kWhyTexts[i].words.empty() && words.insert(kWhyTexts[i].words).second)
        << name_of(why);
  }
  EXPECT_EQ(why_named("?"), Why::kCount);
}

TEST(Decision, EachChangeIsAStep) {
  const Decision asked = Decision::ask(ElementType::kFloat32, Why::kProfile, 3);
  const Decision floor = asked.raised(Why::kAttention, 8);
  EXPECT_EQ(trail_of(asked), "profile:3") << "a change returns a new decision";
  EXPECT_EQ(trail_of(floor), "profile:3 attention:8");
  EXPECT_EQ(floor.raised(Why::kExponential, 8).trail().size(), 2u) << "it had as many";
  EXPECT_EQ(floor.exact(Exactness::kPole).exact(Exactness::kRule).exactness, Exactness::kPole);
  EXPECT_EQ(trail_of(asked.keeping(Why::kShape, Kept::kNothing)), "shape:0");
}

TEST(Decision, ThePayloadsWidthIsTheLastStep) {
  Decision curved = four_bits();
  curved.choice.steps = Steps::kCurved;
  Decision exponent = four_bits();
  exponent.choice.steps = Steps::kExponent;
  EXPECT_EQ(trail_of(released(curved).encoded(4, false)), "bits:4");
  EXPECT_EQ(trail_of(released(curved).encoded(8, false)), "bits:4 wide_steps:8");
  EXPECT_EQ(trail_of(released(exponent).encoded(8, false)), "bits:4 wide_exponents:8");
  EXPECT_EQ(trail_of(released(four_bits()).encoded(0, false)), "bits:4 values:0");
  EXPECT_EQ(trail_of(released(four_bits()).encoded(8, true).encoded(8, true)), "bits:4 lesson:8");
  EXPECT_EQ(released(curved).encoded(8, false).choice.bits, 4) << "as it was asked for";
  const Decision exact = released(four_bits().exact(Exactness::kPole));
  EXPECT_EQ(trail_of(exact.encoded(8, false)), "bits:4 pole:0");
}

TEST(Decision, ATrailOfNineSaysThatItLeavesStepsOut) {
  Decision decision;
  std::string expected;
  for (std::uint8_t width = 1; width <= 9; ++width) {
    decision = decision.with(Why::kProfile, width);
    if (width <= 6) expected += "profile:" + std::to_string(width) + ' ';
  }
  EXPECT_EQ(trail_of(decision), expected + "left_out:8 profile:9");
  EXPECT_EQ(trail_of(decision.exact(Exactness::kPole)), expected + "left_out:9 pole:0");
}

// ---- several saves ------------------------------------------------------------------------------

TEST(Decision, TheMoreCarefulOfTwoSavesHasTheTrail) {
  const Decision none = [] {
    Decision decision;
    decision.choice = {.type = ElementType::kFloat32, .kept = Kept::kNothing};
    return decision;
  }();
  const Decision asked = four_bits();
  const std::vector<Decision> by_care{
      none,
      asked.keeping(Why::kShape, Kept::kNothing),
      asked.keeping(Why::kSides, Kept::kSides, {compress::Sides::Kind::kOpen, false, 0, 0}),
      asked,
      asked.raised(Why::kOwnOperator, 8),
      asked.exact(Exactness::kPole),
  };
  for (std::size_t less = 0; less < by_care.size(); ++less) {
    for (std::size_t more = less; more < by_care.size(); ++more) {
      for (const bool swapped : {false, true}) {
        const Decision& a = by_care[swapped ? more : less];
        const Decision& b = by_care[swapped ? less : more];
        const Decision merged = a.merged(b);
        EXPECT_EQ(merged.choice, merge(a.choice, b.choice));
        EXPECT_EQ(trail_of(merged), trail_of(by_care[more])) << less << ' ' << more;
        EXPECT_EQ(merged.exactness, by_care[more].exactness);
      }
    }
  }
}

TEST(Decision, SavesThatDisagreeAreExact) {
  const Decision merged =
      four_bits().merged(Decision::ask(ElementType::kBFloat16, Why::kProfile, 3));
  EXPECT_EQ(merged.choice, compress::block::lossless(ElementType::kBytes));
  EXPECT_EQ(trail_of(merged), "bits:4 several_saves:0");
}

}  // namespace
}  // namespace pleat::bridge
