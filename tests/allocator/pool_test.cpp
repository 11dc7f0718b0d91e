#include "allocator/host/pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "test_support.h"

namespace pleat::allocator {
namespace {

using namespace testing;

struct PoolTest : ::testing::Test {
  FakeDevice device{1_GiB};
  Statistics statistics;
};

TEST_F(PoolTest, BlocksAreRoundedToTheGranuleAndCountedAsRequested) {
  Pool pool(device, small_options(), statistics);
  Block* block = pool.allocate(5000);
  ASSERT_NE(block, nullptr);
  EXPECT_EQ(block->bytes, 8_KiB);
  EXPECT_EQ(block->requested, 5000u);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block->begin) % 4096, 0u);
  EXPECT_EQ(current(statistics, StatKind::kRequested), 5000u);
  EXPECT_EQ(current(statistics, StatKind::kActive), 8_KiB);
  EXPECT_EQ(current(statistics, StatKind::kReserved), 64_KiB);
  EXPECT_EQ(current(statistics, StatKind::kCached), 56_KiB);
  EXPECT_STREQ(pool.check_invariants(), "");
  pool.free(block);
  EXPECT_EQ(current(statistics, StatKind::kRequested), 0u);
  EXPECT_EQ(current(statistics, StatKind::kActive), 0u);
  EXPECT_STREQ(pool.check_invariants(), "");
}

TEST_F(PoolTest, AbsurdSizesReturnNull) {
  Pool pool(device, small_options(), statistics);
  EXPECT_EQ(pool.allocate(0), nullptr);
  for (const std::size_t bytes : {SIZE_MAX, SIZE_MAX - 4095, SIZE_MAX / 2, std::size_t{1} << 63,
                                  std::size_t{1} << 48, std::size_t{8} << 40}) {
    EXPECT_EQ(pool.allocate(bytes), nullptr) << bytes;
  }
  EXPECT_STREQ(pool.check_invariants(), "");
}

TEST_F(PoolTest, SmallestFittingHoleIsTaken) {
  Pool pool(device, small_options(), statistics);
  std::vector<Block*> blocks;
  for (int i = 0; i < 10; ++i) blocks.push_back(pool.allocate(64_KiB));
  std::byte* third = blocks[3]->begin;
  std::byte* seventh = blocks[7]->begin;
  pool.free(blocks[7]);
  pool.free(blocks[3]);
  EXPECT_EQ(pool.allocate(4_KiB)->begin, third);
  EXPECT_EQ(pool.allocate(64_KiB)->begin, seventh) << "the rest of the third is too small";
  EXPECT_EQ(pool.allocate(60_KiB)->begin, third + 4_KiB);
}

TEST_F(PoolTest, OwnsAndFindMatchTheBlocksInUse) {
  Pool pool(device, small_options(), statistics);
  int local = 0;
  EXPECT_FALSE(pool.owns(&local));
  Block* block = pool.allocate(10000);
  EXPECT_TRUE(pool.owns(block->begin));
  EXPECT_TRUE(pool.owns(block->begin + 9999));
  EXPECT_EQ(pool.find(block->begin), block);
  EXPECT_EQ(pool.find(block->begin + 4096), nullptr);
  EXPECT_EQ(pool.find(block->begin + 1), nullptr);
  EXPECT_FALSE(pool.owns(nullptr));
  EXPECT_FALSE(pool.owns(&local));
  EXPECT_EQ(pool.find(&local), nullptr);
  std::byte* begin = block->begin;
  pool.free(block);
  EXPECT_EQ(pool.find(begin), nullptr);
  EXPECT_TRUE(pool.owns(begin));
}

TEST_F(PoolTest, IdsAreNeverReused) {
  Pool pool(device, small_options(), statistics);
  BlockId last{};
  for (int i = 0; i < 100; ++i) {
    Block* block = pool.allocate(1_KiB);
    EXPECT_LT(last, block->id);
    last = block->id;
    pool.free(block);
  }
}

TEST_F(PoolTest, ShrinkFreesTheTailAtOnce) {
  Pool pool(device, small_options(), statistics);
  Block* block = pool.allocate(64_KiB);
  Block* guard = pool.allocate(4_KiB);
  pool.shrink(block, 5000);
  EXPECT_EQ(block->requested, 5000u);
  EXPECT_EQ(block->bytes, 8_KiB);
  EXPECT_EQ(current(statistics, StatKind::kRequested), 5000u + 4096u);
  EXPECT_STREQ(pool.check_invariants(), "");
  EXPECT_EQ(pool.allocate(56_KiB)->begin, block->begin + 8_KiB);
  pool.shrink(block, 4999);  // within the granule
  EXPECT_EQ(current(statistics, StatKind::kRequested), 4999u + 4096u + 56_KiB);
  pool.free(guard);
  pool.free(block);
  EXPECT_STREQ(pool.check_invariants(), "");
}

TEST_F(PoolTest, ExhaustedDeviceReturnsNullAndRecovers) {
  FakeDevice small(8_MiB);
  CountingSink sink;
  Pool pool(small, small_options(), statistics);
  pool.events().attach(&sink);
  std::vector<Block*> blocks;
  while (Block* block = pool.allocate(1_MiB)) blocks.push_back(block);
  EXPECT_EQ(blocks.size(), 8u);
  EXPECT_EQ(sink.count[EventKind::kOutOfMemory], 1);
  EXPECT_STREQ(pool.check_invariants(), "");
  pool.free(blocks.back());
  blocks.back() = pool.allocate(1_MiB);
  EXPECT_NE(blocks.back(), nullptr);
  for (Block* block : blocks) pool.free(block);
  // Two idle segments of 4 MiB are released for one of 8.
  Block* whole = pool.allocate(8_MiB);
  ASSERT_NE(whole, nullptr);
  EXPECT_EQ(small.segments, 1);
  EXPECT_STREQ(pool.check_invariants(), "");
  pool.free(whole);
}

TEST_F(PoolTest, DeviceWithFreeAddressesReservesOneRange) {
  device.caps.reserves_freely = true;
  Pool pool(device, small_options(), statistics);
  std::vector<Block*> blocks;
  for (int i = 0; i < 60; ++i) blocks.push_back(pool.allocate(1_MiB));
  EXPECT_EQ(device.segments, 1);
  EXPECT_EQ(device.reserved, 64_MiB);
  for (int i = 0; i < 60; ++i) ASSERT_NE(pool.allocate(1_MiB), nullptr);
  EXPECT_GT(device.segments, 1) << "a full range is no end";
  EXPECT_STREQ(pool.check_invariants(), "");
}

TEST_F(PoolTest, SegmentGrowsInPlaceAsBlocksNeedIt) {
  device.caps.reserves_freely = true;
  PoolOptions options = small_options();
  options.extend_bytes = 4_MiB;
  Pool pool(device, options, statistics);
  Block* first = pool.allocate(1_MiB);
  EXPECT_EQ(device.reserved, 4_MiB);
  EXPECT_FALSE(pool.owns(first->begin + 4_MiB)) << "not ours yet";
  Block* second = pool.allocate(10_MiB);  // more than a step
  EXPECT_EQ(second->begin, first->begin + 1_MiB);
  EXPECT_EQ(device.reserved, 11_MiB);
  EXPECT_TRUE(pool.owns(first->begin + 11_MiB - 1));
  EXPECT_EQ(pool.find(second->begin), second);
  EXPECT_STREQ(pool.check_invariants(), "");
  // Other memory is behind it: the next segment takes over, permanently.
  device.extends = false;
  ASSERT_NE(pool.allocate(1_MiB), nullptr);
  EXPECT_EQ(device.segments, 2);
  EXPECT_FALSE(pool.owns(first->begin + 11_MiB));
  EXPECT_STREQ(pool.check_invariants(), "");
  pool.free(second);
  EXPECT_EQ(pool.allocate(2_MiB)->begin, first->begin + 1_MiB) << "its pages are there";
  EXPECT_EQ(device.segments, 2);
  EXPECT_STREQ(pool.check_invariants(), "");
}

TEST_F(PoolTest, SegmentsThatCannotGrowInPlaceAreLarge) {
  FakeDevice large(1024_GiB);
  large.caps.reserves_freely = true;
  large.extends = false;
  Pool pool(large, PoolOptions{}, statistics);
  for (int i = 0; i < 64 * 64; ++i) ASSERT_NE(pool.allocate(16_MiB), nullptr) << i;  // 64 GiB
  EXPECT_LT(large.segments, 200);
  EXPECT_STREQ(pool.check_invariants(), "");
}

TEST_F(PoolTest, RangeIsHalvedUntilTheDeviceHasIt) {
  FakeDevice small(20_MiB);
  small.caps.reserves_freely = true;
  Pool pool(small, small_options(), statistics);
  ASSERT_NE(pool.allocate(1_MiB), nullptr);
  EXPECT_EQ(small.reserved, 16_MiB);
}

TEST_F(PoolTest, ReserveBelowTheGrowthIsHonoured) {
  device.caps.reserves_freely = true;
  PoolOptions options;
  options.reserve_bytes = 16_MiB;
  Pool pool(device, options, statistics);
  ASSERT_NE(pool.allocate(1_MiB), nullptr);
  EXPECT_EQ(device.reserved, 16_MiB);
}

TEST_F(PoolTest, TrimAndDestructorReleaseSegments) {
  {
    Pool pool(device, small_options(), statistics);
    std::vector<Block*> blocks;
    for (int i = 0; i < 20; ++i) blocks.push_back(pool.allocate(1_MiB));
    EXPECT_EQ(device.segments, 5);
    for (int i = 4; i < 20; ++i) pool.free(blocks[static_cast<std::size_t>(i)]);
    EXPECT_EQ(pool.trim(), 16_MiB);
    EXPECT_EQ(device.segments, 1);
    EXPECT_TRUE(pool.owns(blocks[0]->begin));
    EXPECT_STREQ(pool.check_invariants(), "");
    for (int i = 0; i < 16; ++i) ASSERT_NE(pool.allocate(1_MiB), nullptr);
    EXPECT_STREQ(pool.check_invariants(), "");
  }
  EXPECT_EQ(device.segments, 0);
  for (const StatKind kind :
       {StatKind::kRequested, StatKind::kActive, StatKind::kReserved, StatKind::kCached}) {
    EXPECT_EQ(statistics.current(kind), 0) << stat_name(kind);
  }
}

TEST_F(PoolTest, DeviceWithoutPagesCountsSegmentsAtOnce) {
  device.caps.returns_pages = false;
  Pool pool(device, small_options(), statistics);
  Block* block = pool.allocate(1_MiB);
  EXPECT_EQ(current(statistics, StatKind::kReserved), 4_MiB);
  EXPECT_STREQ(pool.check_invariants(), "");
  pool.free(block);
  EXPECT_EQ(pool.trim(), 4_MiB);
  EXPECT_EQ(current(statistics, StatKind::kReserved), 0u);
  EXPECT_EQ(device.released_pages_bytes, 0u);
}

TEST_F(PoolTest, EveryAllocationAndFreeIsAnEvent) {
  CountingSink sink;
  {
    Pool pool(device, small_options(), statistics);
    pool.events().attach(&sink);
    Block* block = pool.allocate(10000, StreamId{3});
    EXPECT_EQ(sink.last.kind, EventKind::kAllocate);
    EXPECT_EQ(sink.last.bytes, 10000u);
    EXPECT_EQ(sink.last.block, block->id);
    EXPECT_EQ(sink.last.stream, StreamId{3});
    EXPECT_EQ(sink.last.device, DeviceIndex{7});
    EXPECT_EQ(sink.last.address, reinterpret_cast<std::uint64_t>(block->begin));
    pool.free(block);
    EXPECT_EQ(sink.count[EventKind::kFree], 1);
    EXPECT_EQ(sink.count[EventKind::kSegmentReserve], 1);
  }
  EXPECT_EQ(sink.count[EventKind::kSegmentRelease], 1);
}

TEST_F(PoolTest, LateSinkReceivesThePresentSegments) {
  FakeDevice small(8_MiB);  // two segments of 4
  Pool pool(small, small_options(), statistics);
  Block* const first = pool.allocate(3_MiB);
  Block* const second = pool.allocate(3_MiB);
  CountingSink sink;
  pool.events().attach(&sink);
  pool.tell_segments();
  EXPECT_EQ(sink.count[EventKind::kSegmentReserve], 2);
  EXPECT_EQ(sink.bytes[EventKind::kSegmentReserve], 8_MiB);
  EXPECT_EQ(sink.count.size(), 1u) << "of nothing else";
  for (const std::int64_t change : sink.last.change) EXPECT_EQ(change, 0);
  pool.events().attach(nullptr);
  pool.free(first);
  pool.free(second);
}

TEST_F(PoolTest, VisitedBlocksTileTheResidentRange) {
  Pool pool(device, small_options(), statistics);
  Block* first = pool.allocate(100_KiB);
  Block* second = pool.allocate(100_KiB);
  Block* third = pool.allocate(100_KiB);
  pool.free(second);
  third->record.store(reinterpret_cast<Record*>(third), std::memory_order_relaxed);
  std::vector<Pool::BlockView> views;
  pool.visit_blocks(
      [](void* context, const Pool::BlockView& view) {
        static_cast<std::vector<Pool::BlockView>*>(context)->push_back(view);
      },
      &views);
  ASSERT_EQ(views.size(), 4u);
  const std::byte* next = first->begin;
  std::size_t sum = 0;
  for (const Pool::BlockView& view : views) {
    EXPECT_EQ(view.begin, next);
    next += view.bytes;
    sum += view.bytes;
  }
  EXPECT_EQ(sum, current(statistics, StatKind::kReserved));
  EXPECT_TRUE(views[0].in_use && !views[0].saved);
  EXPECT_FALSE(views[1].in_use);
  EXPECT_TRUE(views[2].in_use && views[2].saved);
  EXPECT_FALSE(views[3].in_use);
}

// The model maps the addresses in use, and searches them naively.
class Model {
 public:
  explicit Model(std::byte* base) : base_(base) {}
  // The lowest hole.
  std::byte* first_fit(std::size_t bytes) const {
    std::byte* at = base_;
    for (const auto& [begin, length] : used_) {
      if (static_cast<std::size_t>(begin - at) >= bytes) break;
      at = begin + length;
    }
    return at;
  }
  // The smallest hole that is large enough below `end`, the lowest on a tie.
  std::byte* best_fit(std::size_t bytes, std::byte* end) const {
    std::byte* best = nullptr;
    std::size_t least = SIZE_MAX;
    std::byte* at = base_;
    const auto consider = [&](std::byte* hole_end) {
      const auto hole = static_cast<std::size_t>(hole_end - at);
      if (hole >= bytes && hole < least) {
        least = hole;
        best = at;
      }
    };
    for (const auto& [begin, length] : used_) {
      consider(begin);
      at = begin + length;
    }
    consider(end);
    return best;
  }
  bool is_free(const std::byte* begin, std::size_t bytes) const {
    for (const auto& [other, length] : used_) {
      if (begin < other + length && other < begin + bytes) return false;
    }
    return true;
  }
  void add(std::byte* begin, std::size_t bytes) { used_[begin] = bytes; }
  void remove(std::byte* begin) { used_.erase(begin); }
  std::size_t sum() const {
    std::size_t total = 0;
    for (const auto& [begin, length] : used_) total += length;
    return total;
  }

 private:
  std::byte* base_;
  std::map<std::byte*, std::size_t> used_;
};

struct ModelTest : PoolTest, ::testing::WithParamInterface<bool> {};

// If all pages are resident, the smallest hole is taken, unless one of the last eight large freed
// blocks had that size. If pages come and go, the place touches no more pages than the lowest one
// would.
TEST_P(ModelTest, AgreesWithTheModel) {
  const bool pages_come_and_go = GetParam();
  PLEAT_SEED(seed);
  std::mt19937_64 random(seed);
  device.caps.reserves_freely = pages_come_and_go;
  device.caps.returns_pages = pages_come_and_go;
  PoolOptions options = small_options();
  options.growth_bytes = 512_MiB;  // one segment, as in the model
  options.reserve_bytes = 1_GiB;
  options.extend_bytes = 1_MiB;
  options.epoch_ns = 10'000'000;
  Pool pool(device, options, statistics);
  Block* probe = pool.allocate(1);
  std::byte* const probe_begin = probe->begin;
  Model model(probe_begin);
  pool.free(probe);
  std::vector<Block*> live;
  std::vector<std::pair<std::byte*, std::size_t>> freed;  // the last eight
  const auto expected = [&](std::size_t bytes) {
    const auto place = std::find_if(freed.rbegin(), freed.rend(), [&](const auto& one) {
      return one.second == bytes && model.is_free(one.first, bytes);
    });
    if (place == freed.rend()) return model.best_fit(bytes, probe_begin + 512_MiB);
    std::byte* const begin = place->first;
    *place = {nullptr, 0};
    return begin;
  };
  std::size_t requested = 0;
  const auto round = [](std::size_t bytes) { return (bytes + 4095) / 4096 * 4096; };
  for (int step = 0; step < scaled(30000); ++step) {
    const auto dice = random() % 100;
    // Among very many holes, only some are visited.
    const std::size_t most = pages_come_and_go && step / 3000 % 2 == 0 ? 300 : 60;
    if (dice < 5 && !live.empty()) {
      Block* block = live[random() % live.size()];
      const std::size_t bytes = 1 + random() % block->requested;
      requested -= block->requested - bytes;
      pool.shrink(block, bytes);
      model.add(block->begin, round(bytes));
    } else if (dice < 6 &&
               !live.empty()) {  // without a block the segment could be released as well
      pool.trim();
    } else if (live.size() < most && (live.empty() || dice < 60)) {
      const std::size_t bytes = 1 + (random() % 1_MiB >> (random() % 20));
      std::byte* const lowest = model.first_fit(round(bytes));
      const auto first_page = reinterpret_cast<std::uintptr_t>(lowest) / 64_KiB;
      const auto last_page = (reinterpret_cast<std::uintptr_t>(lowest) + bytes - 1) / 64_KiB;
      const auto touched = statistics.read(StatKind::kReserved).allocated;
      Block* block = pool.allocate(bytes);
      ASSERT_NE(block, nullptr);
      if (pages_come_and_go) {
        ASSERT_TRUE(model.is_free(block->begin, block->bytes)) << step;
        ASSERT_LE(statistics.read(StatKind::kReserved).allocated - touched,
                  (last_page - first_page + 1) * 64_KiB);
      } else {
        ASSERT_EQ(block->begin, expected(block->bytes)) << step;
      }
      ASSERT_EQ(pool.find(block->begin), block);
      model.add(block->begin, block->bytes);
      requested += bytes;
      live.push_back(block);
    } else {
      std::swap(live[random() % live.size()], live.back());
      requested -= live.back()->requested;
      model.remove(live.back()->begin);
      if (live.back()->bytes >= 64_KiB) freed.emplace_back(live.back()->begin, live.back()->bytes);
      if (freed.size() > 8) freed.erase(freed.begin());
      pool.free(live.back());
      live.pop_back();
    }
    if (step % 16 == 0) {
      ASSERT_STREQ(pool.check_invariants(), "") << step;
      ASSERT_EQ(current(statistics, StatKind::kRequested), requested);
      ASSERT_EQ(current(statistics, StatKind::kActive), model.sum());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(PagesComeAndGo, ModelTest, ::testing::Bool());

TEST_F(PoolTest, ManySmallSegmentsKeepTheInvariants) {
  PLEAT_SEED(seed);
  std::mt19937_64 random(seed);
  FakeDevice tight(12_MiB);
  PoolOptions options = small_options();
  options.growth_bytes = 512_KiB;
  Pool pool(tight, options, statistics);
  std::vector<Block*> live;
  int refused = 0;
  for (int step = 0; step < scaled(20000); ++step) {
    if (random() % 500 == 0) pool.trim();
    if (live.empty() || random() % 100 < 52) {
      Block* block = pool.allocate(1 + (random() % 4_MiB >> (random() % 12)));
      block != nullptr ? live.push_back(block) : static_cast<void>(++refused);
    } else {
      std::swap(live[random() % live.size()], live.back());
      ASSERT_EQ(pool.find(live.back()->begin), live.back());
      pool.free(live.back());
      live.pop_back();
    }
    if (step % 16 == 0) {
      ASSERT_STREQ(pool.check_invariants(), "") << step;
    }
    ASSERT_LE(current(statistics, StatKind::kReserved), tight.reserved);
  }
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace pleat::allocator
