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

TEST(TraceLedger, TimesOfEncodesAndRestoresAddUpAlsoWhereAnEncodeCameToNothing) {
  Story story;
  for (std::uint64_t record = 1; record <= 3; ++record)
    story.add(of_record(PLEAT_TRACE_TAG, 10 + record, record, 100));
  const auto add = [&](std::uint8_t kind, std::uint64_t record, std::uint64_t took_ns) {
    PleatTraceEvent one = of_record(kind, 1000 * record, record, 100);
    one.key = took_ns;
    story.add(one);
  };
  add(PLEAT_TRACE_ENCODE, 1, 500);
  add(PLEAT_TRACE_ENCODE, 2, 300);
  add(PLEAT_TRACE_HOLD, 3, 40);
  add(PLEAT_TRACE_RESTORE, 1, 70);
  add(PLEAT_TRACE_RESTORE, 1, 7);  // once more
  const Kept kept(story);
  EXPECT_EQ(kept.compression->all().encode_ns, 840u);
  EXPECT_EQ(kept.compression->all().restore_ns, 77u);
  ASSERT_EQ(kept.compression->lines().size(), 1u);
  EXPECT_EQ(kept.compression->lines()[0].sums.encode_ns, 840u);
  EXPECT_EQ(kept.compression->lines()[0].sums.restore_ns, 77u);
  EXPECT_EQ(kept.compression->all().encoded, 2u);
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

}  // namespace
}  // namespace pleat::trace
