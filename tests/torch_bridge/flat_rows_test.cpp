#include "torch_bridge/flat_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "compress/group_math.h"

namespace pleat::bridge {
namespace {

using allocator::ByteRange;
using compress::ElementType;

std::vector<float> noise(std::size_t elements) {
  std::mt19937 generator(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(elements);
  for (float& value : values) {
    value = normal(generator);
  }
  return values;
}

void scale(std::vector<float>& values, std::size_t begin, std::size_t end, float factor) {
  for (std::size_t i = begin; i < end; ++i) {
    values[i] *= factor;
  }
}

std::uint8_t bits(const std::vector<float>& values, std::size_t row, std::uint8_t wanted = 4) {
  return bits_for_rows(values.data(), values.size(), ElementType::kFloat32, row, wanted);
}

std::vector<ByteRange> ranges(const std::vector<float>& values, std::size_t row) {
  return ranges_without_zero_rows(values.data(), values.size(), ElementType::kFloat32, row);
}

TEST(BitsForRows, RowsAlikeKeepTheWidth) {
  for (const std::size_t row : {2, 3, 9, 16, 49, 64, 96, 100, 192, 255, 257, 384, 1000}) {
    EXPECT_EQ(bits(noise(100 * row), row), 4) << row;
  }
}

TEST(BitsForRows, AFlatRowBesideOthersGetsAFinerStepOrExactness) {
  for (const std::size_t row : {16, 64, 96, 384}) {
    for (const std::size_t flat : {0u, 7u, 99u}) {
      auto values = noise(100 * row);
      scale(values, flat * row, (flat + 1) * row, 0.05f);  // a step of 1/15 is more than half its range
      EXPECT_EQ(bits(values, row), 8) << row << " " << flat;
      EXPECT_EQ(bits(values, row, 8), 8);
      scale(values, flat * row, (flat + 1) * row, 0.05f);
      EXPECT_EQ(bits(values, row), 0) << row << " " << flat;
      scale(values, flat * row, (flat + 1) * row, 0);
      EXPECT_EQ(bits(values, row, 8), 0);
    }
  }
}

TEST(BitsForRows, RowsThatFillGroupsOfTheirOwnDisturbNobody) {
  auto values = noise(20 * 512);
  scale(values, 512, 1024, 0);
  EXPECT_EQ(bits(values, 512), 4);
  EXPECT_EQ(bits(values, 256), 4);
  auto others = noise(20 * 384);
  scale(others, 0, 768, 0);  // two rows of 384 are three groups
  EXPECT_EQ(bits(others, 384), 4);
  EXPECT_EQ(bits(std::vector<float>(4096, 0), 64), 4);
}

TEST(BitsForRows, AnElementFarOutIsInEveryRowsRange) {
  auto values = noise(64 * 128);
  for (std::size_t r = 0; r < 64; ++r) {
    values[r * 128 + 100] = 1000;
  }
  EXPECT_EQ(bits(values, 128), 4);
}

TEST(BitsForRows, WhatIsNotFiniteIsTheCodecsToKeep) {
  auto values = noise(4 * 64);
  values[70] = std::numeric_limits<float>::infinity();
  scale(values, 0, 64, 0);
  EXPECT_EQ(bits(values, 64), 4);
}

TEST(BitsForRows, SixteenBitTypesAreReadAsWhatTheyAre) {
  auto values = noise(100 * 64);
  scale(values, 640, 704, 0.02f);
  std::vector<std::uint16_t> half, bfloat;
  for (const float value : values) {
    half.push_back(compress::half_of(value));
    bfloat.push_back(compress::bfloat_of(value));
  }
  const auto at = [](const auto& words, ElementType type) { return bits_for_rows(words.data(), words.size(), type, 64, 4); };
  EXPECT_EQ(at(half, ElementType::kFloat16), 8);
  EXPECT_EQ(at(bfloat, ElementType::kBFloat16), 8);
  EXPECT_EQ(at(half, ElementType::kBytes), 4);
}

TEST(ZeroRows, AreLeftOut) {
  auto values = noise(100 * 64);
  scale(values, 0, 64, 0);
  scale(values, 50 * 64, 60 * 64, 0);
  scale(values, 99 * 64, 100 * 64, 0);
  for (float& value : values) {
    value += 0.0f;  // no negative zeros
  }
  const auto left = ranges(values, 64);
  ASSERT_EQ(left.size(), 2u);
  EXPECT_EQ(left[0].begin, 256u);
  EXPECT_EQ(left[0].end, 50u * 256);
  EXPECT_EQ(left[1].begin, 60u * 256);
  EXPECT_EQ(left[1].end, 99u * 256);
}

TEST(ZeroRows, OfManyRowsARunOfEightIsFoundAndTheLast) {
  auto values = noise(5000 * 64);
  scale(values, 4990 * 64 + 64, 5000 * 64, 0);
  for (float& value : values) {
    value += 0.0f;
  }
  ASSERT_EQ(ranges(values, 64).size(), 1u);
  EXPECT_EQ(ranges(values, 64)[0].end, 4991u * 256);
  auto middle = noise(5000 * 64);
  scale(middle, 1003 * 64, 1011 * 64, 0);
  for (float& value : middle) {
    value += 0.0f;
  }
  EXPECT_EQ(ranges(middle, 64).size(), 2u);
  EXPECT_TRUE(ranges(noise(5000 * 64), 64).empty());
}

TEST(ZeroRows, NoneOrAllOrTooScatteredLeaveAllAsItIs) {
  EXPECT_TRUE(ranges(noise(64 * 64), 64).empty());
  EXPECT_TRUE(ranges(std::vector<float>(64 * 64), 64).empty());
  EXPECT_TRUE(ranges(noise(64 * 64), 63).empty());  // not rows
  auto values = noise(100 * 32);
  for (std::size_t r = 0; r < 100; r += 2) {
    scale(values, r * 32, (r + 1) * 32, 0);
  }
  EXPECT_TRUE(ranges(values, 32).empty());
  auto negative = noise(100 * 64);
  for (std::size_t i = 0; i < 64; ++i) {
    negative[i] = -0.0f;  // would come back as another zero
  }
  EXPECT_TRUE(ranges(negative, 64).empty());
}

}  // namespace
}  // namespace pleat::bridge
