// Width assignment: against every possible assignment, and properties that hold for any.
#include "sensitivity/assign.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "sensitivity/bits.h"
#include "tests/sensitivity/test_support.h"

namespace pleat::sensitivity {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The error of a width relative to 4 bits, from its step.
double error_of(unsigned width) {
  return width == 0 ? 0 : 225 / std::pow(std::pow(2.0, width) - 1, 2);
}

// A unit of float32 elements, with 8 bytes of metadata for 256 of them.
Unit float_unit(std::uint64_t key, std::uint64_t elements, double noise) {
  Unit unit;
  unit.key = key;
  for (const unsigned width : {1u, 2u, 3u, 4u, 6u, 8u}) {
    unit.costs.push_back(
        {static_cast<std::uint8_t>(width), elements * width / 8 + elements / 32, error_of(width)});
  }
  unit.costs.push_back({0, 4 * elements, 0});
  unit.measurements = {{1, noise}};
  return unit;
}

Profile profile_of(std::vector<Unit> units) {
  Profile profile;
  profile.units = std::move(units);
  return profile;
}

unsigned width_of(const Assignment& assignment, std::uint64_t key) {
  for (const Assignment::Choice& choice : assignment.choices) {
    if (choice.key == key) {
      return choice.width;
    }
  }
  return 99;
}

const WidthCost& exactly(const Unit& unit, unsigned width) {
  return *std::ranges::find(unit.costs, width, &WidthCost::width);
}

// For any request: widths are allowed, and sums equal the sums of the choices.
void expect_sound(const Profile& profile, const Assignment& assignment) {
  std::uint64_t bytes = 0;
  double noise = 0;
  std::size_t next = 0;
  for (const Unit& unit : profile.units) {
    if (!unit.fixed.empty() || unit.costs.empty()) {
      continue;
    }
    ASSERT_LT(next, assignment.choices.size());
    const Assignment::Choice& choice = assignment.choices[next++];
    EXPECT_EQ(choice.key, unit.key) << "in the profile's order";
    EXPECT_TRUE(choice.width == 0 || choice.width >= unit.floor);
    const WidthCost& cost = exactly(unit, choice.width);
    ASSERT_EQ(cost.width, choice.width);
    bytes += cost.bytes;
    if (!unit.distrusted && !unit.measurements.empty()) {
      noise += cost.error == 0 ? 0 : unit.noise() * cost.error;
    }
  }
  EXPECT_EQ(next, assignment.choices.size());
  EXPECT_EQ(assignment.bytes, bytes);
  EXPECT_NEAR(assignment.noise, noise, 1e-9 * noise);
  EXPECT_LE(assignment.least_noise, assignment.noise);
  EXPECT_EQ(assignment.fits, assignment.bytes <= assignment.budget);
}

// The least noise of all assignments within `bytes`; infinite if none fits.
double exhaustive(const Profile& profile, std::uint64_t bytes, std::size_t from = 0) {
  if (from == profile.units.size()) {
    return 0;
  }
  const Unit& unit = profile.units[from];
  double best = kInfinity;
  for (const WidthCost& cost : unit.costs) {
    if ((cost.width == 0 || cost.width >= unit.floor) && cost.bytes <= bytes) {
      best = std::min(
          best, unit.noise() * cost.error + exhaustive(profile, bytes - cost.bytes, from + 1));
    }
  }
  return best;
}

// Units of all sizes and noises. Sizes and errors deviate from the theory, so that hulls have
// dents; with floors and missing candidates.
Profile random_profile(std::mt19937_64& random, std::size_t units) {
  std::uniform_real_distribution<double> unit_interval(0, 1);
  Profile profile;
  for (std::uint64_t key = 1; key <= units; ++key) {
    Unit unit = float_unit(key, 256 + random() % 20'000, std::pow(10, -5 * unit_interval(random)));
    for (WidthCost& cost : unit.costs) {
      cost.bytes += random() % (cost.bytes / 4);
      cost.error *= 0.6 + 0.8 * unit_interval(random);
    }
    std::erase_if(unit.costs,
                  [&](const WidthCost& cost) { return cost.width != 0 && random() % 5 == 0; });
    unit.floor = std::array<std::uint8_t, 4>{1, 1, 2, 4}[random() % 4];
    profile.units.push_back(unit);
  }
  return profile;
}

// Two units of one size: the objective decides which of them gets more bits.
TEST(AssignTest, ObjectiveSelectsTheNoiseThatCounts) {
  Profile profile;
  for (std::uint64_t key : {1, 2}) {
    profile.units.push_back(float_unit(key, 10'000, 1));
  }
  profile.units[0].measurements = {{10, 1e-2, 1e-6}};
  profile.units[1].measurements = {{10, 1e-6, 1e-2}};
  const auto widths = [&](Objective objective) {
    profile.objective = objective;
    const Assignment assignment = assign(profile, 4);
    return std::pair{assignment.choices[0].width, assignment.choices[1].width};
  };
  const auto [loud, quiet] = widths(Objective::kGradient);
  EXPECT_GT(loud, quiet);
  EXPECT_EQ(widths(Objective::kUpdate), (std::pair{quiet, loud}));
}

TEST(AssignTest, NoiseOfTheUpdateKeepsTheUniformWidthForASmallGain) {
  for (const double ratio : {1.5, 1e4}) {
    Profile profile;
    profile.objective = Objective::kUpdate;
    profile.units = {float_unit(1, 10'000, 1), float_unit(2, 10'000, 1)};
    profile.units[0].measurements = {{10, 0.5, 1e-3}};
    profile.units[1].measurements = {{10, 0.5, 1e-3 / ratio}};
    const Assignment assignment = assign(profile, 4);
    const bool is_uniform = assignment.choices[0].width == 4 && assignment.choices[1].width == 4;
    EXPECT_EQ(is_uniform, ratio < 2) << ratio;
  }
}

TEST(AssignTest, IsCloseToTheBestOfAllAssignments) {
  PLEAT_SEED(seed);
  std::mt19937_64 random(seed);
  int cases = 0;
  int best = 0;
  double logarithms = 0;
  for (int round = 0; round < 400; ++round) {
    const Profile profile = random_profile(random, 3 + random() % 3);
    const double bits = std::array{1.0, 1.5, 2.0, 3.0, 3.3, 4.0, 6.0, 8.0}[random() % 8];
    const Assignment assignment = assign(profile, bits);
    expect_sound(profile, assignment);
    const UniformCost uniform = uniform_cost(profile, bits);
    EXPECT_EQ(assignment.budget, uniform.bytes);
    const double optimum = exhaustive(profile, assignment.budget);
    EXPECT_EQ(assignment.fits, optimum < kInfinity);
    if (!assignment.fits) {
      continue;
    }
    EXPECT_LE(assignment.least_noise, optimum * (1 + 1e-9));
    EXPECT_LE(assignment.noise, uniform_cost(profile, uniform_width(bits)).noise * (1 + 1e-9));
    double largest = 0;  // cost of one unit: the gap is below one unit's step
    for (const Unit& unit : profile.units) {
      largest = std::max(largest, unit.noise() * unit.cost_at(unit.floor).error * 1.5);
    }
    EXPECT_LE(assignment.noise, optimum + largest);
    ++cases;
    best += assignment.noise <= optimum * (1 + 1e-9) ? 1 : 0;
    logarithms += std::log(std::max(assignment.noise, 1e-9) / std::max(optimum, 1e-9));
  }
  EXPECT_GT(cases, 300);
  EXPECT_GT(best, cases * 4 / 5);
  EXPECT_LT(std::exp(logarithms / cases), 1.1);
}

// The fewest bytes of all assignments with no more noise.
std::uint64_t fewest_bytes(const Profile& profile, double most_noise, std::size_t from = 0) {
  constexpr std::uint64_t kNone = std::numeric_limits<std::uint64_t>::max() / 2;
  if (from == profile.units.size()) {
    return most_noise >= 0 ? 0 : kNone;
  }
  const Unit& unit = profile.units[from];
  std::uint64_t fewest = kNone;
  for (const WidthCost& cost : unit.costs) {
    const double noise = unit.noise() * cost.error;
    if ((cost.width == 0 || cost.width >= unit.floor) && noise <= most_noise) {
      fewest = std::min(fewest, cost.bytes + fewest_bytes(profile, most_noise - noise, from + 1));
    }
  }
  return fewest;
}

TEST(AssignTest, NoiseAboveTheCeilingIsNeverAssigned) {
  PLEAT_SEED(seed);
  std::mt19937_64 random(seed);
  int fitting = 0;
  int close = 0;
  for (int round = 0; round < 400; ++round) {
    const Profile profile = random_profile(random, 3 + random() % 3);
    const UniformCost uniform = uniform_cost(profile, 4);
    const std::uint64_t bytes = random() % (2 * uniform.bytes);
    const double ceiling = uniform.noise * std::pow(10, static_cast<double>(random() % 300) / 100);
    const Assignment assignment = assign_bytes(profile, 4, bytes, ceiling);
    expect_sound(profile, assignment);
    EXPECT_LE(assignment.noise, ceiling * (1 + 1e-9));
    const std::uint64_t fewest = fewest_bytes(profile, ceiling);
    if (assignment.fits) {
      ++fitting;
      EXPECT_LE(fewest, bytes);
      continue;
    }
    EXPECT_TRUE(assign_bytes(profile, 4, assignment.bytes, ceiling).fits);
    std::uint64_t largest = 0;  // the greedy is above the best by less than one unit's step
    for (const Unit& unit : profile.units) {
      largest = std::max(largest, unit.costs.back().bytes);
    }
    EXPECT_LT(assignment.bytes, fewest + largest);
    close += assignment.bytes <= fewest + fewest / 4 ? 1 : 0;
  }
  EXPECT_GT(fitting, 50);
  EXPECT_GT(close, (400 - fitting) / 2);
}

TEST(AssignTest, TheCeilingIsThirtyPercentOrTwiceTheUniformNoise) {
  EXPECT_DOUBLE_EQ(noise_ceiling(0.01, {}), 0.09);
  EXPECT_DOUBLE_EQ(noise_ceiling(0.04, {}), 0.16);
  EXPECT_DOUBLE_EQ(noise_ceiling(0.04, 50), 0.25);
  EXPECT_DOUBLE_EQ(noise_ceiling(0.04, 10), 0.04) << "the uniform width is always allowed";
}

// The first unit saves more per byte, the second more in total; there is room for one.
TEST(AssignTest, StepThatDoesNotFitCanReplaceOneThatDid) {
  Profile profile;
  for (const auto& [key, noise, wider] : {std::tuple{1, 10.0, 200}, std::tuple{2, 17.0, 290}}) {
    Unit unit = float_unit(std::uint64_t(key), 1000, noise);
    unit.costs = {{2, 100, 1}, {4, std::uint64_t(wider), 0.01}, {0, 4000, 0}};
    profile.units.push_back(unit);
  }
  const Assignment assignment = assign_bytes(profile, 2, 390);
  EXPECT_EQ(assignment.choices[0].width, 2);
  EXPECT_EQ(assignment.choices[1].width, 4);
  EXPECT_EQ(assignment.noise, exhaustive(profile, 390));
}

TEST(AssignTest, BytesAreNeverMoreThanAskedFor) {
  PLEAT_SEED(seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 200; ++round) {
    const Profile profile = random_profile(random, 1 + random() % 20);
    const std::uint64_t least = assign_bytes(profile, 4, 0).bytes;
    const std::uint64_t most = uniform_cost(profile, 8).bytes * 2;
    for (const std::uint64_t bytes :
         {std::uint64_t{0}, least - 1, least, least + random() % most}) {
      const Assignment assignment = assign_bytes(profile, 4, bytes);
      expect_sound(profile, assignment);
      EXPECT_EQ(assignment.budget, bytes);
      EXPECT_EQ(assignment.fits, bytes >= least);
    }
  }
}

TEST(AssignTest, MoreBytesNeverMakeTheBoundWorse) {
  PLEAT_SEED(seed);
  std::mt19937_64 random(seed);
  const Profile profile = random_profile(random, 50);
  double before = kInfinity;
  for (double bits = 1; bits <= 8; bits += 0.125) {
    const Assignment assignment = assign(profile, bits);
    EXPECT_LE(assignment.least_noise, before * (1 + 1e-9)) << bits;
    before = assignment.fits ? assignment.least_noise : before;
  }
}

TEST(AssignTest, NoisyUnitGetsTheBitsOfTheQuietOne) {
  const Profile profile = profile_of({float_unit(1, 10'000, 1e-1), float_unit(2, 10'000, 1e-6)});
  const Assignment assignment = assign(profile, 4);
  EXPECT_EQ(width_of(assignment, 1), 6u) << "8 and 1 bit would be more bytes than 4 and 4";
  EXPECT_EQ(width_of(assignment, 2), 2u);
  const Assignment more = assign(profile, 5);
  EXPECT_EQ(width_of(more, 1), 8u);
  EXPECT_EQ(width_of(more, 2), 2u);
}

TEST(AssignTest, ManyUnitsReachTheBound) {
  PLEAT_SEED(seed);
  std::mt19937_64 random(seed);
  const Profile profile = random_profile(random, 10'000);
  const Assignment assignment = assign(profile, 4);
  expect_sound(profile, assignment);
  EXPECT_TRUE(assignment.fits);
  EXPECT_LT(assignment.noise, assignment.least_noise * 1.001);
  EXPECT_GT(assignment.bytes, assignment.budget - 20'000);
}

TEST(AssignTest, UnmeasuredUnitsKeepTheUniformWidth) {
  Unit unknown = float_unit(2, 10'000, 0);
  unknown.measurements.clear();
  Unit distrusted = float_unit(3, 10'000, 1e-9);
  distrusted.distrusted = true;
  distrusted.floor = 4;
  Unit endless = float_unit(4, 10'000, kInfinity);
  Unit fixed = float_unit(5, 10'000, 1e-3);
  fixed.fixed = "mask";
  const Unit without_costs = testing::plain_unit(6, {{1, 1}});
  const Profile profile =
      profile_of({float_unit(1, 10'000, 1e-3), unknown, distrusted, endless, fixed, without_costs});
  for (const double bits : {3.0, 3.5}) {
    const Assignment assignment = assign(profile, bits);
    ASSERT_EQ(assignment.choices.size(), 4u);
    EXPECT_EQ(width_of(assignment, 1), 3u) << "what the others do not use is not for it";
    EXPECT_EQ(width_of(assignment, 2), 3u);
    EXPECT_EQ(width_of(assignment, 3), 4u) << "its floor";
    EXPECT_EQ(width_of(assignment, 4), 3u);
    EXPECT_DOUBLE_EQ(assignment.noise, 1e-3 * error_of(3));
  }
  const Assignment tight = assign_bytes(profile, 4, 1000);
  EXPECT_FALSE(tight.fits);
  EXPECT_EQ(width_of(tight, 2), 4u);
  EXPECT_EQ(width_of(tight, 1), 1u);
}

TEST(AssignTest, UnitsWithoutNoiseGetTheirFloor) {
  Unit floored = float_unit(2, 10'000, 0);
  floored.floor = 3;
  Unit cheap = float_unit(3, 10'000, 0);
  cheap.costs.back().bytes = cheap.costs.front().bytes;
  const Profile profile =
      profile_of({float_unit(1, 10'000, 0), floored, cheap, float_unit(4, 10'000, 1e-200)});
  const Assignment assignment = assign(profile, 4);
  EXPECT_EQ(width_of(assignment, 1), 1u);
  EXPECT_EQ(width_of(assignment, 2), 3u);
  EXPECT_EQ(width_of(assignment, 3), 0u) << "exact for no more bytes";
  EXPECT_EQ(width_of(assignment, 4), 8u) << "the others leave it room";
  EXPECT_LE(assignment.noise, 1e-199);
}

TEST(AssignTest, RemainingBytesGoToCandidatesAboveTheHull) {
  Unit unit = float_unit(1, 800, 1);
  unit.costs = {{1, 100, 225}, {2, 200, 220}, {3, 300, 1}, {0, 3200, 0}};  // 2 is above the hull
  EXPECT_EQ(width_of(assign_bytes(profile_of({unit}), 4, 250), 1), 2u);
  EXPECT_EQ(width_of(assign_bytes(profile_of({unit}), 4, 300), 1), 3u);
  EXPECT_EQ(width_of(assign_bytes(profile_of({unit}), 4, 199), 1), 1u);
}

TEST(AssignTest, UniformWidthIsTakenIfItIsBetter) {
  // Per byte the first is the better choice, and then the second does not fit.
  Unit small = float_unit(1, 0, 1);
  small.costs = {{1, 10, 12}, {4, 20, 1}, {8, 60, 0.5}, {0, 1000, 0}};
  Unit large = float_unit(2, 0, 1);
  large.costs = {{1, 10, 100}, {4, 110, 1}, {8, 200, 0.5}, {0, 1000, 0}};
  small.costs[1].bytes = 15;
  const Profile profile = profile_of({small, large});
  const Assignment assignment = assign(profile, 4);
  EXPECT_LE(assignment.noise, uniform_cost(profile, 4).noise);
  EXPECT_EQ(assignment.budget, 125u);

  // 8 bits of the first save most by the byte and leave too little for 4 bits of the second.
  small.costs = {{1, 10, 1000}, {4, 60, 900}, {8, 70, 1}, {0, 1000, 0}};
  large.costs = {{1, 10, 9000}, {4, 810, 1}, {8, 1600, 0.5}, {0, 10'000, 0}};
  const Profile tight = profile_of({small, large});
  const Assignment uniform = assign(tight, 4);
  EXPECT_EQ(width_of(uniform, 1), 4u);
  EXPECT_EQ(width_of(uniform, 2), 4u);
  EXPECT_DOUBLE_EQ(uniform.noise, 901);
  EXPECT_LT(uniform.least_noise, 901);
}

TEST(AssignTest, ProfileWithoutUnitsTakesNoBytes) {
  const Assignment assignment = assign(Profile{}, 4);
  EXPECT_TRUE(assignment.choices.empty());
  EXPECT_TRUE(assignment.fits);
  EXPECT_EQ(assignment.bytes, 0u);
  EXPECT_EQ(assignment.noise, 0);
}

TEST(AssignTest, UniformCostsAreLinearBetweenWidths) {
  Unit floored = float_unit(2, 1000, 1e-2);
  floored.floor = 4;
  const Profile profile = profile_of({float_unit(1, 1000, 1e-3), floored});
  const auto bytes = [](unsigned width) { return 1000 * width / 8 + 31; };
  EXPECT_EQ(uniform_cost(profile, 2).bytes, bytes(2) + bytes(4));
  EXPECT_EQ(uniform_cost(profile, 4).bytes, 2 * bytes(4));
  EXPECT_EQ(uniform_cost(profile, 2.25).bytes, 281u + 531 + 125 / 4);
  EXPECT_EQ(uniform_cost(profile, 5).bytes, 2 * bytes(4) + 2 * 250 / 2);
  EXPECT_NEAR(uniform_cost(profile, 2).noise, 1e-3 * 25 + 1e-2, 1e-12);
  EXPECT_NEAR(uniform_cost(profile, 5).noise, 1.1e-2 * (0.5 + 0.5 * 225 / 3969), 1e-12);
  EXPECT_EQ(uniform_cost(profile, 0.5).bytes, uniform_cost(profile, 1).bytes);
  EXPECT_EQ(uniform_cost(profile, 99).bytes, uniform_cost(profile, 8).bytes);
  EXPECT_EQ(uniform_cost(profile, NAN).bytes, uniform_cost(profile, 1).bytes);
}

TEST(AssignTest, EquivalentBitsUndoTheUniformCost) {
  const Profile profile =
      profile_of({float_unit(1, 1'000'000, 1e-3), float_unit(2, 8'000'000, 1e-3)});
  double before = 0;
  for (double bits = 1; bits <= 8; bits += 0.0625) {
    const double equivalent = equivalent_bits(profile, uniform_cost(profile, bits).bytes);
    EXPECT_NEAR(equivalent, bits, 1e-5);
    EXPECT_GT(equivalent, before);
    before = equivalent;
  }
  EXPECT_EQ(equivalent_bits(profile, 0), 1);
  EXPECT_EQ(equivalent_bits(profile, ~std::uint64_t{0}), 8);
  EXPECT_EQ(equivalent_bits(Profile{}, 0), 8);
}

TEST(AssignTest, EquivalentBitsAreTheMostForTheBytes) {
  Unit unit = float_unit(1, 1000, 1);
  unit.floor = 4;
  const std::uint64_t bytes = uniform_cost(profile_of({unit}), 1).bytes;
  EXPECT_EQ(equivalent_bits(profile_of({unit}), bytes), 4);
  EXPECT_EQ(equivalent_bits(profile_of({unit}), bytes - 1), 1);
}

TEST(AssignTest, WidthsAreThoseOfTheCodec) {
  EXPECT_EQ(uniform_width(0), 1u);
  EXPECT_EQ(uniform_width(2.99), 2u);
  EXPECT_EQ(uniform_width(5.9), 4u);
  EXPECT_EQ(uniform_width(7.9), 6u);
  EXPECT_EQ(uniform_width(8), 8u);
  EXPECT_EQ(uniform_width(100), 8u);
}

}  // namespace
}  // namespace pleat::sensitivity
