#include "allocator/store/payload_arena.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "allocator/host/host_device.h"
#include "test_support.h"

namespace pleat::allocator {
namespace {

using namespace testing;

struct PayloadArenaTest : ::testing::Test {
  PayloadArenaTest() { device.caps.reserves_freely = true; }
  static PoolOptions options() {
    PoolOptions o;
    o.reserve_bytes = 512_MiB;
    return o;
  }
  static PoolOptions small_segments() {
    PoolOptions o;
    o.reserve_bytes = o.extend_bytes = o.growth_bytes = 8_MiB;
    return o;
  }
  FakeDevice device{1_GiB};
  Statistics statistics;
  Pool pool{device, options(), statistics};
};

TEST_F(PayloadArenaTest, PayloadsAreAlignedAndInBlocksOfThePool) {
  PayloadArena arena(pool);
  for (const std::size_t bytes : {1_KiB, 1000_KiB, 3_MiB, 10_MiB}) {
    PayloadSlot slot = arena.allocate(bytes);
    ASSERT_TRUE(slot);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(slot.address()) % 64, 0u);
    EXPECT_EQ(slot.bytes, bytes);
    EXPECT_TRUE(pool.owns(slot.address()));
    arena.free(slot);
    EXPECT_FALSE(slot);
  }
  EXPECT_STREQ(arena.check_invariants(), "");
}

TEST_F(PayloadArenaTest, WithMovablePagesPayloadsTakeNoFreshPagesAmongLargeBlocks) {
  device.caps.huge_page_bytes = 512_KiB;
  for (const bool moves : {false, true}) {
    device.caps.move_bytes = moves ? 1_MiB : 0;
    Statistics own;
    Pool apart(device, options(), own);
    PayloadArena arena(apart);
    std::vector<Block*> blocks;
    for (int i = 0; i < 8; ++i) blocks.push_back(apart.allocate(1_MiB));
    const auto among = [&](const PayloadSlot& slot) {
      return slot.address() >= blocks.front()->begin &&
             slot.address() < blocks.back()->begin + 8_MiB;
    };
    PayloadSlot first = arena.allocate(600_KiB);
    EXPECT_EQ(among(first), !moves);
    // Resident pages are taken, as long as large blocks lose no huge pages in a row.
    apart.free(blocks[2]);
    PayloadSlot second = arena.allocate(600_KiB);
    EXPECT_EQ(second.address(), blocks[1]->begin + 1_MiB);
    for (const std::size_t i : {4u, 5u}) apart.free(blocks[i]);
    PayloadSlot third = arena.allocate(600_KiB);
    EXPECT_EQ(among(third), !moves);
    // Pages of freed payloads serve the next payloads.
    std::byte* const was = first.address();
    arena.free(first);
    EXPECT_EQ(arena.allocate(600_KiB).address(), was);
    EXPECT_STREQ(apart.check_invariants(), "");
  }
}

TEST_F(PayloadArenaTest, WithoutNewSegmentsBlocksAndPayloadsShareTheSegments) {
  FakeDevice tight(24_MiB);
  tight.let_pages_move();
  for (const bool payloads_first : {false, true}) {
    Statistics own;
    Pool pool(tight, small_segments(), own);
    PayloadArena arena(pool);
    std::vector<PayloadSlot> payloads;
    std::vector<Block*> blocks;
    const auto fill_with_payloads = [&] {
      while (const PayloadSlot slot = arena.allocate(1_MiB)) payloads.push_back(slot);
    };
    const auto fill_with_blocks = [&] {
      while (Block* block = pool.allocate(1_MiB)) blocks.push_back(block);
    };
    // One block of a kind makes its segment; the other kind takes all other memory, then the rest
    // of that segment.
    if (payloads_first) {
      payloads.push_back(arena.allocate(1_MiB));
      fill_with_blocks();
      EXPECT_GE(blocks.size(), 22u);
    } else {
      blocks.push_back(pool.allocate(1_MiB));
      fill_with_payloads();
      EXPECT_GE(payloads.size(), 22u);
    }
    EXPECT_STREQ(pool.check_invariants(), "");
    for (PayloadSlot& slot : payloads) arena.free(slot);
    for (Block* block : blocks) pool.free(block);
    EXPECT_STREQ(pool.check_invariants(), "");
  }
}

TEST_F(PayloadArenaTest, IdleSegmentOfTheOtherLaneIsUsedBeforeItIsReleased) {
  FakeDevice tight(256_MiB);
  tight.let_pages_move();
  Pool pool(tight, small_segments(), statistics);
  PayloadArena arena(pool);
  std::vector<Block*> blocks{pool.allocate(1_MiB)};
  PayloadSlot payload = arena.allocate(4_MiB);
  ASSERT_EQ(tight.segments, 2);
  arena.free(payload);
  tight.reserves = tight.extends = false;  // a limit on addresses from now on
  while (Block* block = pool.allocate(1_MiB)) blocks.push_back(block);
  EXPECT_EQ(blocks.size(), 12u) << "eight, and the four that the payload had";
  EXPECT_STREQ(pool.check_invariants(), "");
  for (Block* block : blocks) pool.free(block);
}

TEST_F(PayloadArenaTest, FreedPayloadPlacesGoToPayloads) {
  device.let_pages_move();
  Pool apart(device, options(), statistics);
  PayloadArena arena(apart);
  Block* const block = apart.allocate(700_KiB);
  PayloadSlot payload = arena.allocate(700_KiB);
  std::byte* const place = payload.address();
  arena.free(payload);
  EXPECT_NE(apart.allocate(700_KiB)->begin, place);
  // Freed blocks do not push out each other's places: payloads do not count.
  std::byte* const left = block->begin;
  (void)apart.allocate(64_KiB);
  apart.free(block);
  for (int i = 0; i < 20; ++i) {
    PayloadSlot slot = arena.allocate(300_KiB);
    arena.free(slot);
  }
  EXPECT_EQ(apart.allocate(700_KiB)->begin, left);
  EXPECT_STREQ(apart.check_invariants(), "");
}

TEST_F(PayloadArenaTest, RequestedCountsPayloadsAndReservedCountsChunks) {
  PayloadArena arena(pool);
  PayloadSlot a = arena.allocate(1000);
  PayloadSlot b = arena.allocate(200_KiB);
  EXPECT_EQ(current(statistics, StatKind::kRequested), 1000u + 200_KiB);
  EXPECT_EQ(current(statistics, StatKind::kActive), 512_KiB);
  EXPECT_EQ(statistics.read(StatKind::kRequested).peak, static_cast<std::int64_t>(1000 + 200_KiB))
      << "the chunk never shows";
  arena.shrink(b, 1_KiB);
  EXPECT_EQ(current(statistics, StatKind::kRequested), 1000u + 1_KiB);
  arena.free(a);
  arena.free(b);
  EXPECT_EQ(current(statistics, StatKind::kRequested), 0u);
  EXPECT_EQ(current(statistics, StatKind::kActive), 0u) << "the chunk goes with its last payload";
  EXPECT_STREQ(pool.check_invariants(), "");
}

TEST_F(PayloadArenaTest, TailOfAShrunkPayloadIsUsedNext) {
  PayloadArena arena(pool);
  PayloadSlot a = arena.allocate(100_KiB);
  PayloadSlot guard = arena.allocate(1_KiB);
  arena.shrink(a, 10_KiB);
  PayloadSlot b = arena.allocate(90_KiB);
  EXPECT_EQ(b.address(), a.address() + 10_KiB);
  arena.free(guard);
  arena.free(a);
  arena.free(b);
}

TEST_F(PayloadArenaTest, LargePayloadsAreBlocksAndShrinkAsBlocks) {
  PayloadArena arena(pool);
  PayloadSlot slot = arena.allocate(10_MiB);
  ASSERT_NE(pool.find(slot.address()), nullptr);
  arena.shrink(slot, 5_MiB);
  EXPECT_EQ(current(statistics, StatKind::kActive), 5_MiB);
  EXPECT_EQ(current(statistics, StatKind::kRequested), 5_MiB);
  arena.free(slot);
  EXPECT_EQ(current(statistics, StatKind::kActive), 0u);
}

TEST_F(PayloadArenaTest, FullPoolReturnsAnEmptySlot) {
  FakeDevice small(6_MiB);
  Statistics own;
  PoolOptions tight;
  tight.growth_bytes = 1_MiB;
  Pool small_pool(small, tight, own);
  PayloadArena arena(small_pool);
  std::vector<PayloadSlot> slots;
  for (PayloadSlot slot = arena.allocate(100_KiB); slot; slot = arena.allocate(100_KiB)) {
    slots.push_back(slot);
  }
  EXPECT_GE(slots.size(), 58u) << "where a chunk no longer fits, blocks of their own still do";
  EXPECT_FALSE(arena.allocate(SIZE_MAX));
  EXPECT_FALSE(arena.allocate(0));
  EXPECT_STREQ(arena.check_invariants(), "");
  for (PayloadSlot& slot : slots) arena.free(slot);
  EXPECT_EQ(current(own, StatKind::kRequested), 0u);
  EXPECT_EQ(current(own, StatKind::kActive), 0u);
}

TEST_F(PayloadArenaTest, DestroyedArenaLeavesNoBlock) {
  {
    PayloadArena arena(pool);
    (void)arena.allocate(1000);
    PayloadSlot large = arena.allocate(1_MiB);
    arena.free(large);
  }
  EXPECT_EQ(current(statistics, StatKind::kRequested), 0u);
  EXPECT_EQ(current(statistics, StatKind::kActive), 0u);
}

TEST_F(PayloadArenaTest, ChunksGrowWithTheArena) {
  PayloadArena::Options growing;
  growing.chunk_bytes = 64_KiB;
  growing.most_chunk_bytes = 1_MiB;
  PayloadArena arena(pool, growing);
  std::vector<PayloadSlot> slots;
  std::set<void*> chunks;
  std::uint64_t before = 0, most_added = 0;
  for (std::size_t sum = 0; sum < 16_MiB; sum += 16_KiB) {
    slots.push_back(arena.allocate(16_KiB));
    if (!chunks.insert(slots.back().chunk).second) continue;
    const std::uint64_t now = current(statistics, StatKind::kActive);
    // A quarter of all chunks, so that little of it is empty.
    EXPECT_LE(now - before, std::max<std::uint64_t>(64_KiB, before / 4));
    most_added = std::max(most_added, now - before);
    before = now;
  }
  EXPECT_EQ(most_added, 1_MiB);
  EXPECT_LT(chunks.size(), 50u);
  EXPECT_STREQ(arena.check_invariants(), "");
  // A payload above half of the next chunk is a block, unless a chunk has room for it.
  for (PayloadSlot& slot : slots) arena.free(slot);
  EXPECT_EQ(current(statistics, StatKind::kActive), 0u);
  PayloadSlot block = arena.allocate(60_KiB);
  EXPECT_EQ(current(statistics, StatKind::kActive), 60_KiB);
  arena.free(block);
}

class ArenaOfAnySize : public PayloadArenaTest,
                       public ::testing::WithParamInterface<std::size_t> {};
INSTANTIATE_TEST_SUITE_P(MostChunkBytes, ArenaOfAnySize, ::testing::Values(0, 1_MiB));

TEST_P(ArenaOfAnySize, AgreesWithANaiveModel) {
  PLEAT_SEED(seed);
  std::mt19937_64 random(seed);
  PayloadArena::Options small_chunks;
  small_chunks.chunk_bytes = GetParam() == 0 ? 256_KiB : 64_KiB;
  small_chunks.most_chunk_bytes = GetParam();
  PayloadArena arena(pool, small_chunks);
  std::vector<PayloadSlot> live;
  std::map<std::byte*, std::size_t> used;
  std::size_t sum = 0;
  const auto round = [](std::size_t bytes) { return (bytes + 255) / 256 * 256; };
  for (int step = 0; step < scaled(30000); ++step) {
    const auto dice = random() % 100;
    if (dice < 20 && !live.empty()) {
      PayloadSlot& slot = live[random() % live.size()];
      const std::size_t bytes = 1 + random() % slot.bytes;
      sum -= slot.bytes - bytes;
      arena.shrink(slot, bytes);
      used[slot.address()] = round(bytes);
    } else if (live.empty() || (dice < 62 && live.size() < 400)) {
      PayloadSlot slot = arena.allocate(1 + (random() % 300_KiB >> (random() % 12)));
      ASSERT_TRUE(slot);
      const auto [at, fresh] = used.emplace(slot.address(), round(slot.bytes));
      ASSERT_TRUE(fresh);
      if (at != used.begin()) {
        const auto before = std::prev(at);
        ASSERT_LE(before->first + before->second, at->first);
      }
      if (const auto after = std::next(at); after != used.end()) {
        ASSERT_LE(at->first + at->second, after->first);
      }
      sum += slot.bytes;
      live.push_back(slot);
    } else {
      std::swap(live[random() % live.size()], live.back());
      sum -= live.back().bytes;
      used.erase(live.back().address());
      arena.free(live.back());
      live.pop_back();
    }
    if (step % 16 == 0) {
      ASSERT_STREQ(arena.check_invariants(), "") << step;
      ASSERT_STREQ(pool.check_invariants(), "") << step;
      ASSERT_EQ(current(statistics, StatKind::kRequested), sum);
    }
  }
  for (PayloadSlot& slot : live) arena.free(slot);
  EXPECT_EQ(current(statistics, StatKind::kActive), 0u);
}

TEST(PayloadArenaThreads, AnyThreadCanFree) {
  PLEAT_SEED(seed);
  HostDevice device;
  Statistics statistics;
  Pool pool(device, {}, statistics);
  PayloadArena arena(pool);
  constexpr int kThreads = 8;
  std::mutex mutex;
  std::vector<PayloadSlot> shelf;
  std::atomic<int> errors{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(seed + static_cast<std::uint64_t>(t));
      for (int i = 0; i < scaled(10000); ++i) {
        if (random() % 2 == 0) {
          PayloadSlot slot = arena.allocate(8 + (random() % 4_MiB >> (random() % 16)));
          if (!slot) {
            ++errors;
            continue;
          }
          const std::byte* const mark = slot.address();
          std::memcpy(slot.address(), &mark, sizeof mark);
          arena.shrink(slot, std::max<std::size_t>(slot.bytes / 2, 8));
          const std::lock_guard<std::mutex> lock(mutex);
          shelf.push_back(slot);
        } else {
          PayloadSlot slot;
          {
            const std::lock_guard<std::mutex> lock(mutex);
            if (shelf.empty()) continue;
            slot = shelf[random() % shelf.size()];
            std::swap(
                *std::find_if(shelf.begin(), shelf.end(),
                              [&](const PayloadSlot& s) { return s.address() == slot.address(); }),
                shelf.back());
            shelf.pop_back();
          }
          std::byte* mark = nullptr;
          std::memcpy(&mark, slot.address(), sizeof mark);
          if (mark != slot.address()) ++errors;
          arena.free(slot);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(errors, 0);
  EXPECT_STREQ(arena.check_invariants(), "");
  for (PayloadSlot& slot : shelf) arena.free(slot);
  EXPECT_EQ(current(statistics, StatKind::kRequested), 0u);
  EXPECT_STREQ(pool.check_invariants(), "");
}

// A tier on the host, whose copies are complete at once.
struct HostTier final : PayloadTier {
  void* take(std::size_t bytes) noexcept override {
    if (refuses) return nullptr;
    ++rooms;
    return std::malloc(bytes);
  }
  void give(void* room) noexcept override {
    --rooms;
    std::free(room);
  }
  bool copy_out(void* room, const void* from, std::size_t bytes, StreamId,
                EventHandle* done) noexcept override {
    std::memcpy(room, from, bytes);
    *done = copied;
    return true;
  }
  bool copy_in(void* to, const void* room, std::size_t bytes, StreamId) noexcept override {
    if (refuses) return false;
    std::memcpy(to, room, bytes);
    return true;
  }
  std::atomic<int> rooms{0};
  std::atomic<bool> refuses{false};
  EventHandle copied{};  // of every copy out
};

// Events are complete once the host has waited for one.
struct WaitedForOrder final : StreamOrder {
  EventHandle record(StreamId) noexcept override { return {1}; }
  void wait(StreamId, EventHandle) noexcept override {}
  bool complete(EventHandle event) noexcept override { return event.value == 0 || waited; }
  void synchronize(EventHandle) noexcept override { waited = true; }
  void release(EventHandle) noexcept override {}
  bool is_captured(StreamId) noexcept override { return false; }
  bool waited = false;
};

struct PayloadTierTest : ::testing::Test {
  HostDevice device;
  Statistics statistics;
  Pool pool{device, PoolOptions{}, statistics};
  SynchronousOrder order;
  HostTier tier;
  PayloadArena arena{pool};

  PayloadTierTest() { arena.attach(tier, order); }
  PayloadSlot filled(std::size_t bytes, int value) {
    const PayloadSlot slot = arena.allocate(bytes);
    std::memset(slot.address(), value, bytes);
    arena.unpin(slot);
    return slot;
  }
  bool holds(const PayloadSlot& slot, int value) {
    const std::byte* const at = arena.pin(slot, {});
    const bool right = at != nullptr && std::all_of(at, at + slot.bytes, [value](std::byte b) {
                         return b == static_cast<std::byte>(value);
                       });
    if (at != nullptr) arena.unpin(slot);
    return right;
  }
  std::int64_t requested() { return statistics.current(StatKind::kRequested); }
};

TEST_F(PayloadTierTest, ChunksGoAsAWholeAndComeBackWhenOneOfTheirPayloadsIsRead) {
  for (const std::size_t bytes : {50_KiB, 2_MiB}) {  // in one chunk, and in blocks of their own
    SCOPED_TRACE(bytes);
    PayloadSlot first = filled(bytes, 1), second = filled(bytes, 2);
    const std::int64_t both = static_cast<std::int64_t>(2 * bytes);
    EXPECT_EQ(requested(), both);
    arena.send(first);
    arena.collect();
    const bool is_shared = first.chunk == second.chunk;
    EXPECT_EQ(is_shared, bytes == 50_KiB);
    EXPECT_EQ(requested(), is_shared ? 0 : both / 2);
    PayloadSlot third = filled(bytes, 3);
    EXPECT_NE(third.chunk, first.chunk) << "nothing is placed in a chunk that is away";
    EXPECT_TRUE(holds(second, 2) && holds(third, 3) && holds(first, 1));
    EXPECT_EQ(requested(), both + both / 2);
    EXPECT_EQ(tier.rooms, 0);
    arena.send(second);
    for (PayloadSlot* const slot : {&first, &second, &third}) arena.free(*slot);
    arena.collect();
    EXPECT_EQ(requested(), 0);
    EXPECT_EQ(tier.rooms, 0);
    EXPECT_STREQ(pool.check_invariants(), "");
  }
}

TEST_F(PayloadTierTest, PinnedChunksStayAndOthersGoWhenMemoryIsAskedFor) {
  PayloadSlot pinned = filled(2_MiB, 1), free_one = filled(2_MiB, 2), newest = filled(2_MiB, 3);
  ASSERT_NE(arena.pin(pinned, {}), nullptr);
  EXPECT_GE(arena.demote(1_MiB), 2_MiB);
  EXPECT_NE(pinned.chunk->block, nullptr);
  EXPECT_EQ(free_one.chunk->block, nullptr) << "the oldest that is not pinned";
  EXPECT_NE(newest.chunk->block, nullptr);
  tier.refuses = true;
  EXPECT_EQ(arena.demote(1), 0u);
  EXPECT_EQ(arena.tier_counters().no_room, 1u);
  tier.refuses = false;
  arena.unpin(pinned);
  EXPECT_TRUE(holds(pinned, 1) && holds(free_one, 2) && holds(newest, 3));
  for (PayloadSlot* const slot : {&pinned, &free_one, &newest}) arena.free(*slot);
  EXPECT_EQ(requested(), 0);
}

TEST_F(PayloadTierTest, ChunksOnTheirWayAreAwaitedWhenMemoryIsAskedFor) {
  WaitedForOrder late;
  tier.copied = {1};
  arena.attach(tier, late);
  PayloadSlot first = filled(2_MiB, 1), second = filled(2_MiB, 2), third = filled(2_MiB, 3);
  arena.send(first);
  arena.send(first);
  EXPECT_EQ(tier.rooms, 1) << "a chunk goes once";
  for (const PayloadSlot& slot : {second, third}) arena.send(slot);
  for (const PayloadSlot& slot : {first, second, third}) EXPECT_NE(slot.chunk->block, nullptr);
  EXPECT_EQ(tier.rooms, 2) << "two at most are on their way";
  EXPECT_GE(arena.demote(3_MiB), 4_MiB);
  EXPECT_TRUE(first.chunk->block == nullptr && second.chunk->block == nullptr);
  EXPECT_NE(third.chunk->block, nullptr);
  EXPECT_TRUE(holds(first, 1) && holds(second, 2) && holds(third, 3));
  for (PayloadSlot* const slot : {&first, &second, &third}) arena.free(*slot);
  EXPECT_EQ(requested(), 0);
}

TEST_F(PayloadTierTest, ARefusedCopyBackSendsNoOtherChunkAway) {
  PayloadSlot away = filled(2_MiB, 1), here = filled(2_MiB, 2);
  arena.send(away);
  arena.collect();
  tier.refuses = true;
  EXPECT_EQ(arena.pin(away, {}), nullptr);
  EXPECT_EQ(arena.tier_counters().refused, 1u);
  EXPECT_NE(here.chunk->block, nullptr);
  EXPECT_EQ(arena.tier_counters().no_room, 0u) << "nothing was asked to go";
  tier.refuses = false;
  EXPECT_TRUE(holds(away, 1) && holds(here, 2));
  for (PayloadSlot* const slot : {&away, &here}) arena.free(*slot);
  EXPECT_EQ(tier.rooms, 0);
}

TEST_F(PayloadTierTest, ThreadsReadPayloadsWhileTheirChunksMove) {
  PLEAT_SEED(seed);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(seed + static_cast<std::uint64_t>(t));
      std::vector<std::pair<PayloadSlot, int>> own;
      for (int i = 0; i < scaled(3000); ++i) {
        if (own.size() < 20 && random() % 2 == 0) {
          own.emplace_back(filled(1 + random() % 100'000, i & 0x7F), i & 0x7F);
        } else if (!own.empty()) {
          auto& [slot, value] = own[random() % own.size()];
          switch (random() % 4) {
            case 0:
              arena.send(slot);
              break;
            case 1:
              arena.collect();
              break;
            case 2:
              if (!holds(slot, value)) ++wrong;
              break;
            default:
              arena.free(slot);
              std::erase_if(own, [](const auto& one) { return !one.first; });
          }
        }
      }
      for (auto& [slot, value] : own) arena.free(slot);
    });
  }
  for (std::thread& thread : threads) thread.join();
  arena.collect();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(requested(), 0);
  EXPECT_EQ(tier.rooms, 0);
  EXPECT_STREQ(arena.check_invariants(), "");
  EXPECT_GT(arena.tier_counters().brought, 0u);
}

}  // namespace
}  // namespace pleat::allocator
