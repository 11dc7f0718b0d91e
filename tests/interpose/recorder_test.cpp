// libpleat_recorder.so as a bridge calls it; what it wrote is read by the reader of `pleat trace`.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstring>
#include <fstream>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include "tests/interpose/recorder_fixture.h"

namespace pleat::recorder_testing {

namespace {

TEST_F(Recorder, AnEventComesBackAsItWasTold) {
  ASSERT_EQ(start(folder_ / "t", PLEAT_TRACE_STACKS_NONE, R"({"pid": 7, "torch": "2.11"})"), "");
  std::mt19937_64 random(1);
  std::vector<PleatTraceEvent> events(3000);
  for (PleatTraceEvent& event : events) {
    event = event_of(random());
    event.kind = static_cast<std::uint8_t>(1 + random() % PLEAT_TRACE_OTHER);
    event.phase = random() % 6;
    event.reason = static_cast<std::uint8_t>(random());
    event.device = static_cast<std::int8_t>(static_cast<int>(random() % 4) - 1);
    event.bytes = random() >> (random() % 64);
    event.block = random() >> (random() % 64);
    event.record = random() >> (random() % 64);
    event.node = random() >> (random() % 64);
    event.stream = random() >> (random() % 64);
    event.address = random() % 2 == 0 ? 0 : 0x7f0000000000u + (random() >> 24 << 6);
    for (std::int64_t& change : event.change) {
      change = random() % 2 == 0 ? 0 : static_cast<std::int64_t>(random()) >> (random() % 64);
    }
    event.change[PLEAT_TRACE_RESERVED] >>= 16;  // the recorder adds them up
    const std::string op = "aten::op" + std::to_string(random() % 5);
    event.op = recorder().intern(op.data(), op.size());
    ASSERT_NE(event.op, 0u);
    recorder().event(&event);
  }
  EXPECT_EQ(recorder().stop(), events.size());

  const auto file = open(folder_ / "t");
  ASSERT_NE(file, nullptr);
  EXPECT_FALSE(file->incomplete());
  EXPECT_EQ(file->process().pid, 7);
  EXPECT_EQ(lost(*file), 0u);
  const std::vector<PleatTraceEvent> read = told(*file);
  ASSERT_EQ(read.size(), events.size());
  std::uint64_t base = 0;
  for (std::size_t i = 0; i < read.size(); ++i) {
    PleatTraceEvent wanted = events[i];
    if (wanted.address != 0) {
      if (base == 0) base = wanted.address - read[i].address;
      wanted.address -= base;
    }
    wanted.thread = static_cast<std::uint32_t>(::gettid());
    ASSERT_EQ(std::memcmp(&read[i], &wanted, sizeof wanted), 0) << i;
  }
  EXPECT_NE(base, 0u);
  EXPECT_EQ(file->definitions().string(events[0].op).substr(0, 8), "aten::op");
}

TEST_F(Recorder, ATextHasOneNumberAndIsCutWhereItIsLong) {
  ASSERT_EQ(start(folder_ / "t"), "");
  const std::string name = "caf\xc3\xa9", large(10000, 'x');
  const std::uint32_t one = recorder().intern(name.data(), name.size());
  EXPECT_EQ(recorder().intern(name.data(), name.size()), one);
  const std::uint32_t other = recorder().intern(large.data(), large.size());
  EXPECT_NE(one, other);
  tell(1);
  recorder().stop();
  const auto file = open(folder_ / "t");
  ASSERT_NE(file, nullptr);
  EXPECT_EQ(file->definitions().string(one), name);
  EXPECT_EQ(file->definitions().string(other), large.substr(0, 4096));
}

TEST_F(Recorder, ThreadsThatEndLeaveTheirEventsBehind) {
  ASSERT_EQ(start(folder_ / "t"), "");
  constexpr std::uint64_t kThreads = 40, kEach = 200;
  std::mutex mutex;
  std::set<std::uint32_t> numbers;
  for (std::uint64_t round = 0; round < 2; ++round) {
    std::vector<std::thread> threads;
    for (std::uint64_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (std::uint64_t i = 0; i < kEach; ++i) tell((round * kThreads + t) * kEach + i);
        recorder().small(100);
        recorder().small(-40);
        const std::lock_guard<std::mutex> guard(mutex);
        numbers.insert(static_cast<std::uint32_t>(::gettid()));
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  recorder().stop();
  const auto file = open(folder_ / "t");
  ASSERT_NE(file, nullptr);
  const std::vector<PleatTraceEvent> events = told(*file);
  std::set<std::uint64_t> keys;
  std::set<std::uint32_t> seen;
  for (const PleatTraceEvent& event : events) {
    keys.insert(event.key);
    seen.insert(event.thread);
  }
  EXPECT_EQ(keys.size(), 2 * kThreads * kEach);
  EXPECT_EQ(events.size(), keys.size());
  EXPECT_EQ(seen, numbers);
  EXPECT_TRUE(std::is_sorted(events.begin(), events.end(),
                             [](const auto& a, const auto& b) { return a.time_ns < b.time_ns; }));
  PleatTraceEvent last{};
  file->for_each([&](const PleatTraceEvent& event) {
    if (event.kind == PLEAT_TRACE_SMALL) last = event;
  });
  EXPECT_EQ(last.bytes, 2 * kThreads * 60);
  EXPECT_EQ(last.record, 2 * kThreads * 100);
  EXPECT_EQ(last.node, 2 * kThreads);
  EXPECT_EQ(last.block, 0u);
}

std::atomic<std::uint64_t> from_handler{0};

TEST_F(Recorder, AHandlerOfSignalsMayHaveEventsWhileItsThreadHasOne) {
  ASSERT_EQ(start(folder_ / "t"), "");
  tell(0);  // the ring is there
  struct sigaction action {
  }, before{};
  action.sa_handler = [](int) { tell(1'000'000 + from_handler.fetch_add(1)); };
  ::sigaction(SIGALRM, &action, &before);
  const itimerval often{{0, 50}, {0, 50}}, never{};
  ::setitimer(ITIMER_REAL, &often, nullptr);
  constexpr std::uint64_t kOwn = 100'000;
  for (std::uint64_t i = 1; i < kOwn; ++i) {
    tell(i);
    if (i % 2000 == 0) ::usleep(4000);  // cut short by the signal, mostly
  }
  ::setitimer(ITIMER_REAL, &never, nullptr);
  ::sigaction(SIGALRM, &before, nullptr);
  recorder().stop();
  const auto file = open(folder_ / "t");
  ASSERT_NE(file, nullptr);
  std::set<std::uint64_t> keys;
  const std::vector<PleatTraceEvent> events = told(*file);
  for (const PleatTraceEvent& event : events) keys.insert(event.key);
  EXPECT_EQ(keys.size(), events.size()) << "an event twice, or one written over another";
  EXPECT_EQ(events.size() + lost(*file), kOwn + from_handler.load());
  EXPECT_GT(from_handler.load(), 10u);
}

TEST_F(Recorder, WhatDoesNotFitIsCountedAndNeverWaitedFor) {
  ASSERT_EQ(start(folder_ / "t"), "");
  constexpr std::uint64_t kAll = 500'000;
  const std::uint64_t begin = now_ns();
  for (std::uint64_t i = 0; i < kAll; ++i) tell(i);
  EXPECT_LT(now_ns() - begin, 10'000'000'000u);
  recorder().stop();
  const auto file = open(folder_ / "t");
  ASSERT_NE(file, nullptr);
  EXPECT_EQ(told(*file).size() + lost(*file), kAll);
}

TEST_F(Recorder, AFileIsItsOwnersAndReplacesNone) {
  const mode_t before = ::umask(0);
  EXPECT_EQ(start(folder_ / "mine"), "");
  ::umask(before);
  EXPECT_NE(start(folder_ / "second"), "") << "two at once";
  recorder().stop();
  struct stat facts {};
  ASSERT_EQ(::stat((folder_ / "mine").c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 07777, 0600u);

  std::ofstream(folder_ / "there") << "precious";
  EXPECT_EQ(start(folder_ / "there"), "File exists");
  fs::create_symlink(folder_ / "nowhere", folder_ / "link");
  EXPECT_EQ(start(folder_ / "link"), "File exists");
  EXPECT_FALSE(fs::exists(folder_ / "nowhere"));
  EXPECT_EQ(start(folder_ / "no" / "folder"), "No such file or directory");
  EXPECT_EQ(fs::file_size(folder_ / "there"), 8u);
}

TEST_F(Recorder, TracesThatFollowOneAnotherAreWholeEach) {
  const std::string name = "aten::add";
  for (const char* path : {"a", "b"}) {
    ASSERT_EQ(start(folder_ / path), "");
    PleatTraceEvent event = event_of(5);
    event.op = recorder().intern(name.data(), name.size());
    recorder().event(&event);
    EXPECT_EQ(recorder().stop(), 1u);
    EXPECT_EQ(recorder().stop(), 0u);
    tell(6);  // too late: forgotten
  }
  for (const char* path : {"a", "b"}) {
    const auto file = open(folder_ / path);
    ASSERT_NE(file, nullptr);
    const std::vector<PleatTraceEvent> events = told(*file);
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(file->definitions().string(events[0].op), name);
  }
}

TEST_F(Recorder, ADescriptorThatTheJobClosesEndsTheTraceAndNothingElse) {
  ASSERT_EQ(start(folder_ / "t"), "");
  tell(1);
  ::usleep(600'000);  // written by now
  std::vector<int> opened;
  for (int file = 10; file < 64; ++file) {
    struct stat facts {};
    if (::fstat(file, &facts) == 0 && S_ISREG(facts.st_mode)) ::close(file);
  }
  const int own = ::open((folder_ / "own").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  for (int file = 10; file < 64; ++file) {  // whatever number it was
    if (::fcntl(file, F_GETFD) < 0 && ::dup2(own, file) == file) opened.push_back(file);
  }
  testing::internal::CaptureStderr();
  tell(2);
  recorder().stop();
  EXPECT_NE(testing::internal::GetCapturedStderr().find("its file was closed"), std::string::npos);
  EXPECT_EQ(fs::file_size(folder_ / "own"), 0u);
  for (const int file : opened) {
    EXPECT_GE(::fcntl(file, F_GETFD), 0) << "it was not ours to close";
    ::close(file);
  }
  ::close(own);
  const auto file = open(folder_ / "t");
  ASSERT_NE(file, nullptr);
  EXPECT_TRUE(file->incomplete());
  EXPECT_EQ(told(*file).size(), 1u);
}

TEST_F(Recorder, ADiskThatIsFullEndsTheTraceAndNothingElse) {
  const pid_t child = ::fork();  // for a limit of its own; the recorder was not used before it
  if (child == 0) {
    const rlimit limit{1'000'000, 1'000'000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    std::mt19937_64 random(2);
    const std::string error = start(folder_ / "t");
    for (int i = 0; i < 200 && error.empty(); ++i) {
      for (int j = 0; j < 1000; ++j) tell(random());  // does not compress
      ::usleep(3000);
    }
    recorder().stop();
    ::_exit(error.empty() ? 0 : 1);
  }
  EXPECT_EQ(status_of(child), 0);
  const auto file = open(folder_ / "t");
  ASSERT_NE(file, nullptr);
  EXPECT_TRUE(file->incomplete());
  EXPECT_LE(file->file_bytes(), 1'000'000u);
  EXPECT_GT(told(*file).size(), 1000u);
}

TEST_F(Recorder, AForkedChildWritesNothing) {
  ASSERT_EQ(start(folder_ / "t"), "");
  for (std::uint64_t i = 0; i < 1000; ++i) tell(i);
  for (int round = 0; round < 5; ++round) {
    ::usleep(30'000);  // the writer may be at it
    const pid_t child = ::fork();
    if (child == 0) {
      recorder().abandon();
      for (std::uint64_t i = 0; i < 20'000; ++i) tell(1'000'000 + i);
      const bool silent = !start(folder_ / "of_child").empty() && recorder().stop() == 0;
      ::_exit(silent ? 0 : 1);
    }
    EXPECT_EQ(status_of(child), 0);
    tell(5000 + static_cast<std::uint64_t>(round));
  }
  EXPECT_EQ(recorder().stop(), 1005u);
  EXPECT_FALSE(fs::exists(folder_ / "of_child"));
  const auto file = open(folder_ / "t");
  ASSERT_NE(file, nullptr);
  EXPECT_FALSE(file->incomplete());
  EXPECT_EQ(told(*file).size(), 1005u);
}

// ---- stacks -------------------------------------------------------------------------------------

__attribute__((noinline)) void left(unsigned path, int depth);
__attribute__((noinline)) void right(unsigned path, int depth);
std::set<std::uint32_t> stack_numbers;
void descend(unsigned path, int depth) {
  if (depth == 0) {
    PleatTraceEvent event = event_of(path);
    event.stack = recorder().stack(1);
    stack_numbers.insert(event.stack);
    recorder().event(&event);
    if (path % 1500 == 0) ::usleep(4000);
  } else if ((path >> (depth - 1) & 1) != 0) {
    left(path, depth - 1);
  } else {
    right(path, depth - 1);
  }
}
void left(unsigned path, int depth) {
  descend(path, depth);
  __asm__ volatile("");
}
void right(unsigned path, int depth) {
  descend(path, depth);
  __asm__ volatile("");
}

TEST_F(Recorder, AHundredThousandStacksAreToldApart) {
  ASSERT_EQ(start(folder_ / "t", PLEAT_TRACE_STACKS_NATIVE), "");
  if (recorder().stack(0) == 0) GTEST_SKIP() << "no libunwind here";
  constexpr unsigned kStacks = 100'000;
  for (unsigned path = 0; path < kStacks; ++path) descend(path, 17);
  recorder().stop();
  EXPECT_EQ(stack_numbers.size(), kStacks);
  EXPECT_EQ(stack_numbers.count(0), 0u);
  const auto file = open(folder_ / "t");
  ASSERT_NE(file, nullptr);
  EXPECT_EQ(told(*file).size() + lost(*file), kStacks);
}

TEST_F(Recorder, WithoutPythonThereIsNoStackOfPython) {
  ASSERT_EQ(start(folder_ / "t", PLEAT_TRACE_STACKS_PYTHON), "");
  EXPECT_EQ(recorder().stack(1), 0u);
}

// ---- killed -------------------------------------------------------------------------------------

// In a process of its own: an event every 0.2 ms, for ever.
void write_for_ever(const char* path) {
  if (!start(path).empty()) ::_exit(3);
  for (std::uint64_t i = 1;; ++i) {
    tell(i);
    ::usleep(200);
  }
}
const NamedMode kWriteForEver("--write-for-ever", write_for_ever);

TEST_F(Recorder, WhatAKilledJobLeavesOpensAndIsHalfASecondShortAtMost) {
  constexpr int kJobs = 50, kAtOnce = 10;
  std::mt19937 random(static_cast<unsigned>(::getpid()));
  for (int job = 0; job < kJobs; job += kAtOnce) {
    std::array<pid_t, kAtOnce> children{};
    for (int i = 0; i < kAtOnce; ++i) {
      children[static_cast<std::size_t>(i)] =
          start_again("--write-for-ever", folder_ / std::to_string(job + i));
    }
    ::usleep(700'000 + static_cast<unsigned>(random() % 300'000));
    for (int i = 0; i < kAtOnce; ++i) {
      const std::string path = (folder_ / std::to_string(job + i)).string();
      const std::uint64_t killed = now_ns();
      ::kill(children[static_cast<std::size_t>(i)], SIGKILL);
      EXPECT_TRUE(WIFSIGNALED(status_of(children[static_cast<std::size_t>(i)])));
      const auto file = open(path);
      ASSERT_NE(file, nullptr) << path;
      EXPECT_TRUE(file->incomplete());
      const std::vector<PleatTraceEvent> events = told(*file);
      ASSERT_FALSE(events.empty());
      EXPECT_LT(killed - events.back().time_ns, 500'000'000u) << path;
      for (std::size_t k = 0; k < events.size(); ++k) ASSERT_EQ(events[k].key, k + 1);
      ::usleep(static_cast<unsigned>(random() % 20'000));
    }
  }
}

}  // namespace
}  // namespace pleat::recorder_testing
