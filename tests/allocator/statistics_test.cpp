#include "allocator/statistics.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace pleat::allocator {
namespace {

TEST(Statistics, PeaksAndSumsFollowEveryChange) {
  Statistics statistics;
  statistics.add(StatKind::kPayload, 100);
  statistics.add(StatKind::kPayload, -30);
  statistics.add(StatKind::kPayload, 10);
  const StatValues values = statistics.read(StatKind::kPayload);
  EXPECT_EQ(values.current, 80);
  EXPECT_EQ(values.peak, 100);
  EXPECT_EQ(values.allocated, 110);
  EXPECT_EQ(values.freed, 30);
  statistics.reset_peaks();
  EXPECT_EQ(statistics.read(StatKind::kPayload).peak, 80);
}

TEST(Statistics, AddAndAddExclusiveCountAlike) {
  Statistics statistics;
  for (const std::int64_t change : {5, 7, -3, 20, -29}) {
    statistics.add(StatKind::kRequested, change);
    statistics.add_exclusive(StatKind::kActive, change);
  }
  const StatValues a = statistics.read(StatKind::kRequested);
  const StatValues b = statistics.read(StatKind::kActive);
  EXPECT_EQ(a.current, b.current);
  EXPECT_EQ(a.peak, b.peak);
  EXPECT_EQ(a.allocated, b.allocated);
  EXPECT_EQ(a.freed, b.freed);
}

TEST(Statistics, ThreadsLoseNoChange) {
  Statistics statistics;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 10000; ++i) {
        statistics.add(StatKind::kRequested, 3);
        statistics.add(StatKind::kRequested, -2);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(statistics.current(StatKind::kRequested), 40000);
  EXPECT_EQ(statistics.read(StatKind::kRequested).allocated, 120000);
}

TEST(Statistics, EveryKindHasAName) {
  for (std::size_t i = 0; i < static_cast<std::size_t>(StatKind::kCount); ++i) {
    EXPECT_STRNE(stat_name(static_cast<StatKind>(i)), "unknown");
  }
}

}  // namespace
}  // namespace pleat::allocator
