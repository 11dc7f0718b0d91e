// Energies from sketches of passes with synthetic errors.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "compress/sketch/sketch.h"
#include "sensitivity/assign.h"
#include "sensitivity/probe.h"
#include "tests/sensitivity/optimality.h"
#include "tests/sensitivity/test_support.h"

namespace pleat::sensitivity {
namespace {

using testing::expect_optimal;
using testing::LeastSquares;

// Units disturb all parameters that are read after them, the next ones the most. Energies span four
// decades.
struct Network {
  std::size_t units = 0;
  std::size_t parameters = 0;
  std::vector<std::vector<std::uint32_t>> readers;
  std::vector<std::vector<std::vector<double>>> errors;  // [parameter][reader][element]
  std::vector<double> energies;                          // sum of each unit

  Network(std::mt19937_64& random, std::size_t units_, std::size_t parameters_,
          std::size_t elements)
      : units(units_), parameters(parameters_), energies(units_) {
    std::normal_distribution<double> normal;
    std::uniform_real_distribution<double> decades(-5, -1);
    std::vector<double> levels(units);
    std::ranges::generate(levels, [&] { return std::pow(10, decades(random)); });
    for (std::size_t p = 0; p < parameters; ++p) {
      std::vector<std::uint32_t>& read = readers.emplace_back((p + 1) * units / parameters);
      std::iota(read.begin(), read.end(), 0U);
      std::vector<std::vector<double>>& vectors = errors.emplace_back();
      for (const std::uint32_t unit : read) {
        const double distance =
            static_cast<double>(read.size() - unit) / static_cast<double>(units);
        const double energy = levels[unit] * std::pow(10, normal(random)) * std::exp(-6 * distance);
        std::vector<double>& vector = vectors.emplace_back(elements);
        for (double& value : vector) {
          value = normal(random) * std::sqrt(energy / static_cast<double>(elements));
          energies[unit] += value * value;
        }
      }
    }
  }

  [[nodiscard]] StageErrors run(const Stage& stage, std::uint64_t seed) const {
    StageErrors result{&stage, {}};
    for (std::size_t p = 0; p < parameters; ++p) {
      std::vector<Sketch>& sketches = result.errors.emplace_back();
      for (std::size_t k = 0; k < stage.passes(); ++k) {
        std::vector<double> sum(errors[p].empty() ? 1 : errors[p][0].size());
        for (std::size_t l = 0; l < readers[p].size(); ++l) {
          const std::uint32_t unit = readers[p][l];
          const double factor = stage.signs[k * units + unit] * stage.amplitudes[unit];
          for (std::size_t i = 0; i < sum.size(); ++i) {
            sum[i] += factor * errors[p][l][i];
          }
        }
        compress::add_to_sketch(std::span<const double>(sum), 0, sum.size(), seed + p,
                                sketches.emplace_back(Sketch{}));
      }
    }
    return result;
  }
};

Profile profile_with(const std::vector<double>& energies) {
  Profile profile;
  for (std::size_t l = 0; l < energies.size(); ++l) {
    Unit unit;
    unit.key = l + 1;
    const std::uint64_t elements = 1000 + 37 * (l % 11) * 1000;
    for (const unsigned width : {1u, 2u, 3u, 4u, 6u, 8u}) {
      const double levels = std::pow(2.0, width) - 1;
      unit.costs.push_back({static_cast<std::uint8_t>(width), elements * width / 8 + elements / 32,
                            225 / (levels * levels)});
    }
    unit.costs.push_back({0, 4 * elements, 0});
    unit.measurements = {{1, energies[l]}};
    profile.units.push_back(std::move(unit));
  }
  return profile;
}

double objective(const Assignment& assignment, const Profile& truth) {
  double sum = 0;
  for (std::size_t l = 0; l < truth.units.size(); ++l) {
    const unsigned width = assignment.choices[l].width;
    sum += width == 0 ? 0 : truth.units[l].noise() * truth.units[l].cost_at(width).error;
  }
  return sum;
}

// 15 passes for 60 units. An assignment from the estimates has about the noise of an assignment
// from the true energies.
TEST(Estimates, TwoStagesFindTheStrongUnits) {
  PLEAT_SEED(seed);
  double squares = 0;
  double loud = 0;
  double worst = 0;
  double logarithms = 0;
  int cases = 0;
  for (std::uint64_t round = 0; round < 20; ++round) {
    std::mt19937_64 random(seed + round);
    const Network network(random, 60, 20, 500);
    const Stage first = first_stage(network.units, 8, round);
    std::vector<StageErrors> stages{network.run(first, round)};
    const Estimate rough = estimate(stages, network.readers, network.units);
    const Stage second = second_stage(rough.energies, 7, round);
    stages.push_back(network.run(second, round));
    const Estimate found = estimate(stages, network.readers, network.units);

    const double all = std::reduce(network.energies.begin(), network.energies.end());
    for (std::size_t l = 0; l < network.units; ++l) {
      if (network.energies[l] > 0.03 * all) {
        const double off = found.energies[l] / network.energies[l] - 1;
        EXPECT_LT(std::abs(off), 0.5) << l << ", round " << round;
        squares += off * off;
        ++loud;
      }
    }
    const Profile truth = profile_with(network.energies);
    const Profile estimated = profile_with(cautious_energies(found));
    for (const double bits : {2.0, 3.0, 4.0}) {
      const double ratio =
          objective(assign(estimated, bits), truth) / objective(assign(truth, bits), truth);
      worst = std::max(worst, ratio);
      logarithms += std::log(ratio);
      ++cases;
    }
  }
  EXPECT_LT(std::sqrt(squares / loud), 0.1);
  EXPECT_LT(std::exp(logarithms / cases), 1.15);
  EXPECT_LT(worst, 2);
}

TEST(Estimates, CautiousEnergiesAreAtLeastAPartOfTheirDeviations) {
  Estimate estimate;
  estimate.energies = {1, 0, 1e-3};
  const double variance = 0.25;
  estimate.of_parameter = {{{0, 1, variance}, {1, 0, variance}, {2, 1e-3, variance}}};
  EXPECT_EQ(cautious_energies(estimate), (std::vector<double>{1, 0.3 * 0.5, 0.3 * 0.5}));
}

TEST(Estimates, WeightsOfParametersAreThoseOfTheirEnergiesAndDeviations) {
  Estimate estimate;
  estimate.energies = {1 + 2, 5};
  estimate.of_parameter = {{{0, 1, 0}, {1, 5, 0}}, {{0, 2, 0}}, {{1, 0, 9}}};
  const std::vector<double> weights{10, 100, 1000};
  EXPECT_EQ(cautious_energies(estimate, weights),
            (std::vector<double>{10 + 200, std::max(50.0, 0.3 * 3000)}));
}

// One unit that is visible in one parameter, so that its deviation has a closed form: the mean of
// the squares of 10 equations about their fit, over the diagonal of 10 a^4.
TEST(Estimates, DeviationsMeasureTheFit) {
  PLEAT_SEED(seed);
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  const Stage stage = first_stage(1, 4, 1);
  StageErrors errors{&stage, {{}}};
  for (std::size_t k = 0; k < 4; ++k) {
    Sketch& sketch = errors.errors[0].emplace_back(Sketch{});
    std::ranges::generate(sketch, [&] { return normal(random); });
    sketch[0] += 30.0 * stage.signs[k];
  }
  std::vector<double> sides;
  for (std::size_t i = 0; i < 4; ++i) {
    for (std::size_t j = i; j < 4; ++j) {
      const Sketch& a = errors.errors[0][i];
      sides.push_back(stage.signs[i] * stage.signs[j] *
                      std::inner_product(a.begin(), a.end(), errors.errors[0][j].begin(), 0.0));
    }
  }
  const double mean = std::reduce(sides.begin(), sides.end()) / 10;
  double squares = 0;
  for (const double side : sides) {
    squares += (side - mean) * (side - mean);
  }
  const std::vector<std::vector<std::uint32_t>> readers{{0}};
  const Estimate found = estimate(std::vector{errors}, readers, 1);
  EXPECT_NEAR(found.energies[0], mean / 0.25, 1e-9 * mean);
  EXPECT_NEAR(std::sqrt(found.of_parameter[0][0].variance), std::sqrt(squares / 9 / 10) / 0.25,
              1e-6 * mean);
}

// For parameters of few elements the sketch is exact, and so are errors of single units.
TEST(Estimates, OneByOneIsExact) {
  PLEAT_SEED(seed);
  std::mt19937_64 random(seed);
  const Network network(random, 12, 5, 100);
  const Stage stage = one_by_one(12);
  const std::vector<StageErrors> stages{network.run(stage, 1)};
  const Estimate found = estimate(stages, network.readers, 12);
  for (std::size_t l = 0; l < 12; ++l) {
    EXPECT_NEAR(found.energies[l], network.energies[l], 1e-9 * network.energies[l]) << l;
  }
  ASSERT_EQ(found.of_parameter.size(), 5u);
  for (std::size_t p = 0; p < 5; ++p) {
    ASSERT_EQ(found.of_parameter[p].size(), network.readers[p].size());
    for (std::size_t l = 0; l < network.readers[p].size(); ++l) {
      EXPECT_EQ(found.of_parameter[p][l].unit, network.readers[p][l]);
      const std::vector<double>& error = network.errors[p][l];
      const double energy = std::inner_product(error.begin(), error.end(), error.begin(), 0.0);
      EXPECT_NEAR(found.of_parameter[p][l].energy, energy, 1e-9 * energy);
    }
  }
}

// Errors without any overlap: every equation holds exactly, at any amplitudes.
StageErrors apart(const Stage& stage, const std::vector<double>& energies) {
  StageErrors result{&stage, {{}}};
  for (std::size_t k = 0; k < stage.passes(); ++k) {
    Sketch& sketch = result.errors[0].emplace_back(Sketch{});
    for (std::size_t l = 0; l < stage.units; ++l) {
      sketch[l] = stage.signs[k * stage.units + l] * stage.amplitudes[l] * std::sqrt(energies[l]);
    }
  }
  return result;
}

TEST(Estimates, ErrorsWithoutOverlapAreSeparated) {
  const std::vector<double> energies{1, 0.1, 0, 1e-3, 1e-5, 3};
  const std::vector<std::vector<std::uint32_t>> readers{{0, 1, 2, 3, 4, 5}};
  const Stage first = first_stage(6, 8, 3);
  const Stage second = second_stage(energies, 7, 3);
  Stage mixed = first_stage(6, 6, 4);  // some units take no part in some passes
  for (std::size_t i = 0; i < mixed.signs.size(); i += 5) {
    mixed.signs[i] = 0;
  }
  for (const std::vector<const Stage*>& design : std::vector<std::vector<const Stage*>>{
           {&first}, {&first, &second}, {&mixed}, {&first, &mixed, &second}}) {
    std::vector<StageErrors> stages;
    for (const Stage* stage : design) {
      stages.push_back(apart(*stage, energies));
    }
    const Estimate found = estimate(stages, readers, 6);
    for (std::size_t l = 0; l < 6; ++l) {
      EXPECT_NEAR(found.energies[l], energies[l], 1e-8) << l << " of " << design.size();
    }
  }
}

// The equations of the header and the papers, written out; the solution must equal theirs.
TEST(Estimates, AreTheSolutionOfTheEquations) {
  PLEAT_SEED(seed);
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  constexpr std::size_t kUnits = 30;
  Stage first = first_stage(kUnits, 5, 1);
  for (std::size_t i = 0; i < first.signs.size(); i += 7) {
    first.signs[i] = 0;
  }
  const Stage second = second_stage(std::vector<double>(kUnits, 1.0), 4, 1);
  std::vector<StageErrors> stages{{&first, {{}}}, {&second, {{}}}};
  LeastSquares problem{20, {}, {}};
  std::vector<std::uint32_t> readers(20);
  std::iota(readers.begin(), readers.end(), 7U);
  constexpr double kFloor = 20;
  for (StageErrors& errors : stages) {
    const Stage& stage = *errors.stage;
    errors.errors[0].resize(stage.passes());
    for (Sketch& sketch : errors.errors[0]) {
      std::ranges::generate(sketch, [&] { return normal(random) + 0.5; });
    }
    const auto product = [&](std::size_t i, std::size_t j) {
      const Sketch& a = errors.errors[0][i];
      const double all = std::inner_product(a.begin(), a.end(), errors.errors[0][j].begin(), 0.0);
      return i == j ? std::max(0.0, all - kFloor) : all;
    };
    double mean = 0;
    for (std::size_t i = 0; i < stage.passes(); ++i) {
      mean += product(i, i) / static_cast<double>(stage.passes());
    }
    for (std::size_t i = 0; i < stage.passes(); ++i) {
      for (std::size_t j = i; j < stage.passes(); ++j) {
        for (const std::uint32_t l : readers) {
          problem.a.push_back(stage.signs[i * kUnits + l] * stage.signs[j * kUnits + l] *
                              stage.amplitudes[l] * stage.amplitudes[l] / mean);
        }
        problem.y.push_back(product(i, j) / mean);
      }
    }
  }
  const std::vector<std::vector<std::uint32_t>> sets{readers};
  const Estimate found = estimate(stages, sets, kUnits, std::vector<double>{kFloor});
  ASSERT_EQ(found.of_parameter[0].size(), 20u);
  std::vector<double> x;
  for (const Estimate::Share& share : found.of_parameter[0]) {
    x.push_back(share.energy);
  }
  expect_optimal(problem, x);
  EXPECT_GT(*std::ranges::max_element(x), 0);
}

TEST(Estimates, FloorIsSubtracted) {
  const std::vector<double> energies{1};
  const std::vector<std::vector<std::uint32_t>> readers{{0}};
  const Stage stage = one_by_one(1);
  const std::vector<StageErrors> stages{apart(stage, energies)};
  EXPECT_NEAR(estimate(stages, readers, 1, std::vector<double>{0.25}).energies[0], 0.75, 1e-12);
  EXPECT_EQ(estimate(stages, readers, 1, std::vector<double>{2}).energies[0], 0);
}

TEST(Estimates, StagesThatAreNotFiniteOrZeroAreLeftOut) {
  const std::vector<double> energies{1, 2};
  const std::vector<std::vector<std::uint32_t>> readers{{0, 1}};
  const Stage stage = one_by_one(2);
  const StageErrors good = apart(stage, energies);
  StageErrors bad = good;
  bad.errors[0][1][5] = NAN;
  const StageErrors none = apart(stage, {0, 0});
  EXPECT_NEAR(estimate(std::vector{good, bad, none}, readers, 2).energies[1], 2, 1e-12);
  for (const StageErrors& alone : {bad, none, StageErrors{}, StageErrors{&stage, {}}}) {
    const Estimate found = estimate(std::vector{alone}, readers, 2);
    EXPECT_EQ(found.energies, std::vector<double>(2, 0.0));
    ASSERT_EQ(found.of_parameter.size(), 1u);
    EXPECT_TRUE(found.of_parameter[0].empty());
  }
}

TEST(Estimates, UnitsOutsideTheSetGetNoEnergy) {
  const Stage stage = one_by_one(3);
  const std::vector<StageErrors> stages{apart(stage, {1, 2, 3})};
  const std::vector<std::vector<std::uint32_t>> readers{{2, 77}};
  const Estimate found = estimate(stages, readers, 3);
  EXPECT_EQ(found.energies[0], 0);
  EXPECT_EQ(found.energies[1], 0);
  EXPECT_NEAR(found.energies[2], 3, 1e-12);
}

}  // namespace
}  // namespace pleat::sensitivity
