// Tests sketches of vectors: the properties of any count-sketch.
#include "compress/sketch/sketch.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <set>
#include <span>
#include <vector>

#include "tests/compress/support.h"

namespace pleat::compress::test {
namespace {

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
      (inner(a, a) * inner(b, b) + exact * exact - 2 * inner(products, products)) / kSketchBuckets;
  EXPECT_LT(std::abs(mean), 4 * std::sqrt(variance / kSeeds));
  EXPECT_LT(square, 1.5 * variance);
}

std::vector<float> normal_vector(auto& random, std::size_t size) {
  std::normal_distribution<float> normal;
  std::vector<float> values(size);
  std::ranges::generate(values, [&] { return normal(random); });
  return values;
}

TEST(Sketches, InnerProductsAreRightInTheMean) {
  std::mt19937_64 random(seed());
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
TEST(Sketches, EnergyInOneColumnSpreads) {
  std::mt19937_64 random(seed());
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

TEST(Sketches, SmallVectorsAreTheirOwnSketch) {
  std::vector<double> values(256);
  std::iota(values.begin(), values.end(), -100.5);
  const Sketch sketch = sketch_of(values, 3);
  EXPECT_TRUE(std::ranges::equal(sketch, values));
  const Sketch one = sketch_of(std::vector<float>{7}, 3);
  EXPECT_EQ(one[0], 7);
  EXPECT_EQ(inner(one, one), 49);
}

// Whole numbers, so that no sum is rounded.
TEST(Sketches, CutsMakeNoDifference) {
  std::mt19937_64 random(seed());
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

TEST(Sketches, IsLinearAndAFunctionOfTheSeed) {
  std::mt19937_64 random(seed());
  const std::vector<float> a = normal_vector(random, 3000);
  const std::vector<float> b = normal_vector(random, 3000);
  std::vector<double> both(3000);
  for (std::size_t i = 0; i < both.size(); ++i) {
    both[i] = 2.0 * a[i] - 0.5 * b[i];
  }
  const Sketch sum = sketch_of(both, 4);
  const Sketch of_a = sketch_of(a, 4);
  const Sketch of_b = sketch_of(b, 4);
  for (std::size_t i = 0; i < kSketchBuckets; ++i) {
    EXPECT_NEAR(sum[i], 2 * of_a[i] - 0.5 * of_b[i], 1e-9);
  }
  EXPECT_EQ(sketch_of(a, 4), of_a);
  EXPECT_NE(sketch_of(a, 5), of_a);
}

// A vector of ones reaches each bucket in each row once, with either sign.
TEST(Sketches, EveryElementIsInOneBucketWithARandomSign) {
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

TEST(Sketches, WhatIsNotFiniteShows) {
  std::vector<float> values(1000, 1.0F);
  values[700] = NAN;
  const Sketch sketch = sketch_of(values, 1);
  EXPECT_EQ(std::ranges::count_if(sketch, [](double value) { return std::isnan(value); }), 1);
}

}  // namespace
}  // namespace pleat::compress::test
