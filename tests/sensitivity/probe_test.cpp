// Designs of passes, and sketches of what they find.
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

TEST(ProbeDesign, TheFirstStageHasRandomSignsAndHalfTheNoise) {
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
  // The same on every platform; worked out once more in Python.
  const std::vector<std::int8_t> signs = first_stage(5, 3, 1).signs;
  EXPECT_EQ(signs, (std::vector<std::int8_t>{-1, -1, 1, 1, 1, -1, 1, 1, -1, -1, 1, -1, 1, -1, 1}));
}

// Of each unit its signs relative to that of the first pass: two units that agree in these cannot
// be told apart.
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

TEST(ProbeDesign, TheSecondStageEvensTheUnitsOut) {
  const std::vector<double> energies{4, 1, 16, 0, 1e-9, 4e6};
  const Stage stage = second_stage(energies, 7, 5);
  EXPECT_EQ(stage.passes(), 7u);
  ASSERT_EQ(stage.amplitudes.size(), 6u);  // the median of those above zero is 4
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

// ---- sketches ----

template <typename T>
Sketch sketch_of(const std::vector<T>& values, std::uint64_t seed) {
  Sketch sketch{};
  add_to_sketch(std::span<const T>(values), 0, values.size(), seed, sketch);
  return sketch;
}

double inner(const auto& a, const auto& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  }
  return sum;
}

// The mean of the sketches' inner products is that of the vectors, and their variance at most that
// of a count-sketch: (|a|^2 |b|^2 + (a b)^2 - 2 sum of a_i^2 b_i^2) / 256 (Charikar et al. 2002).
void expect_sketches_hold(const std::vector<float>& a, const std::vector<float>& b) {
  constexpr int kSeeds = 400;
  double mean = 0;
  double square = 0;
  const double exact = inner(a, b);
  for (int seed = 0; seed < kSeeds; ++seed) {
    const double error = inner(sketch_of(a, static_cast<std::uint64_t>(seed)),
                               sketch_of(b, static_cast<std::uint64_t>(seed))) -
                         exact;
    mean += error / kSeeds;
    square += error * error / kSeeds;
  }
  std::vector<double> products;
  for (std::size_t i = 0; i < a.size(); ++i) {
    products.push_back(static_cast<double>(a[i]) * b[i]);
  }
  const double variance =
      (inner(a, a) * inner(b, b) + exact * exact - 2 * inner(products, products)) / kSketch;
  EXPECT_LT(std::abs(mean), 4 * std::sqrt(variance / kSeeds));
  EXPECT_LT(square, 1.5 * variance);
}

std::vector<float> normal_vector(std::mt19937_64& random, std::size_t size) {
  std::normal_distribution<float> normal;
  std::vector<float> values(size);
  std::ranges::generate(values, [&] { return normal(random); });
  return values;
}

TEST(ProbeSketch, InnerProductsAreRightInTheMean) {
  PLEAT_SEED(seed);
  std::mt19937_64 random(seed);
  const std::vector<float> a = normal_vector(random, 5000);
  std::vector<float> b = normal_vector(random, 5000);
  expect_sketches_hold(a, a);
  expect_sketches_hold(a, b);
  for (std::size_t i = 0; i < b.size(); ++i) {
    b[i] += a[i];
  }
  expect_sketches_hold(a, b);
}

// Columns of a matrix that is 256, 128, 512 or 257 wide; and what is the same in all elements.
TEST(ProbeSketch, EnergyInOneColumnSpreads) {
  PLEAT_SEED(seed);
  std::mt19937_64 random(seed);
  for (const std::size_t width : {256u, 128u, 512u, 257u, 1u}) {
    std::vector<float> a(6400);
    std::vector<float> b(6400);
    for (std::size_t i = width / 3; i < a.size(); i += width) {
      a[i] = 1 + static_cast<float>(random() % 3);
      b[i] = 1;
    }
    expect_sketches_hold(a, a);
    expect_sketches_hold(a, b);
  }
}

TEST(ProbeSketch, SmallVectorsAreTheirOwnSketch) {
  std::vector<double> values(256);
  std::iota(values.begin(), values.end(), -100.5);
  const Sketch sketch = sketch_of(values, 3);
  EXPECT_TRUE(std::ranges::equal(sketch, values));
  const Sketch one = sketch_of(std::vector<float>{7}, 3);
  EXPECT_EQ(one[0], 7);
  EXPECT_EQ(inner(one, one), 49);
}

// Whole numbers, so that no sum is rounded.
TEST(ProbeSketch, CutsMakeNoDifference) {
  PLEAT_SEED(seed);
  std::mt19937_64 random(seed);
  for (const std::size_t size : {200u, 256u, 257u, 1000u, 10'000u}) {
    std::vector<float> values(size);
    std::ranges::generate(values, [&] { return static_cast<float>(random() % 1000) - 500; });
    const Sketch whole = sketch_of(values, 9);
    for (int round = 0; round < 10; ++round) {
      Sketch cut{};
      for (std::size_t first = 0; first < size;) {
        const std::size_t count = std::min<std::size_t>(size - first, random() % 700);
        add_to_sketch(std::span<const float>(values).subspan(first, count), first, size, 9, cut);
        first += count;
      }
      EXPECT_EQ(cut, whole) << size;
    }
    EXPECT_EQ(sketch_of(std::vector<double>(values.begin(), values.end()), 9), whole);
  }
}

TEST(ProbeSketch, IsLinearAndAFunctionOfTheSeed) {
  PLEAT_SEED(seed);
  std::mt19937_64 random(seed);
  const std::vector<float> a = normal_vector(random, 3000);
  const std::vector<float> b = normal_vector(random, 3000);
  std::vector<double> both(3000);
  for (std::size_t i = 0; i < both.size(); ++i) {
    both[i] = 2.0 * a[i] - 0.5 * b[i];
  }
  const Sketch sum = sketch_of(both, 4);
  const Sketch of_a = sketch_of(a, 4);
  const Sketch of_b = sketch_of(b, 4);
  for (std::size_t i = 0; i < kSketch; ++i) {
    EXPECT_NEAR(sum[i], 2 * of_a[i] - 0.5 * of_b[i], 1e-9);
  }
  EXPECT_EQ(sketch_of(a, 4), of_a);
  EXPECT_NE(sketch_of(a, 5), of_a);
}

// A vector of ones reaches each bucket in each row once, with either sign.
TEST(ProbeSketch, EveryElementIsInOneBucketWithARandomSign) {
  constexpr std::size_t kSize = 256 * 256;
  std::vector<float> values(kSize);
  std::set<std::size_t> buckets;
  int signs = 0;
  for (std::size_t row = 0; row < 256; ++row) {
    values[row * 256 + 17] = 1;
    const Sketch sketch = sketch_of(values, 1);
    values[row * 256 + 17] = 0;
    const auto hit = std::ranges::find_if(sketch, [](double value) { return value != 0; });
    ASSERT_NE(hit, sketch.end());
    EXPECT_EQ(inner(sketch, sketch), 1);
    buckets.insert(static_cast<std::size_t>(hit - sketch.begin()));
    signs += *hit > 0 ? 1 : -1;
  }
  EXPECT_GT(buckets.size(), 130u);  // 162 in the mean
  EXPECT_LT(std::abs(signs), 80);
}

TEST(ProbeSketch, WhatIsNotFiniteShows) {
  std::vector<float> values(1000, 1.0F);
  values[700] = NAN;
  const Sketch sketch = sketch_of(values, 1);
  EXPECT_EQ(std::ranges::count_if(sketch, [](double value) { return std::isnan(value); }), 1);
}

}  // namespace
}  // namespace pleat::sensitivity
