// The resident pages of a pool: pages touched, released and moved.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <optional>
#include <set>
#include <vector>

#include "allocator/host/density_by_size.h"
#include "allocator/host/pool.h"
#include "allocator/store/payload_arena.h"
#include "test_support.h"

namespace pleat::allocator {
namespace {

using namespace testing;

// Free memory beyond the live bytes is released, or moved, at once.
PoolOptions no_slack() {
  PoolOptions options = small_options();
  options.resident_slack_bytes = 0;
  options.resident_slack_fraction = 0;
  return options;
}

struct PoolPagesTest : ::testing::Test {
  FakeDevice device{1_GiB};
  Statistics statistics;
};

std::size_t limit_for(std::size_t high, const PoolOptions& options) {
  return high +
         static_cast<std::size_t>(static_cast<double>(high) * options.resident_slack_fraction) +
         options.resident_slack_bytes;
}

TEST_F(PoolPagesTest, ResidentStaysWithinTheLimitWhileWholePagesAreFree) {
  PLEAT_SEED(seed);
  std::mt19937_64 random(seed);
  device.caps.reserves_freely = true;
  PoolOptions options = small_options();
  options.epoch_ns = 3'600'000'000'000;
  Pool pool(device, options, statistics);
  std::vector<Block*> live;
  std::size_t high = 0;
  // Page-sized blocks: every free page can be released, so the limit holds exactly.
  for (int step = 0; step < scaled(20000); ++step) {
    if (live.size() > 200 || (!live.empty() && random() % 2 == 0)) {
      std::swap(live[random() % live.size()], live.back());
      pool.free(live.back());
      live.pop_back();
    } else if (Block* block = pool.allocate(64_KiB * (1 + random() % 8))) {
      live.push_back(block);
    }
    high = std::max(high, current(statistics, StatKind::kActive));
    ASSERT_LE(current(statistics, StatKind::kReserved), limit_for(high, options)) << step;
    if (step % 64 == 0) {
      ASSERT_STREQ(pool.check_invariants(), "") << step;
    }
  }
  EXPECT_GE(statistics.read(StatKind::kRequested).peak,
            statistics.read(StatKind::kReserved).peak * 9 / 10);
}

TEST_F(PoolPagesTest, RepeatedStepPurgesNoPages) {
  device.caps.reserves_freely = true;
  Pool pool(device, small_options(), statistics);
  const auto step = [&] {
    std::vector<Block*> blocks;
    for (std::size_t i = 0; i < 40; ++i)
      blocks.push_back(pool.allocate(100_KiB + 37_KiB * (i % 7)));
    for (std::size_t i = 0; i < 40; i += 2) pool.free(blocks[i]);
    for (std::size_t i = 39; i < 40; i -= 2) pool.free(blocks[i]);
  };
  step();
  const auto touched = statistics.read(StatKind::kReserved).allocated;
  for (int i = 0; i < 100; ++i) step();
  EXPECT_EQ(statistics.read(StatKind::kReserved).allocated, touched);
  EXPECT_EQ(device.released_pages_bytes, 0u);
}

TEST_F(PoolPagesTest, HighPagesAreReleasedFirstAndNoMoreThanNeeded) {
  device.caps.reserves_freely = true;
  Pool pool(device, no_slack(), statistics);
  std::vector<Block*> blocks;
  for (int i = 0; i < 16; ++i) blocks.push_back(pool.allocate(64_KiB));
  pool.free(blocks[2]);
  pool.free(blocks[4]);
  pool.free(blocks[14]);
  // No two free pages in a row lie below, so two new ones are touched. At most 16 were live, so two
  // of the three free ones must be released: the 14th and the 4th.
  Block* wide = pool.allocate(128_KiB);
  ASSERT_NE(wide, nullptr);
  EXPECT_EQ(device.released_pages_bytes, 128_KiB);
  EXPECT_EQ(current(statistics, StatKind::kReserved), 16 * 64_KiB);
  EXPECT_STREQ(pool.check_invariants(), "");
  // The 2nd is still resident: taking it touches no new page.
  const auto touched = statistics.read(StatKind::kReserved).allocated;
  ASSERT_EQ(pool.allocate(64_KiB)->begin, blocks[0]->begin + 128_KiB);
  EXPECT_EQ(statistics.read(StatKind::kReserved).allocated, touched);
}

// Simulates the kernel for a segment advised to use huge pages of eight pages each.
class HugePageKernel {
 public:
  static constexpr std::uintptr_t kPage = 64_KiB, kPagesPerHuge = 8;

  // `rejoins`: see DeviceCapabilities::huge_pages_rejoin. With caps.joins_pages, only joined huge
  // pages are advised.
  explicit HugePageKernel(FakeDevice& device, bool rejoins = false)
      : rejoins_(rejoins), joins_(device.caps.joins_pages) {
    device.on_release = [this](std::byte* begin, std::size_t bytes, bool whole) {
      return release(begin, bytes, whole);
    };
    device.on_move = [this](std::byte* from, std::byte* to, std::size_t bytes, bool whole) {
      move(from, to, bytes, whole);
    };
    device.on_join = [this](std::byte* begin) { return join(begin); };
    device.on_expect_whole = [this](std::byte* begin, std::size_t bytes) {
      return expect_whole(begin, bytes);
    };
    device.on_look = [this](std::byte* begin, std::size_t pages, bool* present) {
      return look(begin, pages, present);
    };
  }
  bool whole_pays = true;
  bool joins_now = true;  // else when all pages were released and are touched again
  bool maps_anew = true;

  void touch(const std::byte* begin, std::size_t bytes) {
    const std::uintptr_t first = page_of(begin), last = page_of(begin + bytes - 1);
    for (std::uintptr_t page = first; page <= last; ++page) {
      const std::uintptr_t huge = page / kPagesPerHuge;
      const bool advised = !joins_ || advised_.count(huge) != 0;
      if (advised && present(huge) == 0 && split_.count(huge) == 0) {
        for (std::uintptr_t i = 0; i < kPagesPerHuge; ++i) pages_.insert(huge * kPagesPerHuge + i);
      }
      pages_.insert(page);
    }
  }
  Released release(const std::byte* begin, std::size_t bytes, bool whole) {
    const std::uintptr_t first = page_of(begin), end = page_of(begin + bytes);
    for (std::uintptr_t page = first; page < end; ++page) {
      if (pages_.erase(page) != 0) touched_.insert(page / kPagesPerHuge);
    }
    for (const std::uintptr_t huge : touched_) {
      if (present(huge) != 0) split_.insert(huge);
    }
    touched_.clear();
    if (!rejoins_) return Released::kPages;
    const bool anew = maps_anew && first % kPagesPerHuge == 0 && end % kPagesPerHuge == 0;
    for (std::uintptr_t page = first; page + kPagesPerHuge <= end; ++page) {
      if (page % kPagesPerHuge != 0) continue;
      rejoined_ += split_.erase(page / kPagesPerHuge);
      if (anew) advise(page / kPagesPerHuge, whole);
    }
    return anew ? Released::kAnew : Released::kPages;
  }
  // Moves whole huge pages with their resident pages. The target must have no pages.
  void move(const std::byte* from, const std::byte* to, std::size_t bytes, bool whole) {
    for (std::uintptr_t i = 0; i < bytes / kPage; i += kPagesPerHuge) {
      const std::uintptr_t source = (page_of(from) + i) / kPagesPerHuge;
      const std::uintptr_t target = (page_of(to) + i) / kPagesPerHuge;
      EXPECT_EQ(present(target), 0u);
      EXPECT_EQ(whole, !joins_ || advised_.count(source) != 0);
      for (std::uintptr_t page = 0; page < kPagesPerHuge; ++page) {
        if (pages_.erase(source * kPagesPerHuge + page) != 0)
          pages_.insert(target * kPagesPerHuge + page);
      }
      split_.erase(target);
      if (split_.erase(source) != 0) split_.insert(target);
      advise(target, whole);
    }
  }
  Joined join(const std::byte* begin) {
    const std::uintptr_t huge = page_of(begin) / kPagesPerHuge;
    advise(huge, true);
    if (!joins_now) {
      split_.insert(huge);
      return Joined::kLater;
    }
    ++joined_;
    split_.erase(huge);
    for (std::uintptr_t i = 0; i < kPagesPerHuge; ++i) pages_.insert(huge * kPagesPerHuge + i);
    return Joined::kWhole;
  }
  bool expect_whole(const std::byte* begin, std::size_t bytes) {
    if (!whole_pays) return false;
    EXPECT_EQ(page_of(begin) % kPagesPerHuge, 0u);
    EXPECT_EQ(bytes % (kPagesPerHuge * kPage), 0u);
    for (std::uintptr_t i = 0; i < bytes / kPage; i += kPagesPerHuge) {
      const std::uintptr_t huge = (page_of(begin) + i) / kPagesPerHuge;
      EXPECT_EQ(present(huge), 0u);
      EXPECT_EQ(split_.count(huge), 0u) << "would come singly all the same";
      advise(huge, true);
    }
    return true;
  }
  std::size_t look(const std::byte* begin, std::size_t pages, bool* there) const {
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < pages; ++i) {
      there[i] = pages_.count(page_of(begin) + i) != 0;
      bytes += there[i] ? kPage : 0;
    }
    return bytes;
  }
  // A block that is written at once. The pool's count of resident bytes must equal the kernel's.
  Block* allocate(Pool& pool, std::size_t bytes) {
    Block* block = pool.allocate(bytes);
    touch(block->begin, bytes);
    EXPECT_EQ(current(pool.statistics(), StatKind::kReserved), resident());
    return block;
  }
  std::size_t rejoined() const { return rejoined_; }
  std::size_t joined() const { return joined_; }
  std::size_t resident() const { return pages_.size() * kPage; }
  std::size_t split() const { return split_.size(); }

 private:
  static std::uintptr_t page_of(const std::byte* p) {
    return reinterpret_cast<std::uintptr_t>(p) / kPage;
  }
  std::size_t present(std::uintptr_t huge) const {
    return static_cast<std::size_t>(std::distance(pages_.lower_bound(huge * kPagesPerHuge),
                                                  pages_.lower_bound((huge + 1) * kPagesPerHuge)));
  }
  void advise(std::uintptr_t huge, bool whole) {
    if (whole) {
      advised_.insert(huge);
    } else {
      advised_.erase(huge);
    }
  }
  bool rejoins_;
  bool joins_;
  std::size_t rejoined_ = 0;
  std::size_t joined_ = 0;
  std::set<std::uintptr_t> pages_, split_, touched_, advised_;
};

TEST_F(PoolPagesTest, HugePagesAreSplitOnlyWhenWholeOnesDoNotSuffice) {
  device.caps.reserves_freely = true;
  device.caps.huge_page_bytes = 512_KiB;
  HugePageKernel kernel(device);
  Pool pool(device, no_slack(), statistics);
  const auto allocate = [&](std::size_t bytes) { return kernel.allocate(pool, bytes); };
  // Of four huge pages, half of the second and all of the fourth become free.
  std::vector<Block*> blocks;
  for (int i = 0; i < 16; ++i) blocks.push_back(allocate(128_KiB));
  EXPECT_EQ(kernel.resident(), 2_MiB);
  const std::byte* const hole_begin = blocks[5]->begin;
  pool.free(blocks[5]);
  pool.free(blocks[6]);
  for (int i = 12; i < 16; ++i) pool.free(blocks[static_cast<std::size_t>(i)]);
  Block* wide = allocate(512_KiB);  // fits the fourth
  EXPECT_EQ(kernel.split(), 0u);
  // A fifth huge page is needed, and only the hole in the second is free: it is released, which
  // splits that huge page.
  Block* wider = allocate(512_KiB);
  EXPECT_EQ(kernel.split(), 1u);
  EXPECT_EQ(kernel.resident(), 2_MiB + 512_KiB - 256_KiB);
  // The hole becomes resident again page by page.
  const std::byte* const hole = allocate(64_KiB)->begin;
  EXPECT_EQ(hole, hole_begin);
  EXPECT_EQ(kernel.resident(), 2_MiB + 256_KiB + 64_KiB);
  EXPECT_EQ(kernel.split(), 1u);
  // A sixth is needed: half of the third is released for it.
  pool.free(blocks[9]);
  pool.free(blocks[10]);
  allocate(320_KiB);
  EXPECT_EQ(kernel.split(), 2u);
  EXPECT_EQ(kernel.resident(), 2_MiB + 512_KiB + 64_KiB);
  pool.free(wide);
  pool.free(wider);
  EXPECT_STREQ(pool.check_invariants(), "");
}

TEST_F(PoolPagesTest, FreeHugePagesMoveToWhereTheyAreNeeded) {
  device.let_pages_move();
  device.caps.huge_pages_rejoin = true;
  HugePageKernel kernel(device, true);
  Pool pool(device, no_slack(), statistics);
  const auto allocate = [&](std::size_t bytes) { return kernel.allocate(pool, bytes); };
  std::vector<Block*> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(allocate(512_KiB));
  for (const std::size_t i : {1u, 3u, 5u}) pool.free(blocks[i]);
  // No three free ones are in a row: the three free ones are moved behind the last.
  Block* wide = allocate(1536_KiB);
  EXPECT_EQ(wide->begin, blocks[7]->begin + 512_KiB);
  EXPECT_EQ(device.moved_pages_bytes, 1536_KiB);
  EXPECT_EQ(device.released_pages_bytes, 0u);
  EXPECT_EQ(kernel.resident(), 4_MiB);
  EXPECT_STREQ(pool.check_invariants(), "");
  // The holes have no pages now, and serve other blocks.
  pool.free(wide);
  EXPECT_EQ(allocate(2_MiB)->begin, wide->begin) << "as before, and one more";
  EXPECT_EQ(allocate(256_KiB)->begin, blocks[1]->begin);
  EXPECT_STREQ(pool.check_invariants(), "");
}

TEST_F(PoolPagesTest, TouchedAndMovedPagesAreEventsAndTheBlocksEventHasTheChanges) {
  device.let_pages_move();
  HugePageKernel kernel(device, true);
  CountingSink sink;
  Pool pool(device, no_slack(), statistics);
  pool.events().attach(&sink);
  std::vector<Block*> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(kernel.allocate(pool, 512_KiB));
  EXPECT_EQ(sink.bytes[EventKind::kPagesTouch], 4_MiB);
  EXPECT_EQ(sink.last.kind, EventKind::kAllocate);
  EXPECT_EQ(sink.last.change[static_cast<std::size_t>(StatKind::kReserved)], 512 << 10);
  for (const std::size_t i : {1u, 3u, 5u}) pool.free(blocks[i]);
  kernel.allocate(pool, 1536_KiB);
  EXPECT_EQ(sink.bytes[EventKind::kPagesTouch], 4_MiB) << "all were moved there";
  EXPECT_EQ(sink.bytes[EventKind::kPagesMove], 1536_KiB);
  EXPECT_EQ(sink.last.change[static_cast<std::size_t>(StatKind::kReserved)], 0);
  pool.events().attach(nullptr);
}

// A touch of the block's last bytes would make a whole huge page resident.
TEST_F(PoolPagesTest, HugePageAtABlocksEndIsMovedToo) {
  device.let_pages_move();
  HugePageKernel kernel(device);
  Pool pool(device, no_slack(), statistics);
  const auto allocate = [&](std::size_t bytes) { return kernel.allocate(pool, bytes); };
  std::vector<Block*> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(allocate(512_KiB));
  for (const std::size_t i : {1u, 3u, 5u}) pool.free(blocks[i]);
  Block* wide = allocate(1_MiB + 64_KiB);
  EXPECT_EQ(wide->begin, blocks[7]->begin + 512_KiB);
  EXPECT_EQ(device.moved_pages_bytes, 1536_KiB);
  EXPECT_EQ(device.released_pages_bytes, 0u);
  EXPECT_EQ(kernel.split(), 0u);
  EXPECT_EQ(allocate(128_KiB)->begin, wide->begin + 1_MiB + 64_KiB) << "the rest of it is there";
  EXPECT_EQ(kernel.resident(), 4_MiB);
  EXPECT_STREQ(pool.check_invariants(), "");
}

TEST_F(PoolPagesTest, PagesThatCannotBeMovedAreReleased) {
  device.let_pages_move();
  device.move_works = false;
  Pool pool(device, no_slack(), statistics);
  std::vector<Block*> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(pool.allocate(512_KiB));
  for (const std::size_t i : {1u, 3u, 5u}) pool.free(blocks[i]);
  ASSERT_NE(pool.allocate(1536_KiB), nullptr);
  EXPECT_EQ(device.released_pages_bytes, 1536_KiB);
  EXPECT_EQ(current(statistics, StatKind::kReserved), 4_MiB);
  EXPECT_STREQ(pool.check_invariants(), "");
}

TEST_F(PoolPagesTest, WithMovablePagesLargeBlocksBeginAtAHugePage) {
  device.caps.reserves_freely = true;
  device.caps.huge_page_bytes = 512_KiB;
  for (const bool moves : {false, true}) {
    device.caps.move_bytes = moves ? 1_MiB : 0;
    Statistics own;
    Pool pool(device, small_options(), own);
    Block* small = pool.allocate(64_KiB);
    Block* large = pool.allocate(1_MiB);
    Block* between = pool.allocate(256_KiB);
    EXPECT_EQ(large->begin - small->begin, static_cast<std::ptrdiff_t>(moves ? 512_KiB : 64_KiB));
    EXPECT_EQ(between->begin < large->begin, moves) << "small ones fill the gap";
    // The same place again, although the shortest touched stretch begins elsewhere.
    pool.free(small);
    std::byte* const was = large->begin;
    pool.free(large);
    Block* other = pool.allocate(1020_KiB);
    EXPECT_EQ(other->begin, moves ? was : was - 64_KiB);
    EXPECT_STREQ(pool.check_invariants(), "");
  }
}

TEST_F(PoolPagesTest, LargeBlockDoesNotReuseAnUnalignedPlace) {
  device.let_pages_move();
  PoolOptions options = small_options();
  options.reserve_bytes = options.extend_bytes = options.growth_bytes = 8_MiB;
  Pool pool(device, options, statistics);
  // With the addresses used up, a block is put where it fits, behind a small one.
  std::vector<Block*> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(pool.allocate(1_MiB));
  device.reserves = device.extends = false;
  const std::byte* const base = blocks[0]->begin;
  pool.free(blocks[3]);
  pool.free(blocks[4]);
  (void)pool.allocate(768_KiB);  // leaves 3 MiB and 768 KiB to 5 MiB
  Block* unaligned = pool.allocate(1_MiB + 256_KiB);
  ASSERT_NE(unaligned, nullptr);
  ASSERT_EQ(unaligned->begin, base + 3_MiB + 768_KiB);
  pool.free(blocks[0]);
  pool.free(blocks[1]);
  pool.free(unaligned);
  EXPECT_EQ(pool.allocate(1_MiB + 256_KiB)->begin, base);
  EXPECT_STREQ(pool.check_invariants(), "");
}

// Parameters: a huge page rejoins, can be moved, and exists only after a join.
struct HugePageTest : PoolPagesTest, ::testing::WithParamInterface<std::tuple<bool, bool, bool>> {};

TEST_P(HugePageTest, ResidentBytesFollowTheKernel) {
  PLEAT_SEED(seed);
  std::mt19937_64 random(seed);
  device.caps.reserves_freely = true;
  device.caps.huge_page_bytes = 512_KiB;
  const auto [rejoins, moves, joins] = GetParam();
  device.caps.huge_pages_rejoin = rejoins;
  device.caps.joins_pages = joins;
  device.caps.move_bytes = moves ? 1_MiB : 0;
  HugePageKernel kernel(device, rejoins);
  PoolOptions options = small_options();
  options.reserve_bytes = 1_GiB;
  options.extend_bytes = 1_MiB;
  options.resident_slack_bytes = 64_KiB;
  options.resident_slack_fraction = 0.02;
  options.epoch_ns = 10'000'000;
  options.join_share = 1e6;
  Pool pool(device, options, statistics);
  PayloadArena arena(pool, {256_KiB, 256});
  std::vector<Block*> live;
  std::vector<PayloadSlot> payloads;
  for (int step = 0; step < scaled(20000); ++step) {
    if (random() % 2000 == 0) pool.trim();
    const std::size_t most = step / scaled(2000) % 2 == 0 ? 100 : 20;
    if (random() % 4 == 0) {
      if (payloads.empty() || (payloads.size() < most && random() % 100 < 55)) {
        payloads.push_back(arena.allocate(1 + random() % 300_KiB));
        pool.visit_blocks(  // it can be in a chunk with others
            [](void* context, const Pool::BlockView& view) {
              if (!view.in_use) return;
              static_cast<HugePageKernel*>(context)->touch(
                  static_cast<std::byte*>(const_cast<void*>(view.begin)), view.bytes);
            },
            &kernel);
      } else {
        std::swap(payloads[random() % payloads.size()], payloads.back());
        arena.free(payloads.back());
        payloads.pop_back();
      }
    } else if (live.empty() || (live.size() < most && random() % 100 < 55)) {
      Block* block = pool.allocate(1 + (random() % 4_MiB >> (random() % 8)));
      kernel.touch(block->begin, block->bytes);
      live.push_back(block);
    } else {
      std::swap(live[random() % live.size()], live.back());
      pool.free(live.back());
      live.pop_back();
    }
    ASSERT_EQ(current(statistics, StatKind::kReserved), kernel.resident()) << step;
    if (step % 64 == 0) {
      ASSERT_STREQ(pool.check_invariants(), "") << step;
    }
    device.move_works = random() % 8 != 0;
    kernel.joins_now = random() % 8 != 0;
    kernel.maps_anew = random() % 8 != 0;
  }
  if (scaled(20000) < 20000) return;  // a sanitizer's few steps can lack one of these
  EXPECT_GT(kernel.split(), 0u);
  EXPECT_EQ(kernel.joined() > 0, joins);
  EXPECT_EQ(kernel.rejoined() > 0, rejoins);
  EXPECT_EQ(device.moved_pages_bytes > 0, moves);
}
INSTANTIATE_TEST_SUITE_P(Kernels, HugePageTest,
                         ::testing::Values(std::tuple(false, false, false),
                                           std::tuple(true, false, false),
                                           std::tuple(true, true, false),
                                           std::tuple(false, false, true),
                                           std::tuple(true, true, true)));

// Small pages first; the kernel joins them into huge ones on request.
struct DensityTest : PoolPagesTest {
  DensityTest() {
    device.let_pages_move();
    device.caps.huge_pages_rejoin = device.caps.joins_pages = true;
    kernel.emplace(device, true);
    options.reserve_bytes = 1_GiB;
    options.join_share = 1e6;
    options.guessed_bytes = 0;
  }
  // Uses the pool often enough for it to examine its pages.
  void use(Pool& pool) {
    for (int i = 0; i < 200; ++i) {
      Block* const block = pool.allocate(4_KiB);
      kernel->touch(block->begin, 4_KiB);
      pool.free(block);
    }
  }
  PoolOptions options = small_options();
  std::optional<HugePageKernel> kernel;
};

TEST_F(DensityTest, OnlyWrittenPagesOfASparseBlockCount) {
  Pool pool(device, options, statistics);
  Block* block = pool.allocate(64_MiB);
  for (std::size_t i = 0; i < 16; ++i) kernel->touch(block->begin + i * 4_MiB, 4_KiB);
  for (int round = 0; round < 3; ++round) {
    use(pool);
    EXPECT_LE(kernel->resident(), 17 * 64_KiB);
  }
  EXPECT_EQ(kernel->joined(), 0u);
  EXPECT_GE(current(statistics, StatKind::kReserved), 64_MiB) << "may be written at any time";
  pool.free(block);
  EXPECT_EQ(current(statistics, StatKind::kReserved), kernel->resident());
  EXPECT_STREQ(pool.check_invariants(), "");
}

// Dense blocks of another size leave touched pages to every sparse one.
TEST_F(DensityTest, SparseSizeGetsFreshPagesAndLeavesNone) {
  Pool pool(device, options, statistics);
  std::size_t others = 0;
  for (int step = 0; step < 4; ++step) {
    Block* sparse = pool.allocate(64_MiB);
    EXPECT_EQ(kernel->resident(), others);
    for (std::size_t i = 0; i < 16; ++i) kernel->touch(sparse->begin + i * 4_MiB, 4_KiB);
    EXPECT_EQ(kernel->resident(), others + 16 * 64_KiB);
    pool.free(sparse);
    EXPECT_EQ(kernel->resident(), others);
    Block* dense = pool.allocate(65_MiB);
    kernel->touch(dense->begin, 65_MiB);
    pool.free(dense);
    others = 65_MiB;
    EXPECT_EQ(kernel->resident(), others) << "found again";
    EXPECT_EQ(current(statistics, StatKind::kReserved), kernel->resident());
    EXPECT_STREQ(pool.check_invariants(), "");
  }
}

TEST_F(DensityTest, SparseSizeThatIsWrittenKeepsItsPagesAgain) {
  Pool pool(device, options, statistics);
  pool.free(pool.allocate(8_MiB));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(kernel->resident(), i == 0 ? 0 : 8_MiB);
    Block* block = pool.allocate(8_MiB);
    kernel->touch(block->begin, 8_MiB);
    EXPECT_EQ(kernel->resident(), 8_MiB);
    pool.free(block);
  }
}

// Examining each block would make 4,000 calls.
TEST_F(DensityTest, UntouchedBlockIsExaminedRarelyAndLeavesNoPages) {
  Pool pool(device, options, statistics);
  int looks = 0;
  device.on_look = [&](std::byte* begin, std::size_t pages, bool* present) {
    ++looks;
    return kernel->look(begin, pages, present);
  };
  Block* first = pool.allocate(64_MiB);
  const std::byte* const place = first->begin;
  pool.free(first);
  for (int i = 0; i < 2000; ++i) {
    Block* block = pool.allocate(64_MiB);
    ASSERT_EQ(block->begin, place);
    pool.free(block);
    ASSERT_EQ(current(statistics, StatKind::kReserved), 0u);
  }
  EXPECT_LE(looks, 300);
}

TEST_F(DensityTest, LongSparseSizeThatIsWrittenSoonKeepsItsPages) {
  Pool pool(device, options, statistics);
  for (int i = 0; i < 200; ++i) pool.free(pool.allocate(8_MiB));
  int given_back = 0;
  for (int i = 0; i < 40; ++i) {
    Block* block = pool.allocate(8_MiB);
    kernel->touch(block->begin, 8_MiB);
    pool.free(block);
    given_back += kernel->resident() == 0 ? 1 : 0;
  }
  EXPECT_LE(given_back, 16);
  EXPECT_EQ(kernel->resident(), 8_MiB);
}

// The density of the first block of a size is unknown. Blocks after a dense one get huge pages.
TEST_F(DensityTest, BlocksOfADenseSizeGetHugePages) {
  for (const bool pays : {true, false}) {
    kernel.emplace(device, true);
    kernel->whole_pays = pays;
    Statistics own;
    Pool pool(device, options, own);
    Block* first = pool.allocate(8_MiB);
    kernel->touch(first->begin, 4_KiB);
    EXPECT_EQ(kernel->resident(), 64_KiB);
    kernel->touch(first->begin, 8_MiB);
    pool.free(first);
    first = pool.allocate(8_MiB);
    Block* second = pool.allocate(8_MiB);
    for (std::size_t at = 0; at < 8_MiB; at += 512_KiB) kernel->touch(second->begin + at, 4_KiB);
    EXPECT_EQ(kernel->resident(), pays ? 16_MiB : 9_MiB);
    EXPECT_EQ(current(own, StatKind::kReserved), 16_MiB) << "may be written at any time";
    pool.free(second);
    EXPECT_EQ(current(own, StatKind::kReserved), kernel->resident());
    EXPECT_STREQ(pool.check_invariants(), "");
    pool.free(first);
  }
}

TEST_F(DensityTest, UnknownSizesGetHugePagesUpToTheGuessedBytes) {
  options.guessed_bytes = 12_MiB;
  Pool pool(device, options, statistics);
  std::size_t written = 0;
  // One is too large for a guess; the fourth of the others exceeds the guessed bytes.
  for (const std::size_t size : {5_MiB, 4_MiB, 3_MiB, 2_MiB, 4_MiB + 512_KiB, 4_MiB, 3_MiB}) {
    Block* block = pool.allocate(size);
    for (std::size_t at = 0; at < size; at += 512_KiB) {
      kernel->touch(block->begin + at, 4_KiB);
      written += 64_KiB;
    }
  }
  const std::size_t guessed = 4_MiB + 3_MiB + 2_MiB + 3_MiB;
  EXPECT_EQ(kernel->resident(), written + guessed - guessed / 8);
  EXPECT_STREQ(pool.check_invariants(), "");
}

TEST_F(DensityTest, PayloadsGetHugePages) {
  Pool pool(device, options, statistics);
  const Block* payload = pool.allocate_packed(64_KiB);
  kernel->touch(payload->begin, 4_KiB);
  EXPECT_EQ(kernel->resident(), 512_KiB);
  EXPECT_EQ(current(statistics, StatKind::kReserved), 512_KiB);
}

TEST(DensityBySize, SizeIsSparseFromAQuarterUnwrittenUntilNearlyAllIsWritten) {
  DensityBySize sizes;
  sizes.note(1000, 1000, 249);
  EXPECT_EQ(sizes.unwritten(1000), 0u);
  sizes.note(1000, 1000, 250);
  EXPECT_EQ(sizes.unwritten(1000), 250u);
  EXPECT_EQ(sizes.unwritten(999), 0u);
  sizes.note(1000, 1000, 125);
  EXPECT_EQ(sizes.unwritten(1000), 125u);
  sizes.note(1000, 1000, 124);
  EXPECT_EQ(sizes.unwritten(1000), 0u);
  for (std::size_t size = 1; size <= 100; ++size) sizes.note(size, size, size);
  EXPECT_EQ(sizes.unwritten(1), 0u);
  EXPECT_EQ(sizes.unwritten(100), 100u);
}

TEST(DensityBySize, SizeIsDenseOnceNearlyAllIsWrittenUntilAQuarterIsNot) {
  DensityBySize sizes;
  EXPECT_FALSE(sizes.is_dense(1000));
  sizes.note(1000, 1000, 125);
  EXPECT_FALSE(sizes.is_dense(1000));
  sizes.note(1000, 1000, 124);
  EXPECT_TRUE(sizes.is_dense(1000));
  EXPECT_FALSE(sizes.is_dense(999));
  sizes.note(1000, 1000, 249);
  EXPECT_TRUE(sizes.is_dense(1000));
  sizes.note(1000, 1000, 250);
  EXPECT_FALSE(sizes.is_dense(1000));
}

TEST(DensityBySize, OnlySparseSizesAreExaminedLessOften) {
  DensityBySize sizes;
  sizes.note(1000, 1000, 1000);
  int looks = 0;
  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE(sizes.is_look_due(999));
    if (!sizes.is_look_due(1000)) continue;
    ++looks;
    sizes.note(1000, 1000, 1000);
  }
  EXPECT_GE(looks, 1000 / 17);
  EXPECT_LE(looks, 70);
}

TEST_F(DensityTest, DenselyWrittenBlocksAreJoinedIntoHugePages) {
  for (const bool at_once : {true, false}) {
    kernel.emplace(device, true);
    kernel->joins_now = at_once;
    Statistics own;
    Pool pool(device, options, own);
    Block* block = pool.allocate(8_MiB);
    kernel->touch(block->begin, 8_MiB);
    EXPECT_EQ(kernel->resident(), 8_MiB);
    use(pool);
    EXPECT_EQ(kernel->joined(), at_once ? 16u : 0u);
    // After all of it was released and is needed again, its huge pages become resident whole.
    Block* other = pool.allocate(8_MiB);
    kernel->touch(other->begin, 8_MiB);
    pool.free(block);
    Block* larger = pool.allocate(9_MiB);
    kernel->touch(larger->begin, 9_MiB);
    for (Block* one : {other, larger}) pool.free(one);
    block = pool.allocate(7_MiB + 64_KiB);
    kernel->touch(block->begin, 7_MiB + 64_KiB);
    EXPECT_EQ(current(own, StatKind::kReserved), kernel->resident());
    EXPECT_STREQ(pool.check_invariants(), "");
    pool.free(block);
    pool.trim();
    EXPECT_EQ(kernel->resident(), 0u);
  }
}

TEST_F(DensityTest, UnneededHugePagesBecomeSmallAgain) {
  Pool pool(device, options, statistics);
  Block* block = pool.allocate(8_MiB);
  kernel->touch(block->begin, 8_MiB);
  use(pool);
  EXPECT_EQ(kernel->joined(), 16u);
  pool.free(block);
  pool.trim();
  block = pool.allocate(8_MiB);
  kernel->touch(block->begin + 1_MiB, 4_KiB);
  EXPECT_EQ(kernel->resident(), 64_KiB);
  pool.free(block);
  EXPECT_EQ(current(statistics, StatKind::kReserved), kernel->resident());
}

TEST_F(DensityTest, BlockIsExaminedOnlyUntilItsPagesAreSure) {
  Pool pool(device, options, statistics);
  std::size_t looks = 0;
  device.on_look = [&](std::byte* begin, std::size_t pages, bool* present) {
    looks += pages;
    return kernel->look(begin, pages, present);
  };
  for (int i = 0; i < 10; ++i) {
    Block* block = pool.allocate(8_MiB);
    kernel->touch(block->begin, 8_MiB);
    pool.free(block);
  }
  EXPECT_EQ(looks, 8_MiB / 64_KiB);
}

// Blocks are written in random order: in the end the pool's counts equal the kernel's.
TEST_F(DensityTest, SparseAndDenseBlocksAreCountedExactly) {
  PLEAT_SEED(seed);
  std::mt19937_64 random(seed);
  options.resident_slack_bytes = 64_KiB;
  options.epoch_ns = 10'000'000;
  Pool pool(device, options, statistics);
  std::vector<Block*> live;
  for (int step = 0; step < scaled(10000); ++step) {
    if (random() % 1000 == 0) pool.trim();
    if (live.size() < 30 && random() % 2 == 0) {
      Block* block = pool.allocate(512_KiB * (1 + random() % 8));
      live.push_back(block);
      const bool dense = random() % 2 == 0;
      for (std::size_t at = 0; at < block->bytes; at += 64_KiB) {
        if (dense || random() % 16 == 0) kernel->touch(block->begin + at, 4_KiB);
      }
    } else if (!live.empty()) {
      std::swap(live[random() % live.size()], live.back());
      Block* block = live.back();
      if (random() % 2 == 0) kernel->touch(block->begin + random() % block->bytes, 1);
      pool.free(block);
      live.pop_back();
    }
    ASSERT_GE(current(statistics, StatKind::kReserved), kernel->resident()) << step;
    device.move_works = random() % 8 != 0;
    kernel->joins_now = random() % 8 != 0;
    kernel->maps_anew = random() % 8 != 0;
    if (step % 64 != 0) continue;
    ASSERT_STREQ(pool.check_invariants(), "") << step;
    if (step % 1024 != 0) continue;
    for (Block* block : live) pool.free(block);
    live.clear();
    ASSERT_EQ(current(statistics, StatKind::kReserved), kernel->resident()) << step;
  }
  EXPECT_GT(kernel->joined(), 0u);
  EXPECT_GT(device.moved_pages_bytes, 0u);
}

TEST_F(DensityTest, JoiningTakesAtMostItsShareOfElapsedTime) {
  options.join_share = 0.1;
  const auto now = [] { return std::chrono::steady_clock::now(); };
  Pool pool(device, options, statistics);
  std::chrono::nanoseconds spent{0}, longest{0};  // longer than a millisecond next to others' work
  device.on_join = [&](std::byte* begin) {
    const auto start = now();
    while (now() - start < std::chrono::milliseconds(1)) {
    }
    const std::chrono::nanoseconds took = now() - start;
    spent += took;
    longest = std::max(longest, took);
    return kernel->join(begin);
  };
  Block* block = pool.allocate(256_MiB);
  kernel->touch(block->begin, 256_MiB);
  const auto start = now();
  for (int i = 0; i < 100 || now() - start < std::chrono::milliseconds(300); ++i) use(pool);
  const auto passed = now() - start;
  EXPECT_GT(spent, std::chrono::milliseconds(20));
  // The first allowance, and one join beyond it, at most the longest.
  EXPECT_LT(spent, passed / 10 + std::chrono::milliseconds(20) + longest + spent / 10);
}

TEST_F(PoolPagesTest, LastFreedPlaceOfTheSizeIsTakenWhileItsPagesAreResident) {
  device.caps.reserves_freely = true;
  PoolOptions options = small_options();
  options.reserve_bytes = 1_GiB;
  Pool pool(device, options, statistics);
  std::vector<Block*> blocks;
  std::vector<std::byte*> places;
  for (int i = 0; i < 24; ++i) {
    blocks.push_back(pool.allocate(256_KiB));
    places.push_back(blocks.back()->begin);
  }
  const auto free = [&](std::initializer_list<std::size_t> which) {
    for (const std::size_t i : which) pool.free(blocks[i]);
  };
  const auto allocate = [&](std::size_t bytes) { return pool.allocate(bytes)->begin; };
  free({2, 5, 8});
  EXPECT_EQ(allocate(252_KiB), places[2]) << "another size: the lowest";
  EXPECT_EQ(allocate(253_KiB), places[8]) << "rounds to the same, and was the last";
  EXPECT_EQ(allocate(256_KiB), places[5]);
  EXPECT_STREQ(pool.check_invariants(), "");
  // A place that other blocks took in part, or that lost its pages, is not used any more.
  free({11, 14});
  EXPECT_EQ(allocate(128_KiB), places[11]);
  EXPECT_EQ(allocate(192_KiB), places[14]);
  free({18});
  EXPECT_EQ(pool.trim() / 256_KiB, 1u);
  free({16});
  EXPECT_EQ(allocate(256_KiB), places[16]);
  EXPECT_EQ(allocate(256_KiB), places[18]) << "of its pages, fresh ones";
  EXPECT_STREQ(pool.check_invariants(), "");
  // Blocks too large for any cache are put where they fit best.
  Block* large[3];
  for (Block*& block : large) {
    block = pool.allocate(40_MiB);
    (void)pool.allocate(4_KiB);
  }
  std::byte* const lowest = large[0]->begin;
  pool.free(large[0]);
  pool.free(large[2]);
  EXPECT_EQ(allocate(40_MiB), lowest);
  EXPECT_STREQ(pool.check_invariants(), "");
}

TEST_F(PoolPagesTest, ResidentPagesAreTakenBeforeLowAddresses) {
  device.caps.reserves_freely = true;
  Pool pool(device, small_options(), statistics);
  std::vector<Block*> blocks;
  for (int i = 0; i < 16; ++i) blocks.push_back(pool.allocate(256_KiB));
  std::byte* const base = blocks[0]->begin;
  // Free memory: at 1 (256 KiB) without its pages, at 5 to 7 (768 KiB) with them.
  pool.free(blocks[1]);
  EXPECT_EQ(pool.trim(), 256_KiB);
  for (const std::size_t i : {5u, 6u, 7u}) pool.free(blocks[i]);
  const auto touched = statistics.read(StatKind::kReserved).allocated;
  EXPECT_EQ(pool.allocate(252_KiB)->begin, base + 5 * 256_KiB) << "the lowest that is there";
  EXPECT_EQ(pool.allocate(24_KiB)->begin, base + 5 * 256_KiB + 252_KiB);
  EXPECT_EQ(pool.allocate(384_KiB)->begin, base + 6 * 256_KiB + 20_KiB);
  EXPECT_EQ(statistics.read(StatKind::kReserved).allocated, touched);
  EXPECT_STREQ(pool.check_invariants(), "");
  EXPECT_EQ(pool.allocate(128_KiB)->begin, base + 1 * 256_KiB) << "two pages anywhere: the lowest";
  EXPECT_EQ(statistics.read(StatKind::kReserved).allocated, touched + 128_KiB);
  EXPECT_STREQ(pool.check_invariants(), "");
}

TEST_F(PoolPagesTest, ResidentPagesWithinARunAreFound) {
  device.caps.reserves_freely = true;
  Pool pool(device, small_options(), statistics);
  Block* first = pool.allocate(1_MiB);
  Block* second = pool.allocate(1_MiB);
  Block* third = pool.allocate(64_KiB);
  std::byte* const base = first->begin;
  pool.free(first);
  pool.trim();
  pool.free(second);  // one run of 2 MiB now, whose second half is resident
  Block* block = pool.allocate(512_KiB);
  EXPECT_EQ(block->begin, base + 1_MiB);
  EXPECT_STREQ(pool.check_invariants(), "");
  pool.free(block);
  EXPECT_EQ(pool.allocate(1536_KiB)->begin, base + 512_KiB) << "all that are there, the end first";
  EXPECT_STREQ(pool.check_invariants(), "");
  pool.free(third);
}

TEST_F(PoolPagesTest, ResidentMemoryFallsWhenTheJobNeedsLess) {
  device.caps.reserves_freely = true;
  PoolOptions options = small_options();
  options.epoch_ns = 20'000'000;
  Pool pool(device, options, statistics);
  Block* kept = pool.allocate(1_MiB);
  pool.free(pool.allocate(32_MiB));
  EXPECT_GE(current(statistics, StatKind::kReserved), 32_MiB);
  const timespec pause{0, 5'000'000};
  bool fell = false;
  for (int i = 0; i < 400 && !fell; ++i) {
    for (int k = 0; k < 64; ++k) pool.free(pool.allocate(64_KiB));
    ::nanosleep(&pause, nullptr);
    fell = current(statistics, StatKind::kReserved) <= limit_for(2_MiB, options);
  }
  EXPECT_TRUE(fell);
  EXPECT_STREQ(pool.check_invariants(), "");
  pool.free(kept);
}

TEST_F(PoolPagesTest, TrimReleasesEveryWholeFreePage) {
  device.caps.reserves_freely = true;
  Pool pool(device, small_options(), statistics);
  Block* a = pool.allocate(96_KiB);  // a page and a half
  Block* b = pool.allocate(1_MiB);
  Block* c = pool.allocate(64_KiB);
  pool.free(b);
  // Of b's 1 MiB between half pages, 15 pages are whole; the page after c's half page is unused.
  EXPECT_EQ(pool.trim(), 15 * 64_KiB);
  EXPECT_EQ(pool.trim(), 0u);
  EXPECT_STREQ(pool.check_invariants(), "");
  pool.free(a);
  pool.free(c);
  pool.trim();
  EXPECT_EQ(current(statistics, StatKind::kReserved), 0u);
}

TEST_F(PoolPagesTest, PagesTheDeviceKeepsStayCounted) {
  device.caps.reserves_freely = true;
  device.release_works = false;
  Pool pool(device, small_options(), statistics);
  pool.free(pool.allocate(8_MiB));
  EXPECT_EQ(pool.trim(), 0u);
  EXPECT_EQ(current(statistics, StatKind::kReserved), 8_MiB);
  EXPECT_STREQ(pool.check_invariants(), "");
}

// ---- Work, counted in visited free runs

struct ManyHolesTest : PoolPagesTest, ::testing::WithParamInterface<int> {
  static constexpr std::size_t kHoles = 20'000;
  // Per block: the runs whose pages are taken one by one, and a search that stops early.
  static constexpr std::size_t kFew = kHoles / 10;
  void make_holes(std::size_t bytes) {
    device.caps.reserves_freely = true;
    if (GetParam() > 0) device.caps.huge_page_bytes = 512_KiB;
    if (GetParam() > 1) device.caps.move_bytes = 1_MiB;
    PoolOptions options = no_slack();
    options.reserve_bytes = 64_GiB;
    pool.emplace(device, options, statistics);
    std::vector<Block*> blocks;
    for (std::size_t i = 0; i < 2 * kHoles; ++i) blocks.push_back(pool->allocate(bytes));
    for (std::size_t i = 0; i < 2 * kHoles; i += 2) pool->free(blocks[i]);
  }
  // Runs visited in each of `count` calls.
  template <typename Function>
  std::size_t looked_at(std::size_t count, Function&& function) {
    function();  // the first call visits the most
    const std::size_t before = pool->runs_looked_at();
    for (std::size_t i = 0; i < count; ++i) function();
    EXPECT_STREQ(pool->check_invariants(), "");
    return (pool->runs_looked_at() - before) / count;
  }
  FakeDevice device{64_GiB};
  std::optional<Pool> pool;
};

TEST_P(ManyHolesTest, LargeBlocksVisitFewHoles) {
  make_holes(80_KiB);
  std::vector<Block*> large;
  const auto step = [&] {
    for (int i = 0; i < 8; ++i) large.push_back(pool->allocate(4_MiB));
    while (!large.empty()) {
      pool->free(large.back());
      large.pop_back();
    }
  };
  EXPECT_LE(looked_at(20, step), kFew);
  // These are kept and all sizes differ: each needs fresh pages, for which others are released.
  std::size_t more = 0;
  EXPECT_LE(looked_at(200, [&] { (void)pool->allocate(4_MiB + 64_KiB * ++more); }), kFew);
}

TEST_P(ManyHolesTest, BlocksThatFitAnyHoleVisitFewHoles) {
  make_holes(144_KiB);
  pool->trim();  // each has lost a page at least
  EXPECT_LE(looked_at(1000, [&] { (void)pool->allocate(140_KiB); }), kFew);
  std::vector<Block*> blocks;
  const auto step = [&] {
    blocks.push_back(pool->allocate(4_KiB * (1 + blocks.size() % 40)));
    if (blocks.size() % 3 != 0) return;
    std::swap(blocks[blocks.size() / 2], blocks.back());
    pool->free(blocks.back());
    blocks.pop_back();
  };
  EXPECT_LE(looked_at(1000, step), kFew);
}
INSTANTIATE_TEST_SUITE_P(Kernels, ManyHolesTest, ::testing::Values(0, 1, 2));

}  // namespace
}  // namespace pleat::allocator
