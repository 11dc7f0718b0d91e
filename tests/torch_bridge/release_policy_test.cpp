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

TEST(ReleasePolicy, WhatMayBearNoiseIsStoredAsItsSavesChose) {
  const ReleaseDecision decision = decide_at_release({.choice = kFourBits, .whole = true}, nullptr);
  EXPECT_EQ(decision.choice, kFourBits);
  EXPECT_FALSE(decision.may_be_recomputed);
}

TEST(ReleasePolicy, WhateverTheReasonWhatIsExactBearsNoNoise) {
  for (std::size_t i = 1; i < static_cast<std::size_t>(Exactness::kCount); ++i) {
    CodecChoice choice = kFourBits;
    choice.steps = Steps::kExponent;
    choice.near_zero = true;
    const auto why = static_cast<Exactness>(i);
    const CodecChoice stored =
        decide_at_release({.choice = choice, .exactness = why}, nullptr).choice;
    EXPECT_EQ(stored, compress::block::lossless(ElementType::kFloat32)) << exactness_name(why);
    EXPECT_EQ(stored.bits, 0) << exactness_name(why);
  }
}

TEST(ReleasePolicy, WhatIsExactAlreadyStaysExact) {
  const CodecChoice exact = compress::block::lossless(ElementType::kBFloat16);
  for (const Exactness why : {Exactness::kMayBearNoise, Exactness::kPole}) {
    EXPECT_EQ(decide_at_release({.choice = exact, .exactness = why}, nullptr).choice, exact);
  }
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
      {"exact for want of a proof", false,
       [](auto& released, auto&) { released.exactness = Exactness::kNoProof; }},
      {"exact before a pole", false,
       [](auto& released, auto&) { released.exactness = Exactness::kPole; }},
      {"rows looked at", false,
       [](auto& released, auto&) { released.choice.lines.look = Look::kRows; }},
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
