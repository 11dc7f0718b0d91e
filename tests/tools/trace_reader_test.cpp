// The reader against files that the test's own writer made, of all that a sound file may hold.
#include <algorithm>

#include "tests/tools/trace/reading.h"

namespace pleat::trace {
namespace {

using namespace testing;

// ---- what is sound ------------------------------------------------------------------------------

TEST(TraceReader, WhatWasWrittenIsReadWithEveryCodingAndPacking) {
  const Events events = any_events(2000, 1);
  for (const Packing packing : {Packing::kNone, Packing::kZstd}) {
    for (const Coding coding : {Coding::kPlain, Coding::kDelta, Coding::kOverRow}) {
      TraceWriter writer;
      writer.packing = packing;
      for (int column = 1; column <= 21; ++column)
        writer.codings[column] =
            coding == Coding::kOverRow && column < 16 ? Coding::kPlain : coding;
      writer.records(events);
      const Opened opened = open(writer.finish());
      ASSERT_NE(opened.file, nullptr) << opened.error;
      EXPECT_FALSE(opened.file->incomplete());
      Problems problems;
      expect_same(read(*opened.file, &problems), events);
      EXPECT_EQ(problems.all() + opened.file->problems().all(), 0u);
    }
  }
}

TEST(TraceReader, AColumnOfOneNumberIsThatOfAllRecords) {
  Events events = any_events(700, 2);
  for (PleatTraceEvent& one : events) {
    const std::uint64_t time = one.time_ns;
    one = events[0];
    one.time_ns = time;
  }
  TraceWriter writer;
  for (int column = 2; column <= 21; ++column) writer.codings[column] = Coding::kSame;
  writer.records(events);
  expect_same(read(*open(writer.finish()).file), events);
}

TEST(TraceReader, UnknownColumnsArePassedOverAndMissingOnesAreZero) {
  Bytes raw;
  for (const char* column : {"\x01\x02\x02\x14\x02", "\x63\x07\x03xyz", "\x0b\x01\x02\x05\x06"})
    raw.append(column, 3 + static_cast<unsigned char>(column[2]));
  TraceWriter writer;
  writer.block(6, raw, 2, 10, 11);
  const Events events = read(*open(writer.finish()).file);
  ASSERT_EQ(times(events), (std::vector<std::uint64_t>{10, 11}));
  EXPECT_EQ(events[1].bytes, 6u);
  EXPECT_EQ(events[1].device, -1);
  EXPECT_EQ(events[1].kind, 0);
}

TEST(TraceReader, ColumnsNobodyWantsAreZero) {
  const Events events = any_events(300, 3);
  TraceWriter writer;
  writer.records(events);
  const Events got = read(*open(writer.finish()).file, nullptr, column_bit(Column::kBlock));
  ASSERT_EQ(got.size(), events.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].block, events[i].block);
    EXPECT_EQ(got[i].key, 0u);
  }
}

TEST(TraceReader, BlocksThatOverlapAreMergedAndEqualTimesStandAsInTheFile) {
  std::mt19937 random(4);
  for (int turn = 0; turn < 20; ++turn) {
    TraceWriter writer;
    Events all;
    for (std::uint64_t block = 1; block <= 12; ++block) {
      std::uint64_t time = random() % 40;
      std::vector<std::uint64_t> own;
      for (std::size_t i = random() % 600; i > 0; --i) own.push_back(time += random() % 3);
      if (own.empty()) continue;
      const Events events = at_times(own, block);
      writer.records(events);
      all.insert(all.end(), events.begin(), events.end());
    }
    std::stable_sort(
        all.begin(), all.end(),
        [](const PleatTraceEvent& a, const PleatTraceEvent& b) { return a.time_ns < b.time_ns; });
    expect_same(read(*open(writer.finish()).file), all);
  }
}

TEST(TraceReader, UnsortedRecordsOfABlockAreSorted) {
  TraceWriter writer;
  writer.records(at_times({30, 10, 20, 10}, 1));
  writer.records(at_times({15, 25}, 2));
  Problems problems;
  const Events events = read(*open(writer.finish()).file, &problems);
  EXPECT_EQ(times(events), (std::vector<std::uint64_t>{10, 10, 15, 20, 25, 30}));
  EXPECT_EQ(problems.unsorted_blocks, 1u);
}

TEST(TraceReader, TimesOutsideOfTheHeadersRangeLoseNoRecord) {
  TraceWriter writer;
  writer.records(at_times({10, 50}, 1));
  writer.records(at_times({5, 60}, 2), 40, 45);
  Problems problems;
  const Events events = read(*open(writer.finish()).file, &problems);
  EXPECT_EQ(events.size(), 4u);
  EXPECT_EQ(problems.late_blocks, 1u);
}

TEST(TraceReader, DefinitionsAreFoundByIdAndWhatNothingDefinesIsAQuestionMark) {
  TraceWriter writer;
  writer.process(R"({"pid": 7, "rank": 3, "torch": "2.11", "world_size": "eight", "host": null,
                     "command": ["python", "train.py"], "options": {"bits": 4}})");
  const std::uint32_t outer = writer.python_frame("main", "/me/train.py", 12);
  const std::uint32_t inner = writer.native_frame(writer.module("/lib/libx.so", "\x01\x02"), 99);
  const std::uint32_t stack = writer.stack_of({outer, inner});
  const std::uint32_t circle = writer.stack(stack + 1, outer);  // of itself
  const Opened opened = open(writer.finish());
  const Definitions& all = opened.file->definitions();
  EXPECT_EQ(opened.file->problems().all(), 0u);
  EXPECT_EQ(all.string(1), "main");
  EXPECT_EQ(all.string(0), "");
  EXPECT_EQ(all.string(99), "?");
  EXPECT_EQ(all.string(0xffffffff), "?");
  EXPECT_EQ(all.frame(outer)->where, 12u);
  EXPECT_EQ(all.module(all.frame(inner)->name)->build_id_bytes, 2);
  EXPECT_EQ(all.stack(99), nullptr);
  std::vector<std::uint32_t> walked;
  const auto note = [&](std::uint32_t frame) {
    walked.push_back(frame);
    return true;
  };
  all.walk(stack, note);
  EXPECT_EQ(walked, (std::vector<std::uint32_t>{inner, outer}));
  all.walk(circle, note);
  EXPECT_EQ(walked.size(), 3u);
  const Process& process = opened.file->process();
  EXPECT_EQ(process.pid, 7u);
  EXPECT_EQ(process.rank, 3);
  EXPECT_EQ(process.world_size, -1);
  EXPECT_EQ(process.command, "python train.py");
  EXPECT_EQ(process.options, R"({"bits":4})");
}

}  // namespace
}  // namespace pleat::trace
