// The page that `pleat trace top` looks at, as the recorder leaves it.
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>

#include "interpose/trace/top.h"
#include "tests/interpose/made_up_job.h"
#include "tests/interpose/recorder_fixture.h"

namespace pleat::recorder_testing {
namespace {

using trace::TopPage;

class RecorderTop : public Recorder {
 protected:
  RecorderTop() : before_(std::getenv("XDG_RUNTIME_DIR")) {
    fs::create_directory(folder_ / "run");
    fs::permissions(folder_ / "run", fs::perms::owner_all);
    ::setenv("XDG_RUNTIME_DIR", (folder_ / "run").c_str(), 1);
  }
  ~RecorderTop() override { ::setenv("XDG_RUNTIME_DIR", before_.c_str(), 1); }

  const std::string before_;
  [[nodiscard]] static std::string page_name() {
    return "pleat-" + std::to_string(::getpid()) + ".top";
  }
  [[nodiscard]] fs::path page_path() const { return folder_ / "run" / page_name(); }
  [[nodiscard]] std::optional<TopPage> page() const {
    std::ifstream file(page_path(), std::ios::binary);
    TopPage page{};
    if (!file.read(reinterpret_cast<char*>(&page), sizeof page)) return std::nullopt;
    return page;
  }
  // Tells of a block, and waits for the page to show that so many bytes live: seconds at most.
  void live_bytes_become(std::int64_t bytes, std::uint64_t block, std::int64_t change) {
    PleatTraceEvent event = event_of(1, PLEAT_TRACE_ALLOCATE);
    event.block = block;
    event.bytes = static_cast<std::uint64_t>(change);
    event.change[PLEAT_TRACE_REQUESTED] = change;
    recorder().event(&event);
    for (int i = 0; i < 500 && live_bytes() != bytes; ++i) ::usleep(10'000);
    EXPECT_EQ(live_bytes(), bytes);
  }
  // -1: there is no page, or no device on it.
  [[nodiscard]] std::int64_t live_bytes() const {
    const std::optional<TopPage> now = page();
    return now && now->devices == 1 ? now->device[0].now.sums[PLEAT_TRACE_REQUESTED] : -1;
  }
  // In which of the folders that serve where XDG_RUNTIME_DIR does not our page lies.
  [[nodiscard]] static int pages_elsewhere() {
    int pages = 0;
    for (unsigned which = 1; which < trace::kTopFolders; ++which) {
      std::array<char, 4096> folder{};
      if (!trace::top_folder(which, nullptr, ::geteuid(), folder.data(), folder.size())) continue;
      pages += fs::exists(fs::path(folder.data()) / page_name());
    }
    return pages;
  }
};

TEST_F(RecorderTop, SaysWhatLivesAndTheMostThatLived) {
  ASSERT_EQ(start(folder_ / "t"), "");
  std::int64_t live = 0, most = 0;
  MadeUpJob job(6, [&](const PleatTraceEvent& event) {
    live += event.change[PLEAT_TRACE_REQUESTED];
    most = std::max(most, live);
    tell_of(event);
  });
  job.begin();
  for (int i = 0; i < 3; ++i) job.step();
  job.phase(PLEAT_TRACE_PHASE_DATA);
  ::usleep(1'300'000);
  const std::optional<TopPage> page = this->page();
  ASSERT_TRUE(page.has_value());
  struct stat facts {};
  ASSERT_EQ(::stat(page_path().c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 07777, 0600u);
  EXPECT_EQ(std::memcmp(page->magic, trace::kTopMagic, sizeof page->magic), 0);
  EXPECT_EQ(page->version, trace::kTopVersion);
  EXPECT_EQ(page->sequence % 2, 0u);
  EXPECT_EQ(page->pid, static_cast<std::uint64_t>(::getpid()));
  EXPECT_EQ(page->ended, 0u);
  EXPECT_EQ(page->inexact, 0u);
  ASSERT_EQ(page->devices, 1u);
  const trace::TopDevice& host = page->device[0];
  EXPECT_EQ(host.device, -1);
  EXPECT_EQ(host.now.sums[PLEAT_TRACE_REQUESTED], live);
  EXPECT_EQ(host.peak.sums[PLEAT_TRACE_REQUESTED], most);
  for (const trace::TopMoment* moment : {&host.now, &host.peak}) {
    std::int64_t classes = 0;
    for (const std::int64_t bytes : moment->classes) classes += bytes;
    EXPECT_EQ(classes, moment->sums[PLEAT_TRACE_REQUESTED]);
  }
  EXPECT_EQ(host.now.step, 3u);
  EXPECT_GT(host.now.resident, 0);
  EXPECT_GT(page->lines, 0u);
  EXPECT_GT(page->line[0].bytes, 0);
  recorder().stop();
  EXPECT_FALSE(fs::exists(page_path()));
}

TEST_F(RecorderTop, WhatAnEarlierProcessOfThatNumberLeftIsReplacedAndNothingElse) {
  {
    std::ofstream stale(page_path(), std::ios::binary);
    stale.write(trace::kTopMagic, sizeof trace::kTopMagic);
    stale << std::string(100, 'x');
  }
  ASSERT_EQ(start(folder_ / "a"), "");
  ASSERT_TRUE(page().has_value());
  EXPECT_EQ(page()->pid, static_cast<std::uint64_t>(::getpid()));
  recorder().stop();

  std::ofstream(page_path()) << "somebody's notes";
  ASSERT_EQ(start(folder_ / "b"), "") << "the trace goes on without";
  recorder().stop();
  EXPECT_EQ(fs::file_size(page_path()), 16u);
  fs::remove(page_path());

  fs::create_symlink(folder_ / "elsewhere", page_path());
  ASSERT_EQ(start(folder_ / "c"), "");
  recorder().stop();
  EXPECT_TRUE(fs::is_symlink(page_path()));
  EXPECT_FALSE(fs::exists(folder_ / "elsewhere"));
}

TEST_F(RecorderTop, AFolderThatOthersMayUseIsNotUsed) {
  fs::permissions(folder_ / "run", fs::perms::all);
  ASSERT_EQ(start(folder_ / "t"), "");
  EXPECT_FALSE(fs::exists(page_path()));
  EXPECT_EQ(pages_elsewhere(), 1);
  recorder().stop();
  EXPECT_EQ(pages_elsewhere(), 0);
}

TEST_F(RecorderTop, AFolderThatIsNotNamedInFullIsNotUsed) {
  const fs::path here = fs::current_path();
  fs::current_path(folder_);
  for (const char* odd : {"run", "", "/nowhere/at/all"}) {
    ::setenv("XDG_RUNTIME_DIR", odd, 1);
    EXPECT_EQ(start(folder_ / ("t" + std::to_string(std::strlen(odd)))), "");
    EXPECT_EQ(pages_elsewhere(), 1) << odd;
    EXPECT_TRUE(fs::is_empty("run"));
    EXPECT_FALSE(fs::exists(page_name()));
    recorder().stop();
    EXPECT_EQ(pages_elsewhere(), 0) << odd;
  }
  fs::current_path(here);
}

TEST_F(RecorderTop, AForkedChildNeitherWritesNorRemovesIt) {
  ASSERT_EQ(start(folder_ / "t"), "");
  live_bytes_become(777, 1, 777);
  for (const bool tells : {true, false}) {
    const pid_t child = ::fork();
    if (child == 0) {
      if (tells) recorder().abandon();
      PleatTraceEvent event = event_of(1, PLEAT_TRACE_ALLOCATE);
      event.change[PLEAT_TRACE_REQUESTED] = 12345;
      if (tells) recorder().event(&event);
      ::usleep(300'000);
      if (tells) ::_exit(0);
      std::exit(0);  // with what the library does at the end
    }
    EXPECT_EQ(status_of(child), 0);
    ASSERT_TRUE(page().has_value());
    EXPECT_EQ(page()->pid, static_cast<std::uint64_t>(::getpid()));
    EXPECT_EQ(live_bytes(), 777);
  }
  live_bytes_become(1000, 2, 223);
  recorder().stop();
  EXPECT_FALSE(fs::exists(page_path()));
}

// Begins a trace and ends as the argument says: NAME of the trace, with "exit" or "kill" in it.
const NamedMode kLeave("--leave", [](const char* path) {
  if (!start(path).empty()) ::_exit(3);
  tell(1);
  ::usleep(100'000);
  if (std::strstr(path, "kill") != nullptr) ::raise(SIGKILL);
  std::exit(0);
});

TEST_F(RecorderTop, AnOrdinaryEndRemovesItAKillLeavesIt) {
  for (const char* how : {"exit", "kill"}) {
    const pid_t child = start_again("--leave", folder_ / how);
    const int status = status_of(child);
    EXPECT_EQ(WIFSIGNALED(status), std::strcmp(how, "kill") == 0) << status;
    const fs::path left = folder_ / "run" / ("pleat-" + std::to_string(child) + ".top");
    EXPECT_EQ(fs::exists(left), std::strcmp(how, "kill") == 0);
  }
}

}  // namespace
}  // namespace pleat::recorder_testing
