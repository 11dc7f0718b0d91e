// The ledger of compression: what was left alone and why, and how long encodes took.
#include <limits>

#include "tests/tools/trace/told.h"
#include "tools/pleat/trace/compression.h"

namespace pleat::trace {
namespace {

using namespace testing;

struct Kept {
  std::unique_ptr<File> file;
  std::unique_ptr<Replay> replay;
  std::unique_ptr<Lines> lines;
  std::unique_ptr<Compression> compression;

  explicit Kept(Story& story, int device = -1)
      : file(story.open()),
        replay(std::make_unique<Replay>(*file)),
        lines(std::make_unique<Lines>(file->definitions())),
        compression(std::make_unique<Compression>(device, file->definitions(), *lines)) {
    replay->for_each([&](const PleatTraceEvent& event, const Ledger& ledger) {
      compression->take(event, ledger);
    });
  }
};

PleatTraceEvent of_record(std::uint8_t kind, std::uint64_t time_ns, std::uint64_t record,
                          std::uint64_t bytes = 0, std::uint32_t thread = 1) {
  PleatTraceEvent one = event(kind, time_ns);
  one.record = record;
  one.bytes = bytes;
  one.thread = thread;
  return one;
}

TEST(TraceLedger, WhatIsLeftAloneIsCountedByReasonAndLine) {
  Story story;
  const std::uint32_t foreign = story.writer.string("foreign storage");
  const std::uint32_t strides = story.writer.string("not plain strided");
  const std::uint32_t first =
      story.writer.stack_of({story.writer.python_frame("f", "/me/net.py", 5)});
  const std::uint32_t second =
      story.writer.stack_of({story.writer.python_frame("g", "/me/net.py", 9)});
  const auto left = [&](std::uint32_t why, std::uint32_t stack, std::uint64_t bytes) {
    story.op = why;
    story.stack = stack;
    story.mark(PLEAT_TRACE_LEFT, bytes);
  };
  left(foreign, first, 100);
  left(foreign, second, 30);
  left(strides, first, 200);
  left(foreign, first, 50);
  left(0, 0, 1);
  story.device = 1;
  left(strides, second, 7);
  const Kept host(story);
  const std::vector<LeftLine> lines = host.compression->left();
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0].why, "not plain strided");
  EXPECT_EQ(lines[1].why, "foreign storage");
  EXPECT_EQ(lines[1].bytes, 150);
  EXPECT_EQ(lines[1].tensors, 2u);
  EXPECT_EQ(host.lines->text(lines[1].frame), "net.py:5 f");
  EXPECT_EQ(lines[2].bytes, 30);
  EXPECT_EQ(lines[3].why, "no reason told");
  // A device of which nothing else is known.
  Story other;
  other.device = 1;
  other.mark(PLEAT_TRACE_LEFT, 7);
  EXPECT_EQ(Kept(other, 1).replay->lives().devices.count(1), 1u);
}

TEST(TraceLedger, AnEncodeLastsFromItsDecisionToItsEndInOneThread) {
  Story story;
  for (std::uint64_t record = 1; record <= 6; ++record)
    story.add(of_record(PLEAT_TRACE_TAG, 10 + record, record, 100));
  // Two threads at once: 500 and 300 ns.
  story.add(of_record(PLEAT_TRACE_DECIDED, 1000, 1, 100, 1));
  story.add(of_record(PLEAT_TRACE_DECIDED, 1100, 2, 100, 2));
  story.add(of_record(PLEAT_TRACE_ENCODE, 1400, 2, 10, 2));
  story.add(of_record(PLEAT_TRACE_ENCODE, 1500, 1, 10, 1));
  // 40 ns to find that it has no shorter form.
  story.add(of_record(PLEAT_TRACE_DECIDED, 2000, 3, 100));
  story.add(of_record(PLEAT_TRACE_HOLD, 2040, 3, 100));
  // A verdict that came later, another thread's, and an encode without a decision: not known.
  story.add(of_record(PLEAT_TRACE_DECIDED, 3000, 4, 100));
  story.add(of_record(PLEAT_TRACE_WAIT, 3010, 4, 100));
  story.add(of_record(PLEAT_TRACE_ENCODE, 9000, 4, 10));
  story.add(of_record(PLEAT_TRACE_DECIDED, 9100, 5, 100, 1));
  story.add(of_record(PLEAT_TRACE_ENCODE, 9200, 5, 10, 2));
  story.add(of_record(PLEAT_TRACE_ENCODE, 9300, 6, 10, 2));
  const Kept kept(story);
  EXPECT_EQ(kept.compression->encode_ns(), 840u);
  ASSERT_EQ(kept.compression->lines().size(), 1u);
  EXPECT_EQ(kept.compression->lines()[0].encode_ns, 840u);
  EXPECT_EQ(kept.compression->all().encoded, 5u);
}

TEST(TraceLedger, SlackAndCachedAreNeverBelowNothingWhateverTheSumsAre) {
  constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  const auto totals = [](std::int64_t live, std::int64_t active, std::int64_t reserved) {
    Totals made;
    made.sums[PLEAT_TRACE_REQUESTED] = live;
    made.sums[PLEAT_TRACE_ACTIVE] = active;
    made.sums[PLEAT_TRACE_RESERVED] = reserved;
    return made;
  };
  EXPECT_EQ(totals(3, 10, 14).slack(), 7);
  EXPECT_EQ(totals(3, 10, 14).cached(), 4);
  EXPECT_EQ(totals(10, 3, 1).slack(), 0);
  EXPECT_EQ(totals(10, 3, 1).cached(), 0);
  EXPECT_EQ(totals(kLeast, kMost, kLeast).slack(), kMost);
  EXPECT_EQ(totals(kLeast, kMost, kLeast).cached(), 0);
  EXPECT_EQ(totals(-1, kMost, 0).slack(), kMost);
  EXPECT_EQ(totals(0, kLeast, kMost).cached(), kMost);
  EXPECT_EQ(totals(kMost, kMost, kMost).slack(), 0);
  EXPECT_EQ(totals(kLeast, kLeast + 5, kLeast + 5).slack(), 5);
}

TEST(TraceLedger, OfADeviceNoTimesAreTold) {
  Story story;
  const auto add = [&](std::uint8_t kind, std::uint64_t time_ns) {
    PleatTraceEvent one = of_record(kind, time_ns, 1, 100);
    one.device = 0;
    story.add(one);
  };
  add(PLEAT_TRACE_TAG, 10);
  add(PLEAT_TRACE_DECIDED, 20);
  add(PLEAT_TRACE_ENCODE, 500);
  const Kept kept(story, 0);
  EXPECT_EQ(kept.compression->all().encoded, 1u);
  EXPECT_EQ(kept.compression->encode_ns(), 0u);
}

}  // namespace
}  // namespace pleat::trace
