// GACT's greedy algorithm against a plain implementation of it, and its assignments for a profile.
#include "sensitivity/gact.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "tests/sensitivity/test_support.h"

namespace pleat::sensitivity {
namespace {

TEST(Gact, ShapeIsOneOverTheSquaredLevels) {
  EXPECT_EQ(gact_shape(1), 1);
  EXPECT_DOUBLE_EQ(gact_shape(2), 1.0 / 9);
  EXPECT_DOUBLE_EQ(gact_shape(4), 1.0 / 225);
  EXPECT_DOUBLE_EQ(gact_shape(8), 1.0 / 65025);
  EXPECT_EQ(gact_shape(32), 0);
}

// Round by round, over all tensors.
std::vector<unsigned> by_hand(const std::vector<GactTensor>& tensors, double bits) {
  std::vector<unsigned> found(tensors.size(), 32);
  const auto lower = [](unsigned b) { return b == 32 ? 8 : b / 2; };
  const auto mean_is_above = [&] {
    double sum = 0, elements = 0;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      sum += found[i] * static_cast<double>(tensors[i].elements);
      elements += static_cast<double>(tensors[i].elements);
    }
    return sum > bits * elements;
  };
  while (mean_is_above()) {
    double least = std::numeric_limits<double>::infinity();
    std::size_t chosen = tensors.size();
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (found[i] == 1) {
        continue;
      }
      const double grows =
          tensors[i].sensitivity * (gact_shape(lower(found[i])) - gact_shape(found[i])) /
          (static_cast<double>(tensors[i].elements) * (found[i] - lower(found[i])));
      if (grows <= least) {
        least = grows;
        chosen = i;
      }
    }
    if (chosen == tensors.size()) {
      break;
    }
    found[chosen] = lower(found[chosen]);
  }
  return found;
}

TEST(Gact, GreedyMatchesThePaper) {
  PLEAT_SEED(seed);
  std::mt19937_64 random(seed);
  std::lognormal_distribution<double> sensitivity(0, 4);
  for (int round = 0; round < 200; ++round) {
    std::vector<GactTensor> tensors(1 + random() % 30);
    for (GactTensor& tensor : tensors) {
      tensor = {sensitivity(random), std::uint64_t{1} << (random() % 12)};
    }
    for (const double bits : {1.0, 1.5, 2.0, 3.0, 4.0, 8.0, 32.0}) {
      EXPECT_EQ(gact_bits(tensors, bits), by_hand(tensors, bits)) << bits;
    }
  }
}

// Going from 8 to 4 bits costs 1.107e-3 of c per bit and element, 4 to 2 bits 0.0533: 48 times as
// much.
TEST(Gact, InsensitiveTensorGetsTwoBitsBeforeAnotherGetsFour) {
  const auto widths = [](double smaller) {
    // The first goes 32, 8, 4, the second 32, 8, 4, 2 or stays.
    return gact_bits(std::vector<GactTensor>{{1, 100}, {smaller, 100}}, 5);
  };
  EXPECT_EQ(widths(1 / 47.0), (std::vector<unsigned>{4, 4}));
  EXPECT_EQ(widths(1 / 49.0), (std::vector<unsigned>{8, 2}));
}

TEST(Gact, LastOfEqualTensorsIsReducedFirst) {
  EXPECT_EQ(gact_bits(std::vector<GactTensor>{{1, 10}, {1, 10}}, 6), (std::vector<unsigned>{8, 4}));
}

TEST(Gact, TensorsWithoutElementsTakeNoPart) {
  EXPECT_EQ(gact_bits(std::vector<GactTensor>{{1, 0}, {1, 10}}, 1), (std::vector<unsigned>{32, 1}));
  EXPECT_TRUE(gact_bits({}, 4).empty());
}

Unit unit_of(std::uint64_t key, double noise, const char* type, std::uint64_t bytes) {
  Unit unit = testing::plain_unit(key, {{10, noise}});
  unit.type = type;
  unit.bytes = bytes;
  unit.costs = {{1, 110, 200}, {2, 210, 20}, {4, 410, 1}, {8, 810, 0.004}, {0, 3200, 0}};
  return unit;
}

TEST(Gact, FloorsAndCandidatesOfAProfileHold) {
  Profile profile;
  profile.units = {unit_of(1, 1e-6, "float32", 400), unit_of(2, 1e-6, "float32", 400),
                   unit_of(3, 1, "bfloat16", 200), unit_of(4, 1e-6, "float32", 400),
                   unit_of(5, 1, "float32", 400)};
  profile.units[1].floor = 8;
  profile.units[3].measurements = {};  // keeps the uniform width
  profile.units[4].fixed = "mask";
  const Assignment found = assign_by_gact(profile, 3.5);
  ASSERT_EQ(found.choices.size(), 4u);
  // Among the three measured units, 8, 1 and 1 bits are 3.33 on average.
  EXPECT_EQ(found.choices[0].width, 1);
  EXPECT_EQ(found.choices[1].width, 8);
  EXPECT_EQ(found.choices[2].width, 8);
  EXPECT_EQ(found.choices[3].width, 4);
  EXPECT_EQ(found.bytes, 110u + 810u + 810u + 410u);
  EXPECT_DOUBLE_EQ(found.noise, 1e-6 * 200 + 1e-6 * 0.004 + 0.004);
}

}  // namespace
}  // namespace pleat::sensitivity
