// The page on stderr: who holds the memory when there is no more.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <string>
#include <thread>
#include <vector>

#include "tests/interpose/made_up_job.h"
#include "tests/interpose/recorder_fixture.h"
#include "tools/pleat/trace/replay.h"

namespace pleat::recorder_testing {
namespace {

std::uint32_t text(const std::string& words) {
  return recorder().intern(words.data(), words.size());
}
MadeUpJob job_of(unsigned seed) {
  return MadeUpJob(seed, [](const PleatTraceEvent& event) { tell_of(event); });
}
PleatTraceEvent out_of_memory() {
  PleatTraceEvent event = event_of(0, PLEAT_TRACE_OUT_OF_MEMORY);
  event.bytes = std::uint64_t{3} << 30;
  return event;
}
void allocate(std::uint64_t block, std::int64_t bytes, const char* op) {
  PleatTraceEvent event = event_of(0, PLEAT_TRACE_ALLOCATE);
  event.phase = PLEAT_TRACE_PHASE_FORWARD;
  event.block = block;
  event.bytes = static_cast<std::uint64_t>(bytes);
  event.op = text(op);
  event.stack = recorder().stack(0);
  event.change[PLEAT_TRACE_REQUESTED] = event.change[PLEAT_TRACE_ACTIVE] = bytes;
  recorder().event(&event);
}
std::size_t lines_in(const std::string& page) {
  return static_cast<std::size_t>(std::count(page.begin(), page.end(), '\n'));
}

class RecorderPage : public Recorder {};

TEST_F(RecorderPage, SaysWhoHoldsTheMemoryAndTheFileHasAllOfItByThen) {
  ASSERT_EQ(start(folder_ / "t"), "");
  for (std::uint64_t i = 1; i <= 30; ++i)
    allocate(i, 1 << 20, i <= 20 ? "aten::linear" : "aten::gelu\x1b[31m");
  tell_of(out_of_memory());
  testing::internal::CaptureStderr();
  recorder().page("out of memory: no room for 3.00 GiB");
  const std::string page = testing::internal::GetCapturedStderr();
  // Written by now, though the trace goes on.
  const auto file = open(folder_ / "t");
  ASSERT_NE(file, nullptr);
  const std::vector<PleatTraceEvent> events = told(*file);
  ASSERT_EQ(events.size(), 31u);
  EXPECT_EQ(events.back().kind, PLEAT_TRACE_OUT_OF_MEMORY);

  EXPECT_EQ(page.rfind("pleat: out of memory: no room for 3.00 GiB\n", 0), 0u) << page;
  EXPECT_NE(page.find("host: live 30.00 MiB"), std::string::npos) << page;
  EXPECT_NE(page.find("temporary (so far)    30.00 MiB   100.0 %"), std::string::npos) << page;
  EXPECT_NE(page.find("20.00 MiB    66.7 %      20  temporary       aten::linear"),
            std::string::npos)
      << page;
  EXPECT_NE(page.find("aten::gelu?[31m"), std::string::npos) << page;
  EXPECT_NE(page.find("pleat trace summary --at oom " + (folder_ / "t").string() + " says more\n"),
            std::string::npos)
      << page;
  EXPECT_LE(lines_in(page), 40u);
}

TEST_F(RecorderPage, IsNoLongerThanFortyLinesWhateverLives) {
  ASSERT_EQ(start(folder_ / "t"), "");
  MadeUpJob job = job_of(4);
  job.begin();
  for (int i = 0; i < 4; ++i) job.step();
  for (std::uint64_t i = 0; i < 300; ++i)
    allocate(1'000'000 + i, 1 << 20, ("op" + std::to_string(i) + std::string(300, 'x')).c_str());
  for (std::int8_t device = 0; device < 20; ++device) {
    PleatTraceEvent event = event_of(0, PLEAT_TRACE_ALLOCATE);
    event.device = device;
    event.block = 1;
    event.change[PLEAT_TRACE_REQUESTED] = 1000;
    recorder().event(&event);
  }
  tell_of(event_of(0, PLEAT_TRACE_DUMP));
  testing::internal::CaptureStderr();
  recorder().page(std::string(5000, 't').c_str());
  const std::string page = testing::internal::GetCapturedStderr();
  EXPECT_LE(lines_in(page), 40u) << page;
  EXPECT_NE(page.find("summary --at dump"), std::string::npos) << page;
  EXPECT_NE(page.find("\n  parameters "), std::string::npos) << page;
}

TEST_F(RecorderPage, SaysWhatFewerBitsWouldHaveMade) {
  ASSERT_EQ(start(folder_ / "t"), "");
  allocate(1, 1 << 20, "aten::linear");
  PleatTraceEvent event = event_of(0, PLEAT_TRACE_TAG);
  event.record = event.block = 1;
  event.bytes = 1 << 20;
  event.change[PLEAT_TRACE_SAVED_RAW] = 1 << 20;
  recorder().event(&event);
  event.change[PLEAT_TRACE_SAVED_RAW] = 0;
  for (const PleatTraceKind kind :
       {PLEAT_TRACE_RELEASE, PLEAT_TRACE_HOLD, PLEAT_TRACE_DECIDED, PLEAT_TRACE_PLAN}) {
    event.kind = static_cast<std::uint8_t>(kind);
    event.reason = kind == PLEAT_TRACE_DECIDED ? 4 : 0;
    event.key = kind == PLEAT_TRACE_DECIDED ? 1 << 18 : (1 << 17) + (1 << 12);
    tell_of(event);
  }
  tell_of(out_of_memory());
  testing::internal::CaptureStderr();
  recorder().page("x");
  const std::string page = testing::internal::GetCapturedStderr();
  EXPECT_NE(page.find("not in use: 1.00 MiB; at 8 bits 260.00 KiB (live 260.00 KiB), "
                      "at 4 bits 132.00 KiB (live 132.00 KiB)"),
            std::string::npos)
      << page;
}

TEST_F(RecorderPage, ATraceThatWasNotEndedSaysTheSameOfThatMoment) {
  ASSERT_EQ(start(folder_ / "t"), "");
  allocate(1, 1 << 20, "aten::linear");
  tell_of(out_of_memory());
  testing::internal::CaptureStderr();
  recorder().page("x");
  testing::internal::GetCapturedStderr();
  const auto file = open(folder_ / "t");
  ASSERT_NE(file, nullptr);
  EXPECT_TRUE(file->incomplete());
  const trace::Replay replay(*file);
  const trace::DeviceLives& host = replay.lives().devices.at(-1);
  ASSERT_TRUE(host.last_out_of_memory.has_value());
  std::int64_t live = -1;
  replay.for_each([&](const PleatTraceEvent& /*event*/, const trace::Ledger& ledger) {
    if (ledger.events() - 1 == *host.last_out_of_memory) live = ledger.totals(-1).live();
  });
  EXPECT_EQ(live, 1 << 20);
}

TEST_F(RecorderPage, ManyThreadsAtOnceGetAPageEachAndNobodyIsKept) {
  ASSERT_EQ(start(folder_ / "t"), "");
  tell(1);
  testing::internal::CaptureStderr();
  const std::uint64_t begin = now_ns();
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([i] {
      tell(static_cast<std::uint64_t>(i));
      recorder().page(("page " + std::to_string(i) + ".").c_str());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LT(now_ns() - begin, 3'000'000'000u);
  const std::string pages = testing::internal::GetCapturedStderr();
  for (int i = 0; i < 8; ++i)
    EXPECT_NE(pages.find("pleat: page " + std::to_string(i) + ".\n"), std::string::npos) << i;
}

TEST_F(RecorderPage, WithoutATraceThereIsNone) {
  testing::internal::CaptureStderr();
  recorder().page("before");
  ASSERT_EQ(start(folder_ / "t"), "");
  recorder().page("as the first of all");
  recorder().stop();
  recorder().page("after");
  const std::string pages = testing::internal::GetCapturedStderr();
  EXPECT_EQ(pages.rfind("pleat: as the first of all\n", 0), 0u) << pages;
  EXPECT_EQ(pages.find("after"), std::string::npos) << pages;
}

TEST_F(RecorderPage, AHandlerMayAskForOneAtAnyTime) {
  ASSERT_EQ(start(folder_ / "t"), "");
  tell(0);
  struct sigaction action {
  }, before{};
  action.sa_handler = [](int) { recorder().page("from a handler"); };
  ::sigaction(SIGALRM, &action, &before);
  testing::internal::CaptureStderr();
  for (int i = 0; i < 20; ++i) {
    ::ualarm(500 + 50 * static_cast<unsigned>(i), 0);
    const std::uint64_t until = now_ns() + 5'000'000;
    for (std::uint64_t k = 0; now_ns() < until; ++k) tell(k);
    recorder().page("own");
  }
  ::sigaction(SIGALRM, &before, nullptr);
  const std::uint64_t begin = now_ns();
  recorder().page("the last");
  EXPECT_LT(now_ns() - begin, 1'000'000'000u);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("pleat: the last\n"), std::string::npos);
}

// ---- what stderr may be -------------------------------------------------------------------------

// In a process of its own, whose stderr is `file`: it prints a page and goes on. The exit code.
int with_stderr(const fs::path& trace, int file, std::uint64_t* took_ns) {
  const std::uint64_t begin = now_ns();
  const pid_t child = start_again("--one-page", trace, [file] {
    if (file >= 0) {
      ::dup2(file, STDERR_FILENO);
    } else {
      ::close(STDERR_FILENO);
    }
  });
  const int status = status_of(child);
  *took_ns = now_ns() - begin;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}
const NamedMode kOnePage("--one-page", [](const char* path) {
  if (!start(path).empty()) ::_exit(3);
  allocate(1, 1 << 20, "aten::linear");
  tell_of(out_of_memory());
  recorder().page("out of memory");
  allocate(2, 1 << 20, "aten::linear");
  ::_exit(recorder().stop() == 3 ? 0 : 5);
});

TEST_F(RecorderPage, AClosedStderrADeadPipeAndAFullOneEndNothing) {
  std::uint64_t took = 0;
  EXPECT_EQ(with_stderr(folder_ / "closed", -1, &took), 0);
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe(pipe.data()), 0);
  ::close(pipe[0]);
  EXPECT_EQ(with_stderr(folder_ / "dead", pipe[1], &took), 0);
  ::close(pipe[1]);
  ASSERT_EQ(::pipe2(pipe.data(), O_NONBLOCK), 0);
  const std::vector<char> full(1 << 20);
  while (::write(pipe[1], full.data(), full.size()) > 0) {
  }
  ::fcntl(pipe[1], F_SETFL, 0);
  EXPECT_EQ(with_stderr(folder_ / "full", pipe[1], &took), 0);
  EXPECT_LT(took, 5'000'000'000u);
  ::close(pipe[0]);
  ::close(pipe[1]);
  for (const char* name : {"closed", "dead", "full"}) {
    const auto file = open(folder_ / name);
    ASSERT_NE(file, nullptr);
    EXPECT_EQ(told(*file).size(), 3u);
  }
}

TEST_F(RecorderPage, AChildPrintsNone) {
  ASSERT_EQ(start(folder_ / "t"), "");
  tell(1);
  const fs::path out = folder_ / "err";
  const pid_t child = ::fork();
  if (child == 0) {
    const int file = ::open(out.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    ::dup2(file, STDERR_FILENO);
    recorder().abandon();
    const std::uint64_t begin = now_ns();
    recorder().page("of a child");
    ::_exit(now_ns() - begin < 500'000'000u ? 0 : 1);
  }
  EXPECT_EQ(status_of(child), 0);
  EXPECT_EQ(fs::file_size(out), 0u);
}

}  // namespace
}  // namespace pleat::recorder_testing
