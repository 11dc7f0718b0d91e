#include "allocator/host/live_window.h"

#include <gtest/gtest.h>

#include "allocator/host/touched_pages.h"
#include "test_support.h"

namespace pleat::allocator {
namespace {

TEST(LiveWindow, RisesAtOnceAndFallsAfterFourEpochs) {
  LiveWindow window(100);
  EXPECT_FALSE(window.advance(1000, 0));  // time begins here
  window.raise(500);
  window.raise(50);
  EXPECT_EQ(window.high(), 500u);
  for (const std::uint64_t now : {1100u, 1200u, 1300u}) {
    EXPECT_TRUE(window.advance(now, 50));
    EXPECT_EQ(window.high(), 500u) << now;
  }
  EXPECT_FALSE(window.advance(1399, 50));
  EXPECT_TRUE(window.advance(1400, 50));
  EXPECT_EQ(window.high(), 50u);
}

TEST(LiveWindow, LongPauseDropsAllEpochs) {
  LiveWindow window(100);
  window.advance(1000, 0);
  window.raise(500);
  EXPECT_TRUE(window.advance(1'000'000, 7));
  EXPECT_EQ(window.high(), 7u);
}

TEST(LiveWindow, LengtheningIsBoundedAndUndoneByARestart) {
  LiveWindow window(100);
  for (int i = 0; i < 10; ++i) window.lengthen();
  EXPECT_EQ(window.epoch_ns(), 100 * LiveWindow::kMaxLengthening);
  window.raise(500);
  window.restart(3);
  EXPECT_EQ(window.epoch_ns(), 100u);
  EXPECT_EQ(window.high(), 3u);
}

TEST(TouchedPages, CountsAcrossWords) {
  alignas(8) std::byte memory[256] = {};
  ASSERT_LE(TouchedPages::metadata_bytes(300), sizeof memory);
  TouchedPages pages;
  pages.attach(memory, 300);
  pages.touch(60, 200);
  pages.touch(100, 210);
  EXPECT_EQ(pages.count(), 150u);
  EXPECT_TRUE(pages.all_touched(60, 210));
  EXPECT_FALSE(pages.all_touched(59, 210));
  EXPECT_EQ(pages.untouched(0, 300), 150u);
  EXPECT_EQ(pages.last_touched(0, 300), 209u);
  EXPECT_EQ(pages.last_touched(0, 128), 127u);
  EXPECT_EQ(pages.last_touched(0, 60), TouchedPages::kNone);
  pages.clear(64, 256);
  EXPECT_EQ(pages.count(), 4u);
  EXPECT_EQ(pages.last_touched(0, 300), 63u);
}

TEST(TouchedPages, BestWindowIsTheLowestWithFewestUntouchedPages) {
  PLEAT_SEED(seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < testing::scaled(2000); ++round) {
    alignas(8) std::byte memory[256] = {};
    TouchedPages pages;
    pages.attach(memory, 300);
    for (int i = 0; i < 6; ++i) {
      const std::size_t begin = random() % 250;
      pages.touch(begin, begin + 1 + random() % 30);
    }
    const std::size_t begin = random() % 200;
    const std::size_t end = begin + 1 + random() % (300 - begin);
    const std::size_t length = 1 + random() % (end - begin);
    std::size_t best = begin;
    for (std::size_t at = begin; at + length <= end; ++at) {
      if (pages.untouched(at, at + length) < pages.untouched(best, best + length)) best = at;
    }
    const auto window = pages.best_window(begin, end, length);
    ASSERT_EQ(window.begin, best);
    ASSERT_EQ(window.untouched, pages.untouched(best, best + length));
  }
}

}  // namespace
}  // namespace pleat::allocator
