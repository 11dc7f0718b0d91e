#include "allocator/blocks/free_runs.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>
#include <vector>

#include "test_support.h"

namespace pleat::allocator {
namespace {

using testing::scaled;

struct Row {
  explicit Row(std::size_t granules) {
    const std::size_t bytes = FreeRuns::metadata_bytes(granules);
    memory = static_cast<std::byte*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64));
    std::memset(memory, 0, bytes);
    runs.attach(memory, granules);
  }
  ~Row() { std::free(memory); }
  std::byte* memory;
  FreeRuns runs;
};

TEST(FreeRuns, NewRowIsOneRun) {
  for (const std::size_t granules : {1u, 2u, 31u, 32u, 33u, 1000u}) {
    Row row(granules);
    EXPECT_TRUE(row.runs.all_free());
    EXPECT_EQ(row.runs.largest(), granules);
    EXPECT_EQ(row.runs.length_at(0), granules);
    EXPECT_EQ(row.runs.take_first_fit(granules + 1), FreeRuns::kNone);
    EXPECT_EQ(row.runs.take_first_fit(granules), 0u);
    EXPECT_EQ(row.runs.take_first_fit(1), FreeRuns::kNone);
    row.runs.give(0, granules);
    EXPECT_TRUE(row.runs.all_free());
    EXPECT_EQ(row.runs.check(), nullptr);
  }
}

TEST(FreeRuns, RowIsCutAndLengthenedAtItsFreeEnd) {
  Row row(100);
  ASSERT_EQ(row.runs.take_first_fit(40), 0u);
  row.runs.resize(60);
  EXPECT_EQ(row.runs.granules(), 60u);
  EXPECT_EQ(row.runs.largest(), 20u);
  EXPECT_EQ(row.runs.check(), nullptr);
  row.runs.resize(40);  // no free granule is left
  EXPECT_EQ(row.runs.run_count(), 0u);
  EXPECT_EQ(row.runs.take_first_fit(1), FreeRuns::kNone);
  row.runs.resize(50);
  EXPECT_EQ(row.runs.take_first_fit(10), 40u);
  row.runs.give(0, 40);
  row.runs.give(40, 10);
  EXPECT_TRUE(row.runs.all_free());
  row.runs.resize(100);
  EXPECT_TRUE(row.runs.all_free());
  EXPECT_EQ(row.runs.largest(), 100u);
  EXPECT_EQ(row.runs.check(), nullptr);
}

// The worst case for metadata: every other granule is free, then all are joined again.
TEST(FreeRuns, EveryOtherGranuleFreeFitsItsMemory) {
  constexpr std::size_t kGranules = 10000;
  Row row(kGranules);
  ASSERT_EQ(row.runs.take_first_fit(kGranules), 0u);
  for (std::size_t g = 0; g < kGranules; g += 2) row.runs.give(g, 1);
  ASSERT_EQ(row.runs.check(), nullptr);
  EXPECT_EQ(row.runs.run_count(), kGranules / 2);
  EXPECT_EQ(row.runs.largest(), 1u);
  for (std::size_t g = kGranules - 1; g < kGranules; g -= 2) row.runs.give(g, 1);
  ASSERT_EQ(row.runs.check(), nullptr);
  EXPECT_TRUE(row.runs.all_free());
}

// Against a std::map searched from the front.
TEST(FreeRuns, AgreesWithANaiveMap) {
  PLEAT_SEED(seed);
  std::mt19937_64 random(seed);
  for (const std::size_t granules : {40u, 500u, 20000u}) {
    Row row(granules);
    std::map<std::size_t, std::size_t> free{{0, granules}};
    std::vector<std::pair<std::size_t, std::size_t>> used;
    for (int step = 0; step < scaled(40000); ++step) {
      const bool filling = step / 2000 % 2 == 0;
      if (used.empty() || random() % 8 < (filling ? 5u : 3u)) {
        const std::size_t need =
            1 + random() % (1 + random() % std::max<std::size_t>(granules / 50, 8));
        auto fit = free.begin();
        while (fit != free.end() && fit->second < need) ++fit;
        if (fit == free.end()) {
          ASSERT_EQ(row.runs.take_first_fit(need), FreeRuns::kNone);
          continue;
        }
        const bool first_fit = random() % 4 != 0;
        if (!first_fit) {  // in any later run that is large enough
          for (auto later = fit; later != free.end() && random() % 8 != 0; ++later) {
            if (later->second >= need) fit = later;
          }
        }
        const auto [begin, length] = *fit;
        free.erase(fit);
        std::size_t taken = begin;
        if (first_fit) {
          ASSERT_EQ(row.runs.take_first_fit(need), begin);
        } else {
          if (random() % 8 != 0) taken += random() % (length - need + 1);
          row.runs.take(taken, need);
        }
        if (taken > begin) free[begin] = taken - begin;
        if (begin + length > taken + need) free[taken + need] = begin + length - taken - need;
        used.push_back({taken, need});
      } else {
        std::swap(used[random() % used.size()], used.back());
        auto [begin, length] = used.back();
        used.pop_back();
        row.runs.give(begin, length);
        auto after = free.lower_bound(begin);
        if (after != free.end() && after->first == begin + length) {
          length += after->second;
          after = free.erase(after);
        }
        if (after != free.begin()) {
          auto before = std::prev(after);
          if (before->first + before->second == begin) {
            begin = before->first;
            length += before->second;
            free.erase(before);
          }
        }
        free[begin] = length;
      }
      if (step % 16 == 0) {
        ASSERT_STREQ(row.runs.check(), nullptr);
        ASSERT_EQ(row.runs.run_count(), free.size());
        auto expected = free.begin();
        row.runs.visit_up(1, [&](std::size_t begin, std::size_t length) {
          EXPECT_EQ(begin, expected->first);
          EXPECT_EQ(length, expected->second);
          ++expected;
          return true;
        });
        ASSERT_TRUE(expected == free.end());
      }
    }
  }
}

// A visit skips the runs of the previous one, but no run that has changed since.
TEST(FreeRuns, VisitForAPurposeSeesEveryChangedRun) {
  PLEAT_SEED(seed);
  std::mt19937_64 random(seed);
  constexpr std::size_t kGranules = 20000;
  using Range = std::pair<std::size_t, std::size_t>;
  Row row(kGranules);
  std::set<Range> used;
  std::set<Range> seen[2];
  for (std::size_t g = 0; g < kGranules; g += 4) {
    row.runs.take(g, 3);
    used.insert({g, 3});
  }
  std::size_t runs = 0;
  std::size_t visited = 0;
  for (int step = 0; step < scaled(600); ++step) {
    const unsigned purpose = random() % 2;
    std::set<Range> now;
    row.runs.visit_up(1, [&](std::size_t begin, std::size_t length) {
      return now.insert({begin, length}).second;
    });
    std::set<Range> found;
    std::size_t last = kGranules;
    row.runs.visit_down(1, purpose, [&](FreeRun& run) {
      const auto begin = static_cast<std::size_t>(run.begin);
      EXPECT_LT(begin, last);
      last = begin;
      found.insert({begin, static_cast<std::size_t>(run.length)});
      return FreeRuns::Visit::kNext;
    });
    for (const Range& run : now) {
      ASSERT_TRUE(seen[purpose].count(run) != 0 || found.count(run) != 0) << run.first;
    }
    for (const Range& run : found) ASSERT_EQ(now.count(run), 1u);
    runs += now.size();
    visited += found.size();
    seen[purpose] = now;
    for (std::size_t change = random() % 4; change > 0; --change) {
      if (random() % 2 == 0) {
        const std::size_t length = 1 + random() % 3;
        const std::size_t begin = row.runs.take_first_fit(length);
        if (begin != FreeRuns::kNone) used.insert({begin, length});
        continue;
      }
      auto range = used.lower_bound({random() % kGranules, 0});
      if (range == used.end()) range = used.begin();
      row.runs.give(range->first, range->second);
      used.erase(range);
    }
  }
  EXPECT_LT(visited, runs / 4);
  EXPECT_EQ(row.runs.check(), nullptr);
}

}  // namespace
}  // namespace pleat::allocator
