// The recorder between threads: what they name, and traces that begin and end meanwhile. Meant for
// the thread sanitizer, too.
#include <atomic>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/interpose/recorder_fixture.h"

namespace {

using namespace pleat::recorder_testing;

// libunwind has a destructor for its threads' data that runs when the thread sanitizer has left.
#ifdef __SANITIZE_THREAD__
constexpr unsigned kStacks = PLEAT_TRACE_STACKS_NONE;
#else
constexpr unsigned kStacks = PLEAT_TRACE_STACKS_NATIVE;
#endif

// Of an event's key: half of the names are each thread's own.
std::string name_of(std::uint64_t key) {
  return key % 2 == 0 ? "shared " + std::to_string(key % 100) : "own " + std::to_string(key);
}

__attribute__((noinline)) std::uint32_t stack_at(std::uint64_t depth) {
  const std::uint32_t stack = depth == 0 ? recorder().stack(1) : stack_at(depth - 1);
  __asm__ volatile("");
  return stack;
}

TEST_F(Recorder, ThreadsNameThingsWhileTheWriterWritesThem) {
  ASSERT_EQ(start(folder_ / "t", kStacks), "");
  const bool has_stacks = recorder().stack(0) != 0;
  constexpr std::uint64_t kThreads = 6, kEach = 3000;
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([t] {
      for (std::uint64_t i = 0; i < kEach; ++i) {
        PleatTraceEvent event = event_of(t * kEach + i);
        const std::string name = name_of(event.key);
        event.op = recorder().intern(name.data(), name.size());
        event.stack = stack_at(event.key % 40);
        recorder().event(&event);
        recorder().small(static_cast<std::int64_t>(i % 3) - 1);
        if (i % 500 == 0) ::usleep(1000);
      }
    });
  }
  std::uint64_t writer_ns = 0, file_bytes = 0;
  for (int i = 0; i < 50; ++i) {
    recorder().cost(&writer_ns, &file_bytes);
    ::usleep(1000);
  }
  for (std::thread& thread : threads) thread.join();
  recorder().stop();
  const auto file = open(folder_ / "t");
  ASSERT_NE(file, nullptr);
  EXPECT_EQ(file->problems().all(), 0u);
  const std::vector<PleatTraceEvent> events = told(*file);
  EXPECT_EQ(events.size() + lost(*file), kThreads * kEach);
  EXPECT_GT(events.size(), kThreads * kEach / 2);
  std::map<std::uint64_t, std::set<std::uint32_t>> depths;
  for (const PleatTraceEvent& event : events) {
    ASSERT_EQ(file->definitions().string(event.op), name_of(event.key));
    std::uint32_t frames = 0;
    file->definitions().walk(event.stack, [&](std::uint32_t /*frame*/) {
      ++frames;
      return true;
    });
    depths[event.key % 40].insert(frames);
  }
  if (!has_stacks) return;
  for (const auto& [depth, frames] : depths) {
    ASSERT_EQ(frames.size(), 1u) << "stacks of one place differ";
    EXPECT_EQ(*frames.begin(), *depths.at(0).begin() + depth);
  }
}

TEST_F(Recorder, TracesBeginAndEndWhileThreadsHaveEvents) {
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> last{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      while (!stop.load(std::memory_order_relaxed)) {
        tell(last.fetch_add(1, std::memory_order_relaxed) + 1);
        if (last.load(std::memory_order_relaxed) % 64 == 0) std::this_thread::yield();
      }
    });
  }
  constexpr int kTraces = 24;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> between;
  std::vector<std::uint64_t> counted;
  for (int i = 0; i < kTraces; ++i) {
    const std::uint64_t begin = last.load();
    ASSERT_EQ(start(folder_ / std::to_string(i)), "");
    ::usleep(i % 2 == 0 ? 0 : 1000);
    counted.push_back(recorder().stop());
    between.emplace_back(begin, last.load());
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < kTraces; ++i) {
    const auto file = open(folder_ / std::to_string(i));
    ASSERT_NE(file, nullptr);
    EXPECT_FALSE(file->incomplete()) << i;
    EXPECT_EQ(file->problems().all(), 0u) << i;
    const std::vector<PleatTraceEvent> events = told(*file);
    EXPECT_EQ(events.size(), counted[static_cast<std::size_t>(i)]);
    std::set<std::uint64_t> keys;
    for (const PleatTraceEvent& event : events) {
      EXPECT_TRUE(keys.insert(event.key).second) << "told twice";
      EXPECT_LE(event.key, between[static_cast<std::size_t>(i)].second + threads.size());
    }
  }
}

}  // namespace
