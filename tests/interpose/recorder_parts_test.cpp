// A trace that may not be larger than so much: FILE and FILE.1, each of which can be read alone.
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <tuple>

#include "tests/interpose/made_up_job.h"
#include "tests/interpose/recorder_fixture.h"
#include "tools/pleat/trace/replay.h"

namespace pleat::recorder_testing {
namespace {

using Groups = std::map<std::tuple<std::uint32_t, std::uint32_t, trace::ByteClass>, std::int64_t>;

// What a reader knows after the last event.
struct AtTheEnd {
  trace::Totals totals;
  Groups groups;
  std::uint64_t disagreements = 0, events = 0;
};
AtTheEnd at_the_end(const File& file) {
  const trace::Replay replay(file);
  AtTheEnd end;
  replay.for_each([&](const PleatTraceEvent& /*event*/, const trace::Ledger& ledger) {
    end.totals = ledger.totals(-1);
    end.disagreements = ledger.disagreements();
    end.events = ledger.events();
    if (ledger.events() != replay.lives().events) return;
    for (const trace::LiveEntry& entry : ledger.live(-1))
      end.groups[{entry.place().op, entry.place().stack, entry.of}] += entry.bytes;
  });
  end.disagreements += replay.lives().disagreements;
  return end;
}

// The writer has been round its rings once more.
void wait_for_writer() {
  std::uint64_t before = 0, now = 0, file_bytes = 0;
  recorder().cost(&before, &file_bytes);
  for (now = before; now == before; recorder().cost(&now, &file_bytes)) ::usleep(500);
}

// None of its events is lost: after each 4000, less than a ring holds, the writer is waited for.
void run_job(int steps) {
  int told = 0;
  MadeUpJob job(5, [&](const PleatTraceEvent& event) {
    tell_of(event);
    if (++told % 4000 == 0) wait_for_writer();
  });
  job.begin();
  for (int i = 0; i < steps; ++i) job.step();
  job.phase(PLEAT_TRACE_PHASE_DATA);
}

class RecorderParts : public Recorder {
 protected:
  fs::path before(const fs::path& path) { return path.string() + ".1"; }
};

TEST_F(RecorderParts, TheLastPartKnowsWhatAWholeTraceKnows) {
  constexpr int kSteps = 300;
  ASSERT_EQ(start(folder_ / "whole"), "");
  run_job(kSteps);
  recorder().stop();
  constexpr std::uint64_t kMost = 200'000;
  ASSERT_EQ(start(folder_ / "t", PLEAT_TRACE_STACKS_NONE, R"({"pid": 7, "start_ns": 1})", kMost),
            "");
  run_job(kSteps);
  recorder().stop();

  const auto whole = open(folder_ / "whole"), last = open(folder_ / "t"),
             former = open(before(folder_ / "t"));
  ASSERT_TRUE(whole != nullptr && last != nullptr && former != nullptr);
  ASSERT_EQ(lost(*whole) + lost(*last), 0u);
  ASSERT_GT(whole->file_bytes(), 2 * kMost) << "there are several parts";
  EXPECT_LE(last->file_bytes() + former->file_bytes(), kMost);
  EXPECT_GE(former->file_bytes(), kMost / 5);
  EXPECT_FALSE(last->incomplete());
  EXPECT_FALSE(former->incomplete());
  EXPECT_EQ(last->process().pid, 7);
  EXPECT_GT(last->process().part, 3u);
  EXPECT_EQ(former->process().part + 1, last->process().part);

  const AtTheEnd right = at_the_end(*whole), part = at_the_end(*last);
  EXPECT_EQ(right.disagreements, 0u);
  EXPECT_EQ(part.disagreements, 0u);
  EXPECT_LT(part.events, right.events / 2);
  EXPECT_EQ(part.totals.sums, right.totals.sums);
  EXPECT_EQ(part.totals.bytes, right.totals.bytes);
  EXPECT_EQ(part.groups, right.groups);
  EXPECT_EQ(at_the_end(*former).disagreements, 0u);
  struct stat facts {};
  ASSERT_EQ(::stat((folder_ / "t").c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 07777, 0600u);
  std::size_t files = 0;
  for ([[maybe_unused]] const auto& one : fs::directory_iterator(folder_)) ++files;
  EXPECT_EQ(files, 3u) << "nothing else is left";
}

TEST_F(RecorderParts, NothingIsReplacedThatTheTraceDidNotWrite) {
  std::ofstream(before(folder_ / "t")) << "precious";
  EXPECT_EQ(start(folder_ / "t", PLEAT_TRACE_STACKS_NONE, "{}", 1 << 20), "File exists");
  EXPECT_EQ(start(folder_ / "t"), "") << "there will be no other part";
  recorder().stop();

  // Put there later.
  ASSERT_EQ(start(folder_ / "u", PLEAT_TRACE_STACKS_NONE, "{}", 400'000), "");
  std::ofstream(before(folder_ / "u")) << "precious";
  testing::internal::CaptureStderr();
  run_job(200);
  recorder().stop();
  EXPECT_NE(testing::internal::GetCapturedStderr().find("is not of this trace"), std::string::npos);
  EXPECT_EQ(fs::file_size(before(folder_ / "u")), 8u);
  const auto file = open(folder_ / "u");
  ASSERT_NE(file, nullptr);
  EXPECT_FALSE(file->incomplete());
  EXPECT_LE(file->file_bytes(), 200'000u);
}

TEST_F(RecorderParts, WhatFillsMoreThanHalfOfAPartEndsTheTrace) {
  ASSERT_EQ(start(folder_ / "t", PLEAT_TRACE_STACKS_NONE, "{}", 200'000), "");
  testing::internal::CaptureStderr();
  std::mt19937_64 random(3);
  for (std::uint64_t i = 1; i < 20'000; ++i) {
    PleatTraceEvent event = event_of(0, PLEAT_TRACE_ALLOCATE);
    event.block = i;
    event.bytes = event.address = random() % (1 << 30);
    event.change[PLEAT_TRACE_REQUESTED] = static_cast<std::int64_t>(event.bytes);
    recorder().event(&event);
    if (i % 2000 == 0) ::usleep(300'000);
  }
  recorder().stop();
  EXPECT_NE(testing::internal::GetCapturedStderr().find("it is as large as it may be"),
            std::string::npos);
  const auto file = open(folder_ / "t");
  ASSERT_NE(file, nullptr);
  EXPECT_FALSE(file->incomplete());
  EXPECT_LE(file->file_bytes(), 100'000u);
  EXPECT_FALSE(fs::exists(before(folder_ / "t")));
  EXPECT_EQ(at_the_end(*file).disagreements, 0u);
}

TEST_F(RecorderParts, ABatchThatNoPartHoldsIsTakenInPieces) {
  ASSERT_EQ(start(folder_ / "t", PLEAT_TRACE_STACKS_NONE, "{}", 200'000), "");
  std::mt19937_64 random(4);
  for (std::uint64_t i = 0; i < 40'000; ++i) {  // marks that do not compress, none of which lives
    tell(random());
    if (i % 6000 == 0) ::usleep(60'000);
  }
  recorder().stop();
  const auto file = open(folder_ / "t"), former = open(before(folder_ / "t"));
  ASSERT_TRUE(file != nullptr && former != nullptr);
  EXPECT_LE(file->file_bytes() + former->file_bytes(), 200'000u);
  EXPECT_GT(told(*former).size(), 1000u);
}

// ---- killed -------------------------------------------------------------------------------------

const NamedMode kManyParts("--many-parts", [](const char* path) {
  if (!start(path, PLEAT_TRACE_STACKS_NONE, "{}", 100'000).empty()) ::_exit(3);
  std::mt19937_64 random(5);
  for (std::uint64_t i = 0;; ++i) {
    tell(random());
    if (i % 500 == 0) ::usleep(10'000);
  }
});

TEST_F(RecorderParts, KilledAtAnyMomentThereIsAFileThatOpens) {
  constexpr int kJobs = 12;
  std::mt19937 random(static_cast<unsigned>(::getpid()));
  std::array<pid_t, kJobs> children{};
  const auto path = [&](int job) { return folder_ / std::to_string(job); };
  for (int job = 0; job < kJobs; ++job)
    children[static_cast<std::size_t>(job)] = start_again("--many-parts", path(job));
  ::usleep(1'000'000);
  for (int job = 0; job < kJobs; ++job) {
    ::usleep(static_cast<unsigned>(random() % 60'000));
    ::kill(children[static_cast<std::size_t>(job)], SIGKILL);
    EXPECT_TRUE(WIFSIGNALED(status_of(children[static_cast<std::size_t>(job)])));
    const auto file = open(path(job));
    ASSERT_NE(file, nullptr) << job;
    EXPECT_LE(file->file_bytes(), 50'000u);
  }
}

}  // namespace
}  // namespace pleat::recorder_testing
