// The pool on real memory: resident pages, limits of the process, threads, fork.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "allocator/host/host_device.h"
#include "allocator/host/pool.h"
#include "allocator/store/payload_arena.h"
#include "test_support.h"

namespace pleat::allocator {
namespace {

using namespace testing;

std::size_t process_resident_bytes() {
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  unsigned long total = 0;
  unsigned long resident = 0;
  const int read = std::fscanf(file, "%lu %lu", &total, &resident);
  std::fclose(file);
  return read == 2 ? resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE)) : 0;
}

// Resident bytes of the range, from the kernel.
std::size_t resident_bytes(const std::byte* begin, std::size_t bytes) {
  std::vector<unsigned char> pages(bytes / 4096);
  if (mincore(const_cast<std::byte*>(begin), bytes, pages.data()) != 0) return SIZE_MAX;
  std::size_t count = 0;
  for (const unsigned char page : pages) count += page & 1;
  return count * 4096;
}

// Runs `body` in a child; true if it returned 0 there.
template <typename Body>
::testing::AssertionResult holds_in_child(Body&& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << (WIFEXITED(status) ? "returned " : "was ended, status ")
                                       << (WIFEXITED(status) ? WEXITSTATUS(status) : status);
}

struct HostPoolTest : ::testing::Test {
  HostDevice device;
  Statistics statistics;
};

TEST_F(HostPoolTest, SegmentsAreAlignedAndLeaveErrnoAlone) {
  errno = 1234;
  void* segment = device.reserve_segment(4_MiB, 4_MiB);
  ASSERT_NE(segment, nullptr);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(segment) % 2_MiB, 0u);
  EXPECT_EQ(device.reserve_segment(std::size_t{1} << 60, std::size_t{1} << 60), nullptr);
  EXPECT_EQ(device.reserve_segment(SIZE_MAX, SIZE_MAX), nullptr);
  EXPECT_NE(device.release_pages(segment, 2_MiB, true), Released::kNothing);
  EXPECT_EQ(device.release_pages(static_cast<char*>(segment) + 1, 4096, true), Released::kNothing);
  device.release_segment(segment, 4_MiB);
  EXPECT_EQ(errno, 1234);
}

// Mappings of the process that begin in the range.
std::size_t mappings(const std::byte* begin, std::size_t bytes) {
  std::FILE* file = std::fopen("/proc/self/maps", "r");
  char line[1024];
  std::size_t count = 0;
  while (std::fgets(line, sizeof line, file) != nullptr) {
    const std::uintptr_t at = std::strtoull(line, nullptr, 16);
    count += at - reinterpret_cast<std::uintptr_t>(begin) < bytes ? 1 : 0;
  }
  std::fclose(file);
  return count;
}

struct MovingTest : ::testing::TestWithParam<HugePages> {
  HostDevice device{{-1}, GetParam()};
  const bool whole = !device.capabilities().joins_pages;
  static constexpr std::size_t kBytes = 64_MiB;
  void SetUp() override {
    if (device.capabilities().move_bytes == 0) GTEST_SKIP() << "this kernel cannot";
    segment = static_cast<std::byte*>(device.reserve_segment(kBytes, kBytes));
    ASSERT_NE(segment, nullptr);
  }
  void TearDown() override {
    if (segment != nullptr) device.release_segment(segment, kBytes);
  }
  std::byte* segment = nullptr;
};

TEST_P(MovingTest, PagesMoveWithTheirContentsAndLeaveNoPagesBehind) {
  errno = 1234;
  std::memset(segment, 7, 4_MiB);
  std::memset(segment + 4_MiB, 8, 2_MiB);
  ASSERT_TRUE(device.move_pages(segment, segment + 16_MiB, 4_MiB, whole));
  EXPECT_EQ(resident_bytes(segment, 4_MiB), 0u);
  EXPECT_EQ(resident_bytes(segment + 16_MiB, 4_MiB), 4_MiB);
  for (std::size_t i = 0; i < 4_MiB; i += 1000) {
    ASSERT_EQ(segment[i], std::byte{0}) << i;
    ASSERT_EQ(segment[16_MiB + i], std::byte{7}) << i;
  }
  EXPECT_EQ(segment[4_MiB], std::byte{8});
  EXPECT_FALSE(
      device.move_pages(segment, segment + 32_MiB, device.capabilities().move_bytes * 2, whole));
  EXPECT_EQ(errno, 1234);
}

TEST_P(MovingTest, MappingsMergeOnceTheirPagesAreReleased) {
  PLEAT_SEED(seed);
  std::mt19937_64 random(seed);
  const std::size_t before = mappings(segment, kBytes);
  std::memset(segment, 1, kBytes / 2);
  std::vector<bool> there(kBytes / 2_MiB, false);
  std::fill_n(there.begin(), there.size() / 2, true);
  for (int i = 0; i < 2000; ++i) {
    const std::size_t from = random() % there.size(), to = random() % there.size();
    if (!there[from] || there[to]) continue;
    ASSERT_TRUE(device.move_pages(segment + from * 2_MiB, segment + to * 2_MiB, 2_MiB, whole));
    there[from] = false;
    there[to] = true;
    ASSERT_EQ(segment[to * 2_MiB + 12345], std::byte{1});
  }
  EXPECT_GT(mappings(segment, kBytes), before);
  for (std::size_t i = 0; i < there.size(); ++i) {
    if (!there[i]) continue;
    ASSERT_NE(device.release_pages(segment + i * 2_MiB, 2_MiB, whole), Released::kNothing);
  }
  EXPECT_LE(mappings(segment, kBytes), before + 1);
}

TEST_P(MovingTest, MoveThatTheKernelRefusesKeepsTheContents) {
  std::memset(segment, 7, 2_MiB);
  // An madvise() on a part of it makes it several mappings, which older kernels do not move as one.
  ASSERT_EQ(madvise(segment + 1_MiB, 64_KiB, MADV_DONTDUMP), 0);
  const bool moved = device.move_pages(segment, segment + 16_MiB, 2_MiB, whole);
  const std::byte* const now = segment + (moved ? 16_MiB : 0);
  for (std::size_t i = 0; i < 2_MiB; i += 1000) ASSERT_EQ(now[i], std::byte{7}) << i;
  std::memset(segment, 9, kBytes);  // all of it is still mapped
  EXPECT_TRUE(device.move_pages(segment + 4_MiB, segment + 32_MiB, 2_MiB, whole) ||
              device.capabilities().move_bytes == 0);
  EXPECT_EQ(segment[32_MiB], std::byte{9});
}

TEST_P(MovingTest, ForkedChildMovesNoPages) {
  std::memset(segment, 7, 2_MiB);
  EXPECT_TRUE(holds_in_child([&] {
    return device.move_pages(segment, segment + 16_MiB, 2_MiB, whole) || segment[5] != std::byte{7};
  }));
  EXPECT_TRUE(device.move_pages(segment, segment + 16_MiB, 2_MiB, whole));
}

TEST_P(MovingTest, LaterLimitOnAddressesOnlyEndsMoving) {
  std::memset(segment, 7, 2_MiB);
  EXPECT_TRUE(holds_in_child([&] {
    HostDevice own;
    auto* const mine = static_cast<std::byte*>(own.reserve_segment(32_MiB, 32_MiB));
    if (mine == nullptr) return 1;
    std::memset(mine, 7, 2_MiB);
    rlimit tight{1_MiB, 1_MiB};
    if (setrlimit(RLIMIT_AS, &tight) != 0) return 2;
    const bool moved = own.move_pages(mine, mine + 16_MiB, 2_MiB, whole);
    const std::byte* const now = mine + (moved ? 16_MiB : 0);
    for (std::size_t i = 0; i < 2_MiB; i += 1000) {
      if (now[i] != std::byte{7}) return 3;
    }
    std::memset(mine, 9, 32_MiB);
    return 0;
  }));
}

// The real kernel, except for one call that maps over a mapping: it fails, either before or after
// the kernel has unmapped the old mapping.
struct FailingKernel {
  static inline int countdown = 0;  // the call that fails; `also` more calls fail after it
  static inline int also = 0;
  static inline bool unmaps = false;

  static bool fails(void* target, std::size_t bytes) noexcept {
    if (--countdown > 0) return false;
    if (countdown < -also) return false;
    if (unmaps) ::munmap(target, bytes);
    errno = ENOMEM;
    return true;
  }
  static HostCalls calls() {
    HostCalls calls;
    calls.mmap = [](void* at, std::size_t bytes, int protection, int flags, int file,
                    ::off_t offset) noexcept {
      const bool over = (flags & MAP_FIXED) != 0;
      if (over && fails(at, bytes)) return MAP_FAILED;
      return ::mmap(at, bytes, protection, flags, file, offset);
    };
    calls.mremap = [](void* from, std::size_t had, std::size_t wanted, int flags,
                      void* to) noexcept {
      if (fails(to, wanted)) return MAP_FAILED;
      return ::mremap(from, had, wanted, flags, to);
    };
    return calls;
  }
};

// A move makes three calls that map over a mapping; a failed move makes one more, to move back.
TEST_P(MovingTest, NoFailingCallLeavesAHole) {
  bool a_move_failed = false;
  for (int call = 1; call <= 4; ++call) {
    for (int also = 0; also <= 2; ++also) {
      for (const bool unmaps : {false, true}) {
        SCOPED_TRACE(std::to_string(call) + (unmaps ? " unmaps" : "") + ", " +
                     std::to_string(also) + " more");
        FailingKernel::countdown = INT_MAX;
        HostDevice failing({-1}, GetParam(), FailingKernel::calls());
        ASSERT_NE(failing.capabilities().move_bytes, 0u);
        auto* const own = static_cast<std::byte*>(failing.reserve_segment(kBytes, kBytes));
        ASSERT_NE(own, nullptr);
        std::memset(own, 7, 4_MiB);
        FailingKernel::countdown = call;
        FailingKernel::also = also;
        FailingKernel::unmaps = unmaps;
        errno = 1234;
        const bool moved = failing.move_pages(own, own + 16_MiB, 4_MiB, whole);
        EXPECT_EQ(errno, 1234);
        FailingKernel::countdown = INT_MAX;
        ASSERT_NE(resident_bytes(own, kBytes), SIZE_MAX) << "a hole";
        const std::byte* const now = own + (moved ? 16_MiB : 0);
        EXPECT_EQ(resident_bytes(own + (moved ? 0 : 16_MiB), 4_MiB), 0u);
        if (moved || also == 0) {  // else the move back can have failed
          for (std::size_t i = 0; i < 4_MiB; i += 1000) ASSERT_EQ(now[i], std::byte{7}) << i;
        }
        a_move_failed |= !moved;
        failing.release_segment(own, kBytes);
      }
    }
  }
  EXPECT_TRUE(a_move_failed);
}

TEST_P(MovingTest, PagesThatCannotMoveBackAreUnmapped) {
  FailingKernel::countdown = INT_MAX;
  HostDevice failing({-1}, GetParam(), FailingKernel::calls());
  auto* const own = static_cast<std::byte*>(failing.reserve_segment(kBytes, kBytes));
  ASSERT_NE(own, nullptr);
  std::memset(own, 7, 16_MiB);
  const std::size_t before = process_resident_bytes();
  FailingKernel::countdown = 2;
  FailingKernel::also = 2;
  FailingKernel::unmaps = true;
  EXPECT_FALSE(failing.move_pages(own, own + 32_MiB, 16_MiB, whole));
  FailingKernel::countdown = INT_MAX;
  EXPECT_EQ(resident_bytes(own, kBytes), 0u);
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
  EXPECT_LT(process_resident_bytes() + 12_MiB, before);
#endif
  (void)before;
  failing.release_segment(own, kBytes);
}

INSTANTIATE_TEST_SUITE_P(HugePages, MovingTest,
                         ::testing::Values(HugePages::kAuto, HugePages::kAlways));

TEST_F(HostPoolTest, FreedMemoryReallyFalls) {
  Pool pool(device, {}, statistics);
  const std::size_t before = process_resident_bytes();
  Block* block = pool.allocate(128_MiB);
  ASSERT_NE(block, nullptr);
  std::byte* begin = block->begin;
  std::memset(begin, 1, 128_MiB);
  EXPECT_EQ(resident_bytes(begin, 128_MiB), 128_MiB);
  pool.free(block);
  EXPECT_EQ(resident_bytes(begin, 128_MiB), 128_MiB) << "kept for reuse";
  EXPECT_EQ(pool.trim(), 128_MiB);
  EXPECT_EQ(resident_bytes(begin, 128_MiB), 0u);
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
  EXPECT_LT(process_resident_bytes(), before + 8_MiB);
#endif
  (void)before;
  EXPECT_EQ(current(statistics, StatKind::kReserved), 0u);
}

TEST_F(HostPoolTest, ResidentMemoryFallsAfterAPeak) {
  PoolOptions options;
  options.epoch_ns = 20'000'000;
  Pool pool(device, options, statistics);
  Block* block = pool.allocate(128_MiB);
  std::byte* begin = block->begin;
  std::memset(begin, 1, 128_MiB);
  pool.free(block);
  const timespec pause{0, 5'000'000};
  std::size_t resident = SIZE_MAX;
  for (int i = 0; i < 400 && resident > 16_MiB; ++i) {
    for (int k = 0; k < 64; ++k) pool.free(pool.allocate(64_KiB));
    ::nanosleep(&pause, nullptr);
    resident = resident_bytes(begin, 128_MiB);
  }
  EXPECT_LE(resident, 16_MiB);
}

TEST_F(HostPoolTest, ContentsSurviveTheNeighboursPurge) {
  PLEAT_SEED(seed);
  std::mt19937_64 random(seed);
  Pool pool(device, {}, statistics);
  std::vector<std::pair<Block*, unsigned char>> live;
  const auto intact = [](const std::pair<Block*, unsigned char>& entry) {
    const auto* data = reinterpret_cast<const unsigned char*>(entry.first->begin);
    for (std::size_t i = 0; i < entry.first->requested; i += 4096) {
      if (data[i] != entry.second) return false;
    }
    return data[entry.first->requested - 1] == entry.second;
  };
  for (int step = 0; step < scaled(2000); ++step) {
    if (live.size() < 40 && random() % 2 == 0) {
      Block* block = pool.allocate(1 + random() % 3_MiB);
      const auto value = static_cast<unsigned char>(random());
      std::memset(block->begin, value, block->requested);
      live.emplace_back(block, value);
    } else if (!live.empty()) {
      std::swap(live[random() % live.size()], live.back());
      ASSERT_TRUE(intact(live.back()));
      pool.free(live.back().first);
      live.pop_back();
    }
    if (step % 100 == 0) pool.trim();
  }
  EXPECT_STREQ(pool.check_invariants(), "");
}

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)  // they need the address space
TEST_F(HostPoolTest, UlimitVIsRespected) {
  EXPECT_TRUE(holds_in_child([] {
    std::FILE* file = std::fopen("/proc/self/statm", "r");
    unsigned long pages = 0;
    if (std::fscanf(file, "%lu", &pages) != 1) return 1;
    std::fclose(file);
    const rlimit limit{pages * 4096 + 400_MiB, RLIM_INFINITY};
    if (setrlimit(RLIMIT_AS, &limit) != 0) return 2;
    HostDevice limited;
    if (limited.capabilities().reserves_freely) return 3;
    Statistics statistics;
    PoolOptions options;
    options.growth_bytes = 64_MiB;
    Pool pool(limited, options, statistics);
    Block* small = pool.allocate(1_MiB);
    if (small == nullptr) return 4;
    // Most of the address space stays free for others.
    void* other = mmap(nullptr, 250_MiB, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (other == MAP_FAILED) return 5;
    munmap(other, 250_MiB);
    std::vector<Block*> blocks;
    while (Block* block = pool.allocate(20_MiB)) blocks.push_back(block);
    if (blocks.size() < 15) return 6;  // out of 400 MiB
    for (Block* block : blocks) pool.free(block);
    if (pool.check_invariants()[0] != '\0') return 7;
    pool.free(small);
    pool.trim();
    other = mmap(nullptr, 300_MiB, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return other == MAP_FAILED ? 8 : 0;
  }));
}
// Malloc gives blocks of these sizes back to the kernel when they are freed, so in stock they count
// against no limit.
TEST_F(HostPoolTest, FreePagesCountAgainstNoLimitOnData) {
  for (const bool first : {false, true}) {  // before there is a pool
    SCOPED_TRACE(first);
    EXPECT_TRUE(holds_in_child([&] {
      std::FILE* file = std::fopen("/proc/self/statm", "r");
      unsigned long pages = 0;
      if (std::fscanf(file, "%*u %*u %*u %*u %*u %lu", &pages) != 1) return 1;
      std::fclose(file);
      const rlimit limit{pages * 4096 + 80_MiB, RLIM_INFINITY};
      if (first && setrlimit(RLIMIT_DATA, &limit) != 0) return 2;
      HostDevice own;
      Statistics counts;
      Pool pool(own, {}, counts);
      std::vector<Block*> blocks(16);
      const auto fill = [&](std::size_t i) {
        blocks[i] = pool.allocate(4_MiB);
        if (blocks[i] != nullptr) std::memset(blocks[i]->begin, static_cast<int>(i), 4_MiB);
        return blocks[i] != nullptr;
      };
      for (std::size_t i = 0; i < blocks.size(); ++i) {
        if (!fill(i)) return 3;
      }
      if (!first && setrlimit(RLIMIT_DATA, &limit) != 0) return 4;
      for (int round = 0; round < 2; ++round) {
        for (std::size_t i = 0; i < blocks.size(); i += 2) pool.free(blocks[i]);
        Block* const large = pool.allocate(40_MiB);  // 32 MiB are in use, 4 MiB apart
        if (large == nullptr) return 5;
        std::memset(large->begin, 1, 40_MiB);
        if (pool.allocate(16_MiB) != nullptr) return 6;
        pool.free(large);
        if (!pool.make_room_for_others()) return 7;
        void* const other =
            mmap(nullptr, 40_MiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (other == MAP_FAILED) return 8;
        munmap(other, 40_MiB);
        for (std::size_t i = 0; i < blocks.size(); i += 2) {
          if (!fill(i)) return 9;
        }
        for (std::size_t i = 0; i < blocks.size(); ++i) {
          const std::byte expected{static_cast<unsigned char>(i)};
          if (blocks[i]->begin[0] != expected || blocks[i]->begin[4_MiB - 1] != expected) return 10;
        }
        if (pool.check_invariants()[0] != '\0') return 11;
      }
      return 0;
    }));
  }
}
#endif

// While a segment probes for addresses to grow into, none of them may be readable: profilers count
// readable mappings as memory, and mlockall() fills them.
TEST_F(HostPoolTest, ProbedAddressesAreNotReadable) {
  static std::size_t readable = 0;
  HostCalls calls;
  calls.mmap = [](void* at, std::size_t bytes, int protection, int flags, int file,
                  ::off_t offset) noexcept {
    if (protection != PROT_NONE) readable += bytes;
    return ::mmap(at, bytes, protection, flags, file, offset);
  };
  calls.mprotect = [](void* at, std::size_t bytes, int protection) noexcept {
    readable += bytes;
    return ::mprotect(at, bytes, protection);
  };
  HostDevice spied({-1}, HugePages::kAuto, calls);
  readable = 0;
  void* const segment = spied.reserve_segment(4_MiB, 1_GiB);
  ASSERT_NE(segment, nullptr);
  EXPECT_EQ(readable, 4_MiB);
  ASSERT_TRUE(spied.extend_segment(segment, 4_MiB, 2_MiB));
  EXPECT_EQ(readable, 6_MiB);
  std::memset(segment, 1, 6_MiB);
  spied.release_segment(segment, 6_MiB);
}

#if !defined(__SANITIZE_THREAD__) && \
    !defined(__SANITIZE_ADDRESS__)  // shadow memory cannot be locked
struct LockedTest : HostPoolTest {
  void SetUp() override {
    if (!holds_in_child([] { return mlockall(MCL_CURRENT | MCL_FUTURE); })) {
      GTEST_SKIP() << "RLIMIT_MEMLOCK";
    }
  }
  static HostCalls before_linux_5_18() {
    HostCalls calls;
    calls.madvise = [](void* at, std::size_t bytes, int advice) noexcept {
      constexpr int kDontneedLocked = 24;
      if (advice != kDontneedLocked) return ::madvise(at, bytes, advice);
      errno = EINVAL;
      return -1;
    };
    return calls;
  }
};

TEST_F(LockedTest, FreedLockedPagesAreReleased) {
  for (const bool old : {false, true}) {
    for (const int how : {MCL_CURRENT, MCL_FUTURE, MCL_CURRENT | MCL_FUTURE}) {
      for (const bool first : {false, true}) {
        SCOPED_TRACE(std::to_string(how) + (first ? " before" : " after") + (old ? " old" : ""));
        EXPECT_TRUE(holds_in_child([&] {
          if (first && mlockall(how) != 0) return 1;
          HostDevice own({-1}, HugePages::kAuto, old ? before_linux_5_18() : HostCalls{});
          Statistics counts;
          Pool pool(own, small_options(), counts);
          Block* block = pool.allocate(32_MiB);
          if (block == nullptr) return 2;
          std::byte* const begin = block->begin;
          std::memset(begin, 1, 32_MiB);
          if (!first && mlockall(how) != 0) return 3;
          pool.free(block);
          pool.trim();
          if (resident_bytes(begin, 32_MiB) != 0) return 4;
          if (counts.current(StatKind::kReserved) != 0) return 5;
          // The same again, with pages that were released once.
          block = pool.allocate(24_MiB);
          if (block == nullptr) return 6;
          std::memset(block->begin, 1, 24_MiB);
          if (resident_bytes(block->begin, 24_MiB) != 24_MiB) return 7;
          pool.free(block);
          pool.trim();
          if (resident_bytes(begin, 32_MiB) != 0) return 8;
          return pool.check_invariants()[0] == '\0' ? 0 : 9;
        }));
      }
    }
  }
}

TEST_F(LockedTest, OnlyTouchedPagesBecomeResident) {
  EXPECT_TRUE(holds_in_child([] {
    if (mlockall(MCL_FUTURE) != 0) return 1;
    const std::size_t before = process_resident_bytes();
    HostDevice own;
    Statistics counts;
    Pool pool(own, {}, counts);
    Block* small = pool.allocate(1_MiB);
    Block* block = pool.allocate(200_MiB);
    if (small == nullptr || block == nullptr) return 2;
    std::memset(small->begin, 1, 1_MiB);
    std::memset(block->begin, 1, 2_MiB);
    return process_resident_bytes() < before + 8_MiB ? 0 : 3;
  }));
}

TEST_F(LockedTest, MovedRangesKeepTheirSettings) {
  if (device.capabilities().move_bytes == 0) GTEST_SKIP() << "this kernel cannot";
  const bool whole = !device.capabilities().joins_pages;
  for (const bool first : {false, true}) {
    EXPECT_TRUE(holds_in_child([&] {
      if (first && mlockall(MCL_FUTURE) != 0) return 1;
      HostDevice own;
      auto* const mine = static_cast<std::byte*>(own.reserve_segment(32_MiB, 32_MiB));
      if (mine == nullptr) return 2;
      std::memset(mine, 7, 2_MiB);
      if (!first && mlockall(MCL_FUTURE) != 0) return 3;
      const bool moved = own.move_pages(mine, mine + 16_MiB, 2_MiB, whole);
      if (resident_bytes(mine, 32_MiB) != 2_MiB) return 4;
      const std::byte* const now = mine + (moved ? 16_MiB : 0);
      for (std::size_t i = 0; i < 2_MiB; i += 1000) {
        if (now[i] != std::byte{7}) return 5;
      }
      if (own.release_pages(mine, 32_MiB, whole) == Released::kNothing) return 6;
      return resident_bytes(mine, 32_MiB) == 0 ? 0 : 7;
    }));
  }
}
#endif

// The bytes of a range in huge pages.
std::size_t huge_bytes(const std::byte* begin, std::size_t bytes) {
  std::FILE* file = std::fopen("/proc/self/smaps", "r");
  char line[1024];
  std::size_t sum = 0;
  bool inside = false;
  while (std::fgets(line, sizeof line, file) != nullptr) {
    char* end = nullptr;
    const std::uintptr_t from = std::strtoull(line, &end, 16);
    if (*end == '-') {
      inside = from + 1 > reinterpret_cast<std::uintptr_t>(begin) &&
               from < reinterpret_cast<std::uintptr_t>(begin) + bytes;
    }
    unsigned long kib = 0;
    if (inside && std::sscanf(line, "AnonHugePages: %lu", &kib) == 1) sum += kib * 1024;
  }
  std::fclose(file);
  return sum;
}

struct HostDensityTest : HostPoolTest {
  HostDensityTest() {
    options.join_share = 1e6;
    options.guessed_bytes = 0;
  }
  void SetUp() override {
    if (!device.capabilities().joins_pages) GTEST_SKIP() << "not here";
  }
  static void use(Pool& pool) {
    for (int i = 0; i < 200; ++i) pool.free(pool.allocate(64_KiB));
  }
  static HostCalls before_linux_6_1() {
    HostCalls calls;
    calls.madvise = [](void* at, std::size_t bytes, int advice) noexcept {
      constexpr int kCollapse = 25;
      if (advice != kCollapse) return ::madvise(at, bytes, advice);
      errno = EINVAL;
      return -1;
    };
    return calls;
  }
  PoolOptions options;
};

// Like a key/value cache of which 16 positions are written.
TEST_F(HostDensityTest, SparseBlockTakesOnlyWrittenPages) {
  Pool pool(device, options, statistics);
  Block* block = pool.allocate(512_MiB);
  ASSERT_NE(block, nullptr);
  for (std::size_t i = 0; i < 2000; ++i) {
    block->begin[i * 268'433 % 512_MiB] = std::byte{1};  // no two on one page of 4 KiB
  }
  for (int round = 0; round < 3; ++round) use(pool);
  EXPECT_LE(resident_bytes(block->begin, 512_MiB), 2000 * 4_KiB);
  pool.free(block);
  EXPECT_LE(current(statistics, StatKind::kCached), 2001 * 64_KiB);
  EXPECT_STREQ(pool.check_invariants(), "");
}

TEST_F(HostDensityTest, DenseBlockIsJoinedIntoHugePages) {
  PLEAT_SEED(seed);
  std::mt19937_64 random(seed);
  Pool pool(device, options, statistics);
  Block* block = pool.allocate(16_MiB);
  auto* const words = reinterpret_cast<std::uint64_t*>(block->begin);
  for (std::size_t i = 0; i < 16_MiB / 8; ++i) words[i] = i * seed;
  EXPECT_EQ(huge_bytes(block->begin, 16_MiB), 0u);
  for (int round = 0; round < 100 && huge_bytes(block->begin, 16_MiB) < 16_MiB; ++round) use(pool);
  EXPECT_EQ(huge_bytes(block->begin, 16_MiB), 16_MiB);
  for (std::size_t i = 0; i < 16_MiB / 8; ++i) ASSERT_EQ(words[i], i * seed);
  // The pages are whole again if they were released because others needed memory.
  std::byte* const begin = block->begin;
  ASSERT_EQ(device.release_pages(begin, 16_MiB, true), Released::kAnew);
  begin[0] = std::byte{1};
  EXPECT_EQ(resident_bytes(begin, 16_MiB), 2_MiB);
}

TEST_F(HostDensityTest, WithoutCollapsePagesBecomeWholeAtTheNextUse) {
  HostDevice old({-1}, HugePages::kAuto, before_linux_6_1());
  Pool pool(old, options, statistics);
  Block* block = pool.allocate(16_MiB);
  std::byte* const begin = block->begin;
  std::memset(begin, 7, 16_MiB);
  for (int round = 0; round < 3; ++round) use(pool);
  for (std::size_t i = 0; i < 16_MiB; i += 1000) ASSERT_EQ(begin[i], std::byte{7});
  ASSERT_NE(old.release_pages(begin, 16_MiB, true), Released::kNothing);
  begin[0] = std::byte{1};
  EXPECT_EQ(resident_bytes(begin, 16_MiB), 2_MiB);
}

// Simulates a first touch that the host of a virtual machine answers late, by the thread's clock.
TEST_F(HostDensityTest, HugePagesAreRequestedWhileTheirFirstTouchIsCheap) {
  static int asked;
  static long huge_ns;
  for (const long each_ns : {300'000L, 10'000'000L}) {
    asked = 0;
    huge_ns = each_ns;
    HostCalls calls;
    calls.clock_gettime = [](clockid_t, timespec* now) noexcept {  // 32 small pages in 50 us
      now->tv_sec = 0;
      now->tv_nsec = asked % 3 == 0 ? 0 : huge_ns + (asked % 3 == 1 ? 0 : 50'000);
      ++asked;
      return 0;
    };
    HostDevice own({-1}, HugePages::kAuto, calls);
    auto* const begin = static_cast<std::byte*>(own.reserve_segment(16_MiB, 16_MiB));
    ASSERT_NE(begin, nullptr);
    EXPECT_EQ(own.expect_whole(begin, 8_MiB), each_ns < 1'000'000);
    EXPECT_EQ(asked, each_ns < 1'000'000 ? 3 : 6);
    begin[0] = begin[8_MiB] = std::byte{1};
    EXPECT_EQ(resident_bytes(begin, 8_MiB), each_ns < 1'000'000 ? 2_MiB : std::size_t{4_KiB});
    EXPECT_EQ(resident_bytes(begin + 8_MiB, 8_MiB), 4_KiB);
    own.release_segment(begin, 16_MiB);
  }
}

// The cost of a huge page varies tenfold between machines. This check holds on all of them: a large
// block of a new size costs as much as small pages.
TEST_F(HostDensityTest, FirstTouchOfALargeBlockCostsAsMuchAsSmallPages) {
  const auto thread_seconds = [] {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
  };
  const auto first_touch = [&](HugePages wanted) {
    HostDevice own({-1}, wanted);
    Statistics counts;
    Pool pool(own, {}, counts);
    Block* block = pool.allocate(512_MiB);
    const double begin = thread_seconds();
    std::memset(block->begin, 1, 512_MiB);
    const double spent = thread_seconds() - begin;
    pool.free(block);
    return spent;
  };
  double small = 1e9, automatic = 1e9;
  for (int round = 0; round < 3; ++round) {
    small = std::min(small, first_touch(HugePages::kNever));
    automatic = std::min(automatic, first_touch(HugePages::kAuto));
  }
  EXPECT_LE(automatic, 1.25 * small + 0.02);
}

TEST_F(HostDensityTest, OptionsAlwaysAndNeverAreObeyed) {
  for (const HugePages wanted : {HugePages::kAlways, HugePages::kNever}) {
    HostDevice own({-1}, wanted);
    Statistics counts;
    Pool pool(own, options, counts);
    Block* block = pool.allocate(16_MiB);
    block->begin[0] = std::byte{1};
    EXPECT_EQ(resident_bytes(block->begin, 16_MiB),
              wanted == HugePages::kAlways ? 2_MiB : std::size_t{4_KiB});
    std::memset(block->begin, 1, 16_MiB);
    for (int round = 0; round < 3; ++round) use(pool);
    EXPECT_EQ(huge_bytes(block->begin, 16_MiB), wanted == HugePages::kAlways ? 16_MiB : 0u);
    pool.free(block);
    EXPECT_STREQ(pool.check_invariants(), "");
  }
}

// Whether malloc() has the memory, as without Pleat.
bool stock_has(std::size_t bytes) {
  void* const volatile memory = std::malloc(bytes);
  std::free(memory);
  return memory != nullptr;
}

std::size_t memory_bytes() {
  return static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)  // they replace malloc()
TEST_F(HostPoolTest, AbsurdSizeIsRefusedWhereMallocRefusesIt) {
  Pool pool(device, {}, statistics);
  for (const double times : {0.1, 0.6, 0.9, 1.5, 4.0, 16.0, 100.0}) {
    SCOPED_TRACE(times);
    const auto bytes = static_cast<std::size_t>(static_cast<double>(memory_bytes()) * times);
    errno = 1234;
    Block* const block = pool.allocate(bytes);
    EXPECT_EQ(errno, 1234);
    EXPECT_EQ(block != nullptr, stock_has(bytes));
    if (block != nullptr) pool.free(block);
    EXPECT_NE(pool.allocate(1_MiB), nullptr) << "what fits is there afterwards";
  }
  EXPECT_STREQ(pool.check_invariants(), "");
}

TEST_F(HostPoolTest, ProcessLimitsRefuseTheSizesThatMallocRefuses) {
  for (const auto resource : {RLIMIT_AS, RLIMIT_DATA}) {
    for (const bool first : {false, true}) {  // before there is a pool
      SCOPED_TRACE(std::to_string(resource) + (first ? " before" : " after"));
      EXPECT_TRUE(holds_in_child([&] {
        std::FILE* file = std::fopen("/proc/self/statm", "r");
        unsigned long pages = 0;
        if (std::fscanf(file, "%lu", &pages) != 1) return 1;
        std::fclose(file);
        const rlimit limit{pages * 4096 + 2_GiB, RLIM_INFINITY};
        if (first && setrlimit(resource, &limit) != 0) return 2;
        HostDevice own;
        Statistics counts;
        Pool pool(own, {}, counts);
        Block* block = pool.allocate(100_MiB);
        if (block == nullptr) return 3;
        std::memset(block->begin, 1, 100_MiB);
        if (!first && setrlimit(resource, &limit) != 0) return 4;
        for (const std::size_t bytes : {100_MiB, 1_GiB, 4_GiB, 16_GiB, 40_GiB}) {
          const bool expected = stock_has(bytes);
          Block* const other = pool.allocate(bytes);
          if ((other != nullptr) != expected) return static_cast<int>(10 + bytes / 1_GiB);
          if (other != nullptr) pool.free(other);
          pool.trim();
          if (pool.allocate(1_MiB) == nullptr) return 5;
        }
        return pool.check_invariants()[0] == '\0' ? 0 : 6;
      }));
    }
  }
}
#endif

// The modes of vm.overcommit_memory, a setting of the machine that a test must not change.
struct OvercommitKernel {
  static inline int mode = 0;
  static inline std::map<void*, std::pair<std::size_t, int>> mappings;
  static constexpr std::size_t kMemory = 8_GiB;

  static HostCalls calls() {
    HostCalls calls;
    calls.mmap = [](void* at, std::size_t bytes, int protection, int flags, int file,
                    ::off_t offset) noexcept {
      void* const mapped = ::mmap(at, bytes, protection, flags | MAP_NORESERVE, file, offset);
      if (mapped != MAP_FAILED) mappings[mapped] = {bytes, flags};
      return mapped;
    };
    calls.mprotect = [](void* at, std::size_t bytes, int protection) noexcept {
      const bool reserves = mode == 2 || (mappings[at].second & MAP_NORESERVE) == 0;
      const bool too_much = (mode == 0 && bytes > kMemory) || (mode == 2 && bytes > kMemory / 2);
      if (reserves && too_much) {
        errno = ENOMEM;
        return -1;
      }
      return ::mprotect(at, bytes, protection);
    };
    return calls;
  }
};

TEST_F(HostPoolTest, PromisesFollowTheKernelsOvercommitMode) {
  HostDevice own({-1}, HugePages::kAuto, OvercommitKernel::calls());
  OvercommitKernel::mode = 0;
  EXPECT_TRUE(own.would_promise(7_GiB));
  EXPECT_FALSE(own.would_promise(9_GiB));
  OvercommitKernel::mode = 1;
  EXPECT_TRUE(own.would_promise(7_GiB));
  EXPECT_TRUE(own.would_promise(9_GiB));
  OvercommitKernel::mode = 2;  // free segments count already; growing ones meet the limit
  EXPECT_TRUE(own.would_promise(3_GiB));
  EXPECT_TRUE(own.would_promise(7_GiB));
  OvercommitKernel::mappings.clear();
}

TEST_F(HostPoolTest, ForkedChildCanAllocateAndFree) {
  Pool pool(device, {}, statistics);
  PayloadArena arena(pool);
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    while (!stop) {
      PayloadSlot slot = arena.allocate(10000);
      pool.free(pool.allocate(1_MiB));
      arena.free(slot);
    }
  });
  Block* parents = pool.allocate(1_MiB);
  std::memset(parents->begin, 42, 1_MiB);
  for (int i = 0; i < 5; ++i) {
    arena.lock_for_fork();
    pool.lock_for_fork();
    const pid_t child = fork();
    pool.unlock_after_fork();
    arena.unlock_after_fork();
    if (child == 0) {
      alarm(20);  // a deadlock must not hang the test
      if (parents->begin[77] != std::byte{42}) _exit(1);
      pool.free(parents);
      PayloadSlot slot = arena.allocate(10000);
      Block* block = pool.allocate(3_MiB);
      if (block == nullptr || !slot) _exit(2);
      _exit(pool.check_invariants()[0] == '\0' ? 0 : 3);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  stop = true;
  busy.join();
  EXPECT_EQ(parents->begin[77], std::byte{42});
  pool.free(parents);
  EXPECT_STREQ(pool.check_invariants(), "");
}

// Eight threads allocate, write a mark, and free blocks of other threads; one more trims and
// checks.
TEST_F(HostPoolTest, AnyThreadCanFree) {
  PLEAT_SEED(seed);
  PoolOptions options;
  options.epoch_ns = 10'000'000;
  Pool pool(device, options, statistics);
  constexpr int kThreads = 8;
  struct Shelf {
    std::mutex mutex;
    std::vector<Block*> blocks;
  };
  Shelf shelves[kThreads];
  std::atomic<int> errors{0};
  std::atomic<bool> stop{false};
  std::thread inspector([&] {
    while (!stop) {
      if (pool.check_invariants()[0] != '\0') ++errors;
      pool.trim();
      ::usleep(2000);
    }
  });
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(seed + static_cast<std::uint64_t>(t));
      for (int i = 0; i < scaled(20000); ++i) {
        Shelf& shelf = shelves[random() % kThreads];
        if (random() % 2 == 0) {
          Block* block = pool.allocate(4096 + random() % 200_KiB);
          if (block == nullptr || pool.find(block->begin) != block || !pool.owns(block->begin)) {
            ++errors;
            continue;
          }
          std::memcpy(block->begin, &block->id, sizeof block->id);
          const std::lock_guard<std::mutex> lock(shelf.mutex);
          shelf.blocks.push_back(block);
        } else {
          Block* block = nullptr;
          {
            const std::lock_guard<std::mutex> lock(shelf.mutex);
            if (shelf.blocks.empty()) continue;
            block = shelf.blocks.back();
            shelf.blocks.pop_back();
          }
          BlockId mark;
          std::memcpy(&mark, block->begin, sizeof mark);
          if (mark != block->id) ++errors;
          if (random() % 4 == 0) pool.shrink(block, 1 + random() % block->requested);
          pool.free(block);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  stop = true;
  inspector.join();
  EXPECT_EQ(errors, 0);
  for (Shelf& shelf : shelves) {
    for (Block* block : shelf.blocks) pool.free(block);
  }
  EXPECT_STREQ(pool.check_invariants(), "");
  EXPECT_EQ(current(statistics, StatKind::kRequested), 0u);
}

}  // namespace
}  // namespace pleat::allocator
