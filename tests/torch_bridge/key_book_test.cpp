#include "torch_bridge/core/key_book.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <thread>
#include <vector>

namespace pleat::bridge {
namespace {

using Ordinals = std::vector<std::uint32_t>;

// What three layers of family 7 and one of family 8 get.
Ordinals record_a_graph(KeyBook::Recording& recording) {
  Ordinals ordinals;
  for (const std::uint64_t family : {7, 7, 8, 7}) {
    ordinals.push_back(recording.next(family));
    recording.take(family);
  }
  return ordinals;
}
const Ordinals kGraph{0, 1, 0, 2};

void begin_backward_over(KeyBook& book, std::uint64_t thread) {
  const std::uint64_t threads[] = {thread};
  book.start_anew(threads);
}

TEST(KeyBook, EveryStepGetsTheSameOrdinals) {
  KeyBook book;
  KeyBook::Recording recording(book, 1);
  for (int step = 0; step < 3; ++step) {
    EXPECT_EQ(record_a_graph(recording), kGraph);
    begin_backward_over(book, 1);
  }
}

TEST(KeyBook, ASecondSaveThatTakesNoneLeavesTheOrdinalToTheNextTensor) {
  KeyBook book;
  KeyBook::Recording recording(book, 1);
  EXPECT_EQ(recording.next(7), 0u);
  EXPECT_EQ(recording.next(7), 0u);
  recording.take(7);
  EXPECT_EQ(recording.next(7), 1u);
}

TEST(KeyBook, AGraphRecordedWhileAnotherWaitsForItsBackwardGoesOnCounting) {
  KeyBook book;
  KeyBook::Recording recording(book, 1);
  EXPECT_EQ(record_a_graph(recording), kGraph);
  EXPECT_EQ(record_a_graph(recording), (Ordinals{3, 4, 1, 5}));
}

// The other thread begins and ends its passes at every point of ours.
TEST(KeyBook, TwoThreadsThatTrainSideBySideEachRepeatTheirOrdinals) {
  KeyBook book;
  KeyBook::Recording mine(book, 1);
  KeyBook::Recording other(book, 2);
  for (int step = 0; step < 4; ++step) {
    Ordinals ordinals;
    for (const std::uint64_t family : {7, 7, 8, 7}) {
      ordinals.push_back(mine.next(family));
      other.take(family);
      begin_backward_over(book, 2);
      mine.take(family);
      other.take(family);
    }
    EXPECT_EQ(ordinals, kGraph);
    begin_backward_over(book, 1);
  }
}

TEST(KeyBook, RealThreadsSideBySideEachRepeatTheirOrdinals) {
  KeyBook book;
  std::vector<int> wrong(4, 0);
  std::vector<std::thread> threads;
  for (std::size_t n = 0; n < wrong.size(); ++n) {
    threads.emplace_back([&book, &wrong, n] {
      KeyBook::Recording recording(book, 10 + n);
      for (int step = 0; step < 500; ++step) {
        wrong[n] += record_a_graph(recording) != kGraph;
        begin_backward_over(book, 10 + n);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

TEST(KeyBook, AGraphRunInAnotherThreadStartsTheOneThatRecordedItAnew) {
  KeyBook book;
  KeyBook::Recording recording(book, 1);
  for (int step = 0; step < 3; ++step) {
    EXPECT_EQ(record_a_graph(recording), kGraph);
    std::thread([&book] {
      KeyBook::Recording runs_it(book, 2);
      EXPECT_EQ(record_a_graph(runs_it), kGraph);
      begin_backward_over(book, 1);
      EXPECT_EQ(runs_it.next(7), 3u);  // its own graph goes on
    }).join();
  }
}

TEST(KeyBook, RootsOfThreadsThatHaveEndedArePassedOver) {
  KeyBook book;
  KeyBook::Recording recording(book, 1);
  { const KeyBook::Recording ended(book, 2); }
  EXPECT_EQ(record_a_graph(recording), kGraph);
  const std::uint64_t threads[] = {2, 3, 1};
  book.start_anew(threads);
  EXPECT_EQ(record_a_graph(recording), kGraph);
}

TEST(KeyBook, CountsAsATableOfAllOrdinalsWould) {
  const char* const given = std::getenv("PLEAT_TEST_SEED");
  const auto seed = given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  SCOPED_TRACE("PLEAT_TEST_SEED=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  KeyBook book;
  constexpr std::uint64_t kThreads = 5;
  std::vector<std::unique_ptr<KeyBook::Recording>> recordings(kThreads);
  std::vector<std::map<std::uint64_t, std::uint32_t>> expected(kThreads);
  // More families than a book remembers from graph to graph.
  for (int i = 0; i < 60'000; ++i) {
    const std::uint64_t thread = random() % kThreads;
    std::unique_ptr<KeyBook::Recording>& recording = recordings[thread];
    switch (recording == nullptr ? 0 : random() % 1024) {
      case 0:  // a thread ends, or another begins
        recording = recording ? nullptr : std::make_unique<KeyBook::Recording>(book, thread);
        expected[thread].clear();
        break;
      case 1:
        begin_backward_over(book, thread);
        expected[thread].clear();
        break;
      default: {
        const std::uint64_t family = random() % 2 != 0 ? random() % 16 : random() % 16384;
        ASSERT_EQ(recording->next(family), expected[thread][family]);
        if (random() % 4 != 0) {
          recording->take(family);
          ++expected[thread][family];
        }
      }
    }
  }
}

}  // namespace
}  // namespace pleat::bridge
