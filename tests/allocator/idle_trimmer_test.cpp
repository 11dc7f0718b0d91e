#include "allocator/host/idle_trimmer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <iterator>
#include <thread>

#include "test_support.h"

namespace pleat::allocator {
namespace {

using namespace testing;
using namespace std::chrono_literals;

std::size_t threads() {
  return static_cast<std::size_t>(
      std::distance(std::filesystem::directory_iterator("/proc/self/task"),
                    std::filesystem::directory_iterator()));
}

struct IdleTrimmerTest : ::testing::Test {
  FakeDevice device{1_GiB};
  Statistics statistics;
  Pool pool{device, PoolOptions{}, statistics};

  IdleTrimmerTest() { device.caps.reserves_freely = true; }  // else age releases segments
  void use(std::size_t bytes) {
    Block* const block = pool.allocate(bytes);
    pool.free(block);
  }
  bool is_given_back() const { return current(statistics, StatKind::kCached) < 1_MiB; }
  bool is_given_back_within(std::chrono::milliseconds time) const {
    for (const auto end = std::chrono::steady_clock::now() + time;
         std::chrono::steady_clock::now() < end; std::this_thread::sleep_for(1ms)) {
      if (is_given_back()) {
        return true;
      }
    }
    return is_given_back();
  }
};

TEST_F(IdleTrimmerTest, PagesOfAnIdlePoolAreReleased) {
  IdleTrimmer trimmer(pool, 20ms);
  use(64_MiB);
  ASSERT_FALSE(is_given_back());
  EXPECT_FALSE(is_given_back_within(100ms)) << "without a thread";
  trimmer.note_use();
  EXPECT_TRUE(is_given_back_within(10s));
  EXPECT_STREQ(pool.check_invariants(), "");
}

TEST_F(IdleTrimmerTest, PoolInUseKeepsItsPages) {
  IdleTrimmer trimmer(pool, 1s);
  trimmer.note_use();
  use(64_MiB);
  for (const auto end = std::chrono::steady_clock::now() + 2500ms;
       std::chrono::steady_clock::now() < end; std::this_thread::sleep_for(10ms)) {
    use(4096);
    ASSERT_FALSE(is_given_back());
  }
}

TEST_F(IdleTrimmerTest, PagesNeededAgainSoonAreKeptLonger) {
  IdleTrimmer trimmer(pool, 40ms);
  trimmer.note_use();
  int trims = 0;
  for (int step = 0; step < 12; ++step) {  // a job that pauses for longer than the patience
    use(64_MiB);
    std::this_thread::sleep_for(130ms);
    trims += is_given_back() ? 1 : 0;
  }
  EXPECT_GE(trims, 1);
  EXPECT_LE(trims, 8);
}

TEST_F(IdleTrimmerTest, ForkEndsTheThreadAndTheNextUseStartsIt) {
  const std::size_t before = threads();
  IdleTrimmer trimmer(pool, 20ms);
  trimmer.note_use();
  EXPECT_EQ(threads(), before + 1);
  trimmer.lock_for_fork();
  EXPECT_EQ(threads(), before);
  trimmer.unlock_after_fork();
  EXPECT_EQ(threads(), before);
  use(64_MiB);
  trimmer.note_use();
  EXPECT_TRUE(is_given_back_within(10s));
}

}  // namespace
}  // namespace pleat::allocator
