// Values computed from a profile: means, costs, names of files, and the merge of two runs.
#include "sensitivity/profile.h"

#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/sensitivity/test_support.h"

namespace pleat::sensitivity {
namespace {

using testing::plain_unit;

TEST(ProfileTest, NoiseIsAGeometricMeanWithRecentWeights) {
  EXPECT_TRUE(std::isnan(Unit{}.noise()));
  const Unit both = plain_unit(1, {{1, 0.1, 0.3}, {1, 0.1, 0.3}});
  EXPECT_NEAR(both.noise(Objective::kUpdate), 0.3, 1e-12);
  EXPECT_NEAR(both.noise(Objective::kGradient), 0.1, 1e-12);
  EXPECT_EQ(plain_unit(1, {{1, 0.1}}).noise(Objective::kUpdate), 0.1) << "not known";
  EXPECT_EQ(plain_unit(1, {{1, 0.1}}).noise(), 0.1) << "one is not rounded";
  EXPECT_NEAR(plain_unit(1, {{999, 1e-6}, {999, 1e-2}}).noise(), 1e-4, 1e-12);
  EXPECT_NEAR(plain_unit(1, {{499, 1e-12}, {999, 1e-2}}).noise(), 1e-4, 1e-12) << "1 to 4";
  // A measurement in step 10 hardly counts in step 1000.
  EXPECT_NEAR(plain_unit(1, {{9, 1e-6}, {999, 1e-2}}).noise(), 1e-2, 1e-5);
  EXPECT_EQ(plain_unit(1, {{1, 0}}).noise(), DBL_MIN);
  EXPECT_EQ(plain_unit(1, {{1, 0}, {2, 0.5}}).noise(), 0.5) << "not seen at first";
  EXPECT_EQ(plain_unit(1, {{1, 0.5}, {2, 0}}).noise(), 0.5);
  EXPECT_EQ(plain_unit(1, {{1, 0}, {2, 0}}).noise(), DBL_MIN);
  EXPECT_TRUE(std::isnan(plain_unit(1, {{1, NAN}, {2, 1}}).noise()));
}

TEST(ProfileTest, CostAtTakesTheNextWiderCandidateAndElseTheExactOne) {
  Unit unit;
  unit.costs = {{2, 200, 25}, {4, 400, 1}, {0, 3200, 0}};
  EXPECT_EQ(unit.cost_at(1).width, 2);
  EXPECT_EQ(unit.cost_at(2).width, 2);
  EXPECT_EQ(unit.cost_at(3).width, 4);
  EXPECT_EQ(unit.cost_at(8).width, 0);
  EXPECT_EQ(unit.cost_at(0).bytes, 3200u);
}

TEST(ProfileTest, PathsNameRanksAndProcesses) {
  EXPECT_EQ(expand_path("/a/p-%r-%p.json", 3, 4711), "/a/p-3-4711.json");
  EXPECT_EQ(expand_path("100%%%r", 0, 1), "100%0");
  EXPECT_EQ(expand_path("%d%%d%", 0, 1), "%d%d%");
  EXPECT_EQ(expand_path("%%r", 5, 1), "%r");
  EXPECT_EQ(expand_path("", 5, 1), "");
}

TEST(ProfileTest, MergingKeepsRowsOfTheNewerAndAddsOtherRowsOfTheOlder) {
  Profile newer;
  newer.steps = 7;
  newer.units = {plain_unit(1, {{30, 0.3}, {20, 0.2}}), plain_unit(2, {})};
  newer.units[0].producer = "new";
  Profile older;
  older.steps = 5;
  older.units = {plain_unit(3, {{1, 1}}), plain_unit(1, {{10, 0.1}, {20, 99}})};
  older.units[1].producer = "old";
  merge_into(newer, older);
  EXPECT_EQ(newer.steps, 7u);
  ASSERT_EQ(newer.units.size(), 3u);
  EXPECT_EQ(newer.units[0].producer, "new");
  EXPECT_EQ(newer.units[2].key, 3u);
  const std::vector<Measurement>& both = newer.units[0].measurements;
  ASSERT_EQ(both.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(both[i].step, 10 * (i + 1));
    EXPECT_DOUBLE_EQ(both[i].noise, 0.1 * static_cast<double>(i + 1)) << "step 20 of the newer";
  }
}

TEST(ProfileTest, MergingKeepsTheLastSixteenMeasurements) {
  Profile newer;
  Profile older;
  newer.units = {plain_unit(1, {})};
  older.units = {plain_unit(1, {})};
  for (std::uint64_t step = 0; step < 12; ++step) {
    older.units[0].measurements.push_back({step, 1});
    newer.units[0].measurements.push_back({100 + step, 1});
  }
  merge_into(newer, older);
  const std::vector<Measurement>& both = newer.units[0].measurements;
  ASSERT_EQ(both.size(), 16u);
  EXPECT_EQ(both.front().step, 8u);
  EXPECT_EQ(both.back().step, 111u);
}

double correlation_of(const std::vector<double>& a, const std::vector<double>& b) {
  Profile profile;
  for (std::size_t i = 0; i < a.size(); ++i) {
    profile.units.push_back(plain_unit(i, {{1, a[i]}, {2, b[i]}}));
  }
  profile.units.push_back(plain_unit(99, {{1, 1e9}}));  // measured once: does not count
  return rank_correlation(profile, 1, 2);
}

// Expected values: scipy.stats.spearmanr.
TEST(ProfileTest, RankCorrelationIsSpearmans) {
  EXPECT_DOUBLE_EQ(correlation_of({1, 10, 100, 1000}, {2, 3, 5, 7}), 1);
  EXPECT_DOUBLE_EQ(correlation_of({1, 2, 3}, {3, 2, 1}), -1);
  EXPECT_NEAR(correlation_of({1, 2, 3, 4, 5}, {5, 6, 7, 8, 7}), 0.8207826816681233, 1e-12);
  EXPECT_NEAR(correlation_of({1, 1, 2, 2, 9, 4}, {3, 1, 1, 5, 5, 5}), 0.699205898780101, 1e-12);
  EXPECT_TRUE(std::isnan(correlation_of({1, 2}, {1, 2})));
  EXPECT_TRUE(std::isnan(correlation_of({1, 1, 1}, {1, 2, 3}))) << "no order at all";
}

}  // namespace
}  // namespace pleat::sensitivity
