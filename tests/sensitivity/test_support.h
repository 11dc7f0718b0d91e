// Shared by the tests of sensitivity/: seeds, and profiles to begin with.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "sensitivity/profile.h"

namespace pleat::sensitivity::testing {

// PLEAT_TEST_SEED, or a fixed seed; shown with every failure of the enclosing scope.
inline std::uint64_t test_seed() {
  const char* given = std::getenv("PLEAT_TEST_SEED");
  return given != nullptr ? std::strtoull(given, nullptr, 0) : 20260517;
}
#define PLEAT_SEED(name)                                                 \
  const std::uint64_t name = ::pleat::sensitivity::testing::test_seed(); \
  SCOPED_TRACE("PLEAT_TEST_SEED=" + std::to_string(name))

// A unit with every field set to a value other than the default.
inline Unit full_unit(std::uint64_t key) {
  Unit unit;
  unit.key = key;
  unit.producer = "AddmmBackward0";
  unit.reader = "ReluBackward0, \"custom\\fn\"";
  unit.type = "float32";
  unit.shape = {8, 0, 512};
  unit.tensors = 3;
  unit.bytes = 1 << 20;
  unit.payload_bytes = 70'000;
  unit.width = 3;
  unit.trail = {"profile:3", "a name of \"another\":8", "pole:0"};
  unit.fixed = "mask";
  unit.floor = 2;
  unit.floor_reason = "sides";
  unit.costs = {{1, 40'000, 225}, {4, 140'000, 1}, {8, 270'000, 225.0 / 65025}, {0, 1 << 20, 0}};
  unit.measurements = {{10, 1.0 / 3, 1.0 / 7}, {20, 0}, {30, 5e-324, 0}};
  unit.results = {key ^ 1, 0xFFFFFFFFFFFFFFFFULL};
  unit.distrusted = true;
  return unit;
}

// A unit with default fields.
inline Unit plain_unit(std::uint64_t key, std::vector<Measurement> measurements = {}) {
  Unit unit;
  unit.key = key;
  unit.measurements = std::move(measurements);
  return unit;
}

inline Profile full_profile() {
  Profile profile;
  profile.torch = "2.11.0+cpu";
  profile.steps = 1234;
  profile.bits = 3.7;
  profile.objective = Objective::kUpdate;
  profile.passes = 15;
  profile.seconds = 0.1;
  profile.units = {full_unit(0xFEDCBA9876543210ULL), full_unit(7), plain_unit(9)};
  return profile;
}

inline void expect_equal(const Unit& a, const Unit& b) {
  EXPECT_EQ(a.key, b.key);
  EXPECT_EQ(a.producer, b.producer);
  EXPECT_EQ(a.reader, b.reader);
  EXPECT_EQ(a.type, b.type);
  EXPECT_EQ(a.shape, b.shape);
  EXPECT_EQ(a.tensors, b.tensors);
  EXPECT_EQ(a.bytes, b.bytes);
  EXPECT_EQ(a.payload_bytes, b.payload_bytes);
  EXPECT_EQ(a.width, b.width);
  EXPECT_EQ(a.trail, b.trail);
  EXPECT_EQ(a.fixed, b.fixed);
  EXPECT_EQ(a.floor, b.floor);
  EXPECT_EQ(a.floor_reason, b.floor_reason);
  EXPECT_EQ(a.distrusted, b.distrusted);
  EXPECT_EQ(a.results, b.results);
  ASSERT_EQ(a.costs.size(), b.costs.size());
  for (std::size_t i = 0; i < a.costs.size(); ++i) {
    EXPECT_EQ(a.costs[i].width, b.costs[i].width);
    EXPECT_EQ(a.costs[i].bytes, b.costs[i].bytes);
    EXPECT_EQ(a.costs[i].error, b.costs[i].error);
  }
  ASSERT_EQ(a.measurements.size(), b.measurements.size());
  for (std::size_t i = 0; i < a.measurements.size(); ++i) {
    EXPECT_EQ(a.measurements[i].step, b.measurements[i].step);
    EXPECT_EQ(a.measurements[i].noise, b.measurements[i].noise);
    EXPECT_EQ(std::isnan(a.measurements[i].update_noise),
              std::isnan(b.measurements[i].update_noise));
    EXPECT_EQ(a.measurements[i].of(Objective::kUpdate), b.measurements[i].of(Objective::kUpdate));
  }
}

inline void expect_equal(const Profile& a, const Profile& b) {
  EXPECT_EQ(a.objective, b.objective);
  EXPECT_EQ(a.torch, b.torch);
  EXPECT_EQ(a.steps, b.steps);
  EXPECT_EQ(a.bits, b.bits);
  EXPECT_EQ(a.passes, b.passes);
  EXPECT_EQ(a.seconds, b.seconds);
  ASSERT_EQ(a.units.size(), b.units.size());
  for (std::size_t i = 0; i < a.units.size(); ++i) {
    expect_equal(a.units[i], b.units[i]);
  }
}

}  // namespace pleat::sensitivity::testing
