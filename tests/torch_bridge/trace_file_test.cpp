// Which file a trace goes to.
#include "torch_bridge/trace/file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <random>
#include <string>

#include "tests/torch_bridge/trace_file_reference.h"

namespace pleat::bridge {
namespace {

ProcessIdentity someone() {
  ProcessIdentity who;
  who.process = 4711;
  who.host = "node7.example";
  who.started = 1'700'000'000;
  return who;
}
ProcessIdentity ranked(std::uint64_t rank, std::uint64_t local_rank) {
  ProcessIdentity who = someone();
  who.rank = rank;
  who.local_rank = local_rank;
  return who;
}
std::string file_for(std::string_view pattern, const ProcessIdentity& who) {
  std::string problem;
  const std::string file = trace_file(pattern, who, problem);
  EXPECT_EQ(file.empty(), !problem.empty() || pattern.empty()) << pattern;
  return file.empty() ? problem : file;
}

TEST(TraceFile, SignsAreWhoTheProcessIs) {
  const ProcessIdentity alone = someone(), rank = ranked(13, 5);
  EXPECT_EQ(file_for("a/%h.%p.%t.trace", alone), "a/node7.example.4711.1700000000.trace");
  EXPECT_EQ(file_for("%r-%l", rank), "13-5");
  EXPECT_EQ(file_for("%r-%l", alone), "0-0");
  EXPECT_EQ(file_for("100%%.%x%", alone), "100%.%x%");
  EXPECT_EQ(file_for("%%p", alone), "%p");
  EXPECT_EQ(file_for("%%%p", alone), "%4711");
}

TEST(TraceFile, ARankThatNobodyAskedForGoesBeforeTheEnding) {
  const ProcessIdentity rank = ranked(3, 0);
  EXPECT_EQ(file_for("run.trace", rank), "run.rank3.trace");
  EXPECT_EQ(file_for("a.b/run", rank), "a.b/run.rank3");
  EXPECT_EQ(file_for("a.b/.hidden", rank), "a.b/.hidden.rank3");
  EXPECT_EQ(file_for("run.%p.trace", rank), "run.4711.trace") << "as good as a rank";
  EXPECT_EQ(file_for("run.%l.trace", rank), "run.0.rank3.trace") << "hosts share local ranks";
  EXPECT_EQ(trace_file_of_process("a.b/run.rank3.trace", rank), "a.b/run.rank3.4711.trace");
  EXPECT_EQ(trace_file_of_process("a.b/run.rank3.trace", rank, 2), "a.b/run.rank3.4711-2.trace");
}

TEST(TraceFile, AFolderMeansAFileInIt) {
  std::string folder = (std::filesystem::temp_directory_path() / "trace_file.XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  EXPECT_EQ(file_for(folder, someone()), folder + "/pleat.trace");
  EXPECT_EQ(file_for(folder, ranked(1, 1)), folder + "/pleat.rank1.trace");
  std::filesystem::remove(folder);
  EXPECT_EQ(file_for(folder, someone()), folder);
  EXPECT_EQ(file_for(folder + "/", someone()), folder + "/pleat.trace");
}

TEST(TraceFile, WhatIsNoPartOfANameIsRefusedInOneLine) {
  for (const char* const host : {"a/b", "/", "..", ".", ""}) {
    ProcessIdentity who = someone();
    who.host = host;
    const std::string why = "%h is '" + std::string(host) + "' here, which is no part of a name";
    EXPECT_EQ(file_for("%h/x.trace", who), why);
    EXPECT_EQ(file_for("a.%h", who), why);
    EXPECT_EQ(file_for("a.%%h", who), "a.%h");
  }
}

TEST(TraceFile, NoPatternLeadsOutOfItsFolder) {
  const char* const given = std::getenv("PLEAT_TEST_SEED");
  const auto seed = given != nullptr ? static_cast<unsigned>(std::strtoul(given, nullptr, 10))
                                     : std::random_device{}();
  std::mt19937 random(seed);
  constexpr std::string_view kPieces[] = {"%",  "%%", "%r", "%l", "%p",  "%h",     "%t", "%x",  "/",
                                          "//", ".",  "..", "a",  "run", ".trace", "\n", "\xff"};
  const auto any = [&](std::size_t most) {
    std::string text;
    for (std::size_t n = random() % most; n > 0; --n)
      text += kPieces[random() % std::size(kPieces)];
    return text;
  };
  for (int turn = 0; turn < 20'000; ++turn) {
    ProcessIdentity who = someone();
    who.host = any(3);
    if (random() % 2 == 0) who.rank = random() % 100;
    if (random() % 2 == 0) who.local_rank = random();
    const std::string pattern = any(8);
    ASSERT_EQ(testing::what_is_wrong(pattern, who), "")
        << pattern << " on " << who.host << ", PLEAT_TEST_SEED=" << seed;
  }
}

TEST(TraceFile, RanksAreNumbersOfTheEnvironment) {
  const char* const names[] = {"RANK", "SLURM_PROCID", "LOCAL_RANK", "WORLD_SIZE"};
  for (const char* const name : names) ::unsetenv(name);
  ::setenv("SLURM_PROCID", "5", 1);
  for (const char* const nonsense : {"", "3x", "-1", " 3", "99999999999999999999"}) {
    ::setenv("RANK", nonsense, 1);
    EXPECT_EQ(identify_process().rank, 5u) << nonsense;
  }
  ::setenv("RANK", "0", 1);
  ::setenv("LOCAL_RANK", "a/b", 1);
  const ProcessIdentity who = identify_process();
  EXPECT_EQ(who.rank, 0u);
  EXPECT_FALSE(who.local_rank);
  EXPECT_EQ(who.process, static_cast<std::uint64_t>(::getpid()));
  EXPECT_FALSE(who.host.empty());
  for (const char* const name : names) ::unsetenv(name);
}

}  // namespace
}  // namespace pleat::bridge
