// Designs of passes.
#include "sensitivity/probe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "tests/sensitivity/test_support.h"

namespace pleat::sensitivity {
namespace {

// ---- designs ----

TEST(ProbeDesign, FirstStageHasRandomSignsAndHalfTheNoise) {
  const Stage stage = first_stage(300, 8, 5);
  EXPECT_EQ(stage.passes(), 8u);
  EXPECT_EQ(stage.units, 300u);
  EXPECT_EQ(stage.amplitudes, std::vector<double>(300, 0.5));
  EXPECT_TRUE(std::ranges::all_of(stage.signs, [](std::int8_t s) { return s == 1 || s == -1; }));
  const int sum = std::accumulate(stage.signs.begin(), stage.signs.end(), 0);
  EXPECT_LT(std::abs(sum), 5 * std::sqrt(2400));
}

TEST(ProbeDesign, SignsAreAFunctionOfTheSeed) {
  EXPECT_EQ(first_stage(100, 7, 5).signs, first_stage(100, 7, 5).signs);
  EXPECT_NE(first_stage(100, 7, 5).signs, first_stage(100, 7, 6).signs);
  const std::vector<double> even(100, 1);
  EXPECT_NE(first_stage(100, 7, 5).signs, second_stage(even, 7, 5).signs);
  // The same on every platform; computed independently in Python.
  const std::vector<std::int8_t> signs = first_stage(5, 3, 1).signs;
  EXPECT_EQ(signs, (std::vector<std::int8_t>{-1, -1, 1, 1, 1, -1, 1, 1, -1, -1, 1, -1, 1, -1, 1}));
}

// For each unit, its signs relative to the first pass: two units with equal patterns cannot be
// separated.
std::vector<std::vector<int>> patterns_of(const Stage& stage) {
  std::vector<std::vector<int>> patterns(stage.units);
  for (std::size_t i = 0; i < stage.signs.size(); ++i) {
    patterns[i % stage.units].push_back(stage.signs[i] * stage.signs[i % stage.units]);
  }
  return patterns;
}

TEST(ProbeDesign, UnitsInARowHaveSignsOfTheirOwn) {
  const std::vector<std::vector<int>> few = patterns_of(first_stage(80, 5, 7));
  for (std::size_t block = 0; block < 80; block += 16) {
    const auto begin = few.begin() + static_cast<std::ptrdiff_t>(block);
    EXPECT_EQ(std::set(begin, begin + 16).size(), 16u);
  }
  const std::vector<std::vector<int>> many = patterns_of(first_stage(2000, 12, 7));
  EXPECT_EQ(std::set(many.begin(), many.end()).size(), 2000u);
  for (const std::size_t passes : {40u, 100u}) {  // too many to list
    const std::vector<std::vector<int>> drawn = patterns_of(first_stage(200, passes, 7));
    EXPECT_EQ(std::set(drawn.begin(), drawn.end()).size(), 200u);
  }
  for (const std::size_t passes : {0u, 1u}) {
    EXPECT_EQ(first_stage(10, passes, 7).signs.size(), 10 * passes);
  }
}

TEST(ProbeDesign, SecondStageEqualizesTheUnits) {
  const std::vector<double> energies{4, 1, 16, 0, 1e-9, 4e6};
  const Stage stage = second_stage(energies, 7, 5);
  EXPECT_EQ(stage.passes(), 7u);
  ASSERT_EQ(stage.amplitudes.size(), 6u);  // the median of the positive energies is 4
  const std::vector<double> expected{0.5, 1, 0.25, 1, 1, 0.0005};
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_DOUBLE_EQ(stage.amplitudes[i], expected[i]);
  }
  EXPECT_EQ(second_stage(std::vector<double>(3, 0.0), 7, 5).amplitudes,
            std::vector<double>(3, 1.0));
  EXPECT_DOUBLE_EQ(second_stage(std::vector<double>{1, 4}, 1, 5).amplitudes[0],
                   0.5 * std::sqrt(2.5))
      << "of two the mean";
}

TEST(ProbeDesign, OneByOneDisturbsOneUnitInAPass) {
  const Stage stage = one_by_one(3);
  EXPECT_EQ(stage.passes(), 3u);
  EXPECT_EQ(stage.signs, (std::vector<std::int8_t>{1, 0, 0, 0, 1, 0, 0, 0, 1}));
  EXPECT_EQ(stage.amplitudes, std::vector<double>(3, 1.0));
  EXPECT_EQ(Stage{}.passes(), 0u);
}

}  // namespace
}  // namespace pleat::sensitivity
