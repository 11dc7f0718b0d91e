// Byte ranges against a naive set of covered bytes.
#include "allocator/store/byte_ranges.h"

#include <bitset>

#include "tests/allocator/test_support.h"

namespace pleat::allocator {
namespace {

constexpr std::size_t kBytes = 512;
using Covered = std::bitset<kBytes>;

void set_range(Covered& covered, std::size_t begin, std::size_t end) {
  for (std::size_t k = begin; k < end; ++k) covered.set(k);
}

Covered covered_by(const ByteRanges& ranges) {
  Covered covered;
  for (std::size_t r = 0; r < ranges.size(); ++r)
    set_range(covered, ranges.data()[r].begin, ranges.data()[r].end);
  return covered;
}

// The number of disjoint ranges in a set of bytes.
std::size_t runs_of(const Covered& covered) { return (covered & ~(covered << 1)).count(); }

std::size_t first_of(const Covered& covered) {
  std::size_t k = 0;
  while (!covered.test(k)) ++k;
  return k;
}
std::size_t last_of(const Covered& covered) {
  std::size_t k = kBytes - 1;
  while (!covered.test(k)) --k;
  return k;
}

void expect_disjoint_ascending(const ByteRanges& ranges) {
  for (std::size_t r = 0; r < ranges.size(); ++r) {
    ASSERT_LT(ranges.data()[r].begin, ranges.data()[r].end);
    if (r > 0) {
      ASSERT_GT(ranges.data()[r].begin, ranges.data()[r - 1].end);
    }
  }
}

TEST(ByteRangesTest, FewRangesAreTheirUnion) {
  PLEAT_SEED(seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 300; ++round) {
    ByteRanges ranges;
    Covered covered;
    const std::size_t longest = round % 3 == 0 ? kBytes : round % 3 == 1 ? 40 : 4;
    for (int i = 0; i < 60; ++i) {  // fewer than kMost
      const std::size_t begin = random() % kBytes;
      const std::size_t end = std::min(kBytes, begin + random() % (longest + 1));
      const ByteRange added{begin, end};
      Covered own;
      set_range(own, begin, end);
      if (own.any()) {
        EXPECT_EQ(ranges.cover(added), (own & ~covered).none()) << begin << " to " << end;
      }
      ranges.add(added);
      covered |= own;
      ASSERT_EQ(covered_by(ranges), covered);
      ASSERT_EQ(ranges.size(), runs_of(covered));
      expect_disjoint_ascending(ranges);
    }
  }
}

TEST(ByteRangesTest, ManyRangesBecomeTheirHull) {
  for (const bool descending : {false, true}) {
    constexpr std::size_t kAdded = 100 * ByteRanges::kMost;
    ByteRanges ranges;
    for (std::size_t i = 0; i < kAdded; ++i) {
      const std::size_t begin = 8 * (descending ? kAdded - 1 - i : i);
      ranges.add({begin, begin + 4});
      ASSERT_LE(ranges.size(), ByteRanges::kMost);
      ASSERT_EQ(ranges.size() == i + 1, i < ByteRanges::kMost) << "exact as long as it may be";
    }
    // The first and the last byte, and every added byte between.
    EXPECT_EQ(ranges.data()[0].begin, 0u);
    EXPECT_EQ(ranges.data()[ranges.size() - 1].end, 8 * kAdded - 4);
    for (std::size_t i = 0; i < kAdded; ++i) EXPECT_TRUE(ranges.cover({8 * i, 8 * i + 4}));
    ranges.add({0, 8 * kAdded});
    EXPECT_TRUE(ranges.is_all_of(8 * kAdded));
  }
}

TEST(ByteRangesTest, RandomRangesCoverEveryAddedByteAndNoneOutsideTheHull) {
  PLEAT_SEED(seed);
  std::mt19937_64 random(seed);
  bool hull_taken = false;
  for (int round = 0; round < 100; ++round) {
    ByteRanges ranges;
    Covered covered;
    const std::size_t low = random() % 100;
    const std::size_t high = kBytes - random() % 100;
    for (int i = 0; i < 300; ++i) {
      const std::size_t begin = low + random() % (high - low - 1);
      ranges.add({begin, begin + 1});
      covered.set(begin);
      const Covered held = covered_by(ranges);
      ASSERT_LE(ranges.size(), ByteRanges::kMost);
      ASSERT_TRUE((covered & ~held).none());
      ASSERT_EQ(first_of(held), first_of(covered));
      ASSERT_EQ(last_of(held), last_of(covered));
      expect_disjoint_ascending(ranges);
      hull_taken = hull_taken || held != covered;
    }
  }
  EXPECT_TRUE(hull_taken);
}

// Ranges added in order are appended: the list moves only as a vector grows.
TEST(ByteRangesTest, AddingInOrderDoesNotCopyTheList) {
  ByteRanges ranges;
  int moves = 0;
  for (std::size_t i = 0; i < ByteRanges::kMost; ++i) {
    const ByteRange* const before = ranges.data();
    ranges.add({8 * i, 8 * i + 4});
    moves += ranges.data() != before ? 1 : 0;
  }
  EXPECT_EQ(ranges.size(), ByteRanges::kMost);
  EXPECT_LE(moves, 8);  // one per doubling, and the first move out of the object itself
}

}  // namespace
}  // namespace pleat::allocator
