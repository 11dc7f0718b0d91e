// What is told of a whole trace: peaks, steps, growth, places, compression.
#include <algorithm>
#include <map>

#include "tests/tools/trace/told.h"
#include "tools/pleat/trace/compression.h"
#include "tools/pleat/trace/replay.h"

namespace pleat::trace {
namespace {

using namespace testing;

TEST(TraceReplay, PeaksAreWhereTheyWereFirstReachedAndStepsKnowTheirOwn) {
  Story story;
  story.begin(kForward, 10);
  story.allocate(1, 100);
  const std::size_t peak = story.allocate(2, 50);
  story.free(2);
  story.allocate(3, 50);
  story.free(3);
  const std::size_t second = story.begin(kForward, 11);
  story.thread = 2;
  story.begin(kBackward, 10);  // lags behind: no step
  story.allocate(4, 20);
  const auto file = story.open();
  const Replay replay(*file);
  const Lives& lives = replay.lives();
  const DeviceLives& host = lives.devices.at(-1);
  EXPECT_EQ(host.peaks[PLEAT_TRACE_REQUESTED].bytes, 150);
  EXPECT_EQ(host.peaks[PLEAT_TRACE_REQUESTED].event, peak);
  EXPECT_EQ(host.peaks[PLEAT_TRACE_REQUESTED].phase, kForward);
  ASSERT_EQ(lives.steps.size(), 2u);
  EXPECT_EQ(lives.steps[1].number, 11u);
  EXPECT_EQ(lives.steps[1].event, second);
  ASSERT_EQ(host.steps.size(), 2u);
  EXPECT_EQ(host.steps[0].peak, 150);
  EXPECT_EQ(host.steps[0].live_at_end, 100);
  EXPECT_EQ(host.steps[1].peak, 120);
  EXPECT_EQ(host.steps[1].live_at_end, 120);
}

std::size_t steps_of(Story& story) {
  const auto file = story.open();
  return find_lives(*file).counted_steps;
}

TEST(TraceReplay, WhatComesAfterTheLastStepOfALoopIsNoStep) {
  const auto train = [](Story& story) {
    for (std::uint64_t step = 0; step < 3; ++step) {
      if (step > 0) story.begin(kData, step);
      story.begin(kForward, step);
      story.allocate(10 + step, 100);
      story.begin(kBackward, step);
      story.begin(kBetween, step);
      story.begin(kOptimizer, step);
    }
    story.begin(kData, 3);
  };
  {
    Story story;  // ends with frees, an allocation of the script's, and another optimizer's step
    train(story);
    story.free(10);
    story.allocate(20, 50);
    story.begin(kOptimizer, 3);
    story.begin(kData, 3);
    EXPECT_EQ(steps_of(story), 3u);
  }
  {
    Story story;  // goes on
    train(story);
    story.begin(kForward, 3);
    EXPECT_EQ(steps_of(story), 4u);
  }
  {
    Story story;  // backward on a thread that lags behind
    train(story);
    story.thread = 2;
    story.begin(kBackward, 2);
    EXPECT_EQ(steps_of(story), 3u);
  }
  {
    Story story;  // never trains
    story.allocate(1, 100);
    EXPECT_EQ(steps_of(story), 0u);
  }
}

TEST(TraceReplay, OnlyATraceOfBitsOffHasPlans) {
  for (const bool plans : {false, true}) {
    Story story;
    story.allocate(1, 100);
    story.record(PLEAT_TRACE_TAG, 5, 1, 100);
    if (plans) story.record(PLEAT_TRACE_PLAN, 5, 1, 100);
    const auto file = story.open();
    EXPECT_EQ(find_lives(*file).devices.at(-1).has_plans, plans);
  }
}

TEST(TraceReplay, AFilterBoundsWhereThePeakIsLookedForAndHowMuchIsRead) {
  Story story;
  story.allocate(1, 100);
  story.free(1);
  story.allocate(2, 30);
  story.free(2);
  const auto file = story.open();
  Filter filter;
  filter.since_ns = 1015;
  const Replay late(*file, filter);
  EXPECT_EQ(late.lives().devices.at(-1).peaks[0].bytes, 30);
  filter = {};
  filter.most_events = 2;
  const Replay two(*file, filter);
  std::size_t seen = 0;
  two.for_each([&](const PleatTraceEvent& /*event*/, const Ledger& /*ledger*/) { ++seen; });
  EXPECT_EQ(two.lives().events, 2u);
  EXPECT_EQ(seen, 2u);
}

TEST(TraceReplay, WhatLeaksEachStepIsTheFirstLineOfGrowth) {
  Story story;
  TraceWriter& writer = story.writer;
  const std::uint32_t main = writer.python_frame("main", "/me/train.py", 7);
  const std::uint32_t loss = writer.python_frame("log", "/me/train.py", 9);
  const std::uint32_t torch = writer.python_frame("add", "/x/site-packages/torch/_tensor.py", 1);
  const std::uint32_t leaking = writer.stack_of({main, loss, torch});
  const std::uint32_t other = writer.stack_of({main, torch});
  const std::uint32_t op = writer.string("aten::add");
  std::uint64_t block = 0;
  std::uint64_t last = 0;
  for (std::uint64_t step = 0; step < 10; ++step) {
    story.begin(kForward, step);
    story.op = op;
    story.stack = leaking;
    story.allocate(++block, 1 << 20);
    story.stack = other;  // twice as much, given back a step later
    story.allocate(++block, 2 << 20);
    if (last != 0) story.free(last);
    last = block;
    if (step == 3) story.allocate(++block, 64 << 20);  // once only
  }
  const auto file = story.open();
  const Replay replay(*file);
  Lines lines(file->definitions());
  std::vector<LiveEntry> live;
  replay.for_each([&](const PleatTraceEvent&, const Ledger& ledger) { live = ledger.live(-1); });
  const Growth growth = find_growth(live, replay.lives(), lines);
  ASSERT_TRUE(growth.known);
  EXPECT_EQ(growth.steps, 6u);
  ASSERT_EQ(growth.lines.size(), 1u);
  EXPECT_EQ(growth.lines[0].bytes_per_step, 1 << 20);
  EXPECT_EQ(growth.lines[0].steps, 6u);
  EXPECT_EQ(lines.text(growth.lines[0].frame), "train.py:9 log");
  EXPECT_FALSE(find_growth(live, Lives{}, lines).known);
}

TEST(TraceReplay, RestoredBlocksAndThoseOfBackwardBelongToTheLineOfForward) {
  Story story;
  TraceWriter& writer = story.writer;
  const std::uint32_t forward = writer.stack_of({writer.python_frame("f", "/me/net.py", 5)});
  const std::uint32_t mark = writer.stack_of({writer.python_frame("g", "/me/net.py", 6)});
  const std::uint32_t backward = writer.stack_of({writer.python_frame("main", "/me/t.py", 1)});
  story.begin(kForward);
  story.stack = forward;
  story.allocate(1, 100);
  story.node = 77;
  story.record(PLEAT_TRACE_TAG, 7, 1, 100);
  story.encode(7, PLEAT_TRACE_PLACE_NONE, 0, 0);
  story.free(1);
  story.stack = mark;
  story.node = 78;
  story.mark(PLEAT_TRACE_NODE);
  story.begin(kBackward);
  story.stack = backward;
  story.node = 0;
  story.allocate(2, 100);
  story.record(PLEAT_TRACE_RESTORE, 7, 2, 100);
  story.node = 77;
  story.allocate(3, 10);
  story.node = 78;
  story.allocate(4, 1);
  const Told told(story);
  Lines lines(told.file->definitions());
  std::map<std::uint64_t, std::string> places;
  for (const LiveEntry& entry : told.live.back())
    places[entry.block] = lines.text(lines.frame_of(entry.place().stack));
  EXPECT_EQ(places[2], "net.py:5 f");
  EXPECT_EQ(places[3], "net.py:5 f");
  EXPECT_EQ(places[4], "net.py:6 g");
  const std::vector<Group> groups = group(told.live.back(), GroupBy::kLine, *told.replay, lines);
  ASSERT_EQ(groups.size(), 3u);
  EXPECT_EQ(groups[0].bytes, 100);
  EXPECT_EQ(groups[0].of, ByteClass::kRestored);
}

TEST(TraceReplay, ALineIsTheInnermostOfTheProgramElseOfAPackageElseOfAll) {
  TraceWriter writer;
  const auto frame = [&](const char* file) { return writer.python_frame("f", file, 1); };
  const std::uint32_t user = frame("/me/a.py");
  const std::uint32_t inner = frame("/me/b.py");
  const std::uint32_t package = frame("/x/site-packages/lightning/c.py");
  const std::uint32_t frozen = frame("<frozen runpy>");
  const std::uint32_t torch = frame("/x/site-packages/torch/d.py");
  const std::uint32_t native = writer.native_frame(writer.module("/lib/libtorch.so", ""), 0x1a);
  const std::uint32_t pleat = writer.native_frame(writer.module("/lib/libpleat.so", ""), 1);
  const std::uint32_t all[] = {writer.stack_of({frozen, user, inner, package, torch, native}),
                               writer.stack_of({frozen, package, torch}), writer.stack_of({torch}),
                               writer.stack_of({native, pleat}), writer.stack_of({torch, native})};
  const MemoryFile memory(writer.finish());
  std::string error;
  const auto file = File::open(memory.path(), error);
  Lines lines(file->definitions());
  const std::uint32_t wanted[] = {inner, package, torch, native, torch};
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(lines.frame_of(all[i]), wanted[i]) << i;
  EXPECT_EQ(lines.frame_of(0), 0u);
  EXPECT_EQ(lines.frame_of(999), 0u);
  EXPECT_EQ(lines.text(native), "libtorch.so+0x1a");
  EXPECT_EQ(lines.text(999), "?");
}

TEST(TraceReplay, GapsLieBetweenBlocksOfSegments) {
  Story story;
  const auto segment = [&](std::uint8_t kind, std::uint64_t address, std::uint64_t bytes) {
    PleatTraceEvent one = event(kind, 1000 + 10 * story.events().size());
    one.address = address;
    one.bytes = bytes;
    story.add(one);
  };
  const auto block = [&](std::uint64_t id, std::uint64_t address, std::uint64_t bytes) {
    PleatTraceEvent one = story.events()[story.allocate(id, bytes)];
    one.address = address;
    const_cast<PleatTraceEvent&>(story.events().back()) = one;
  };
  segment(PLEAT_TRACE_SEGMENT_RESERVE, 10000, 1000);
  segment(PLEAT_TRACE_SEGMENT_RESERVE, 11000, 1000);  // grows
  segment(PLEAT_TRACE_SEGMENT_RESERVE, 50000, 500);
  segment(PLEAT_TRACE_SEGMENT_RELEASE, 50300, 200);
  block(1, 10100, 100);
  block(2, 11500, 100);
  const auto file = story.open();
  const Replay replay(*file);
  Gaps gaps;
  replay.for_each([&](const PleatTraceEvent&, const Ledger& ledger) { gaps = ledger.gaps(-1); });
  EXPECT_EQ(gaps.segment_bytes, 2300);
  EXPECT_EQ(gaps.free_bytes, 2100);
  EXPECT_EQ(gaps.largest, 1300);
}

TEST(TraceReplay, CompressionIsSummedByPlaceAndReason) {
  Story story;
  const std::uint32_t why = story.writer.string("noise is not allowed");
  story.op = story.writer.string("aten::mm");
  story.allocate(1, 100);
  story.record(PLEAT_TRACE_TAG, 7, 1, 100);
  story.encode(7, PLEAT_TRACE_PLACE_CHUNK, testing::kChunk, 25);
  story.free(1);
  story.allocate(2, 60);
  story.record(PLEAT_TRACE_TAG, 8, 2, 60);
  const std::uint32_t op = std::exchange(story.op, why);
  story.record(PLEAT_TRACE_DECIDED, 8, 0, 60);
  story.op = op;
  story.record(PLEAT_TRACE_HOLD, 8, 2, 60);
  story.record(PLEAT_TRACE_RESTORE, 8, 2, 60);
  const auto file = story.open();
  const Replay replay(*file);
  Lines lines(file->definitions());
  Compression compression(-1, file->definitions(), lines);
  replay.for_each(
      [&](const PleatTraceEvent& event, const Ledger& ledger) { compression.take(event, ledger); });
  EXPECT_EQ(compression.all().saved_bytes, 160);
  EXPECT_EQ(compression.all().source_bytes, 100);
  EXPECT_EQ(compression.all().payload_bytes, 25);
  EXPECT_EQ(compression.all().held_bytes, 60);
  EXPECT_EQ(compression.all().restored, 1u);
  ASSERT_EQ(compression.held().size(), 1u);
  EXPECT_EQ(compression.held()[0].trail, "noise is not allowed");
  ASSERT_EQ(compression.lines().size(), 1u);
  EXPECT_EQ(file->definitions().string(compression.lines()[0].op), "aten::mm");
}

TEST(TraceReplay, ACurveHasAtMostSoManyPointsAndLosesNoPeak) {
  Story story;
  for (std::uint64_t i = 1; i < 2000; ++i) {
    story.allocate(i, i % 977 + 1);
    story.free(i);
  }
  const auto file = story.open();
  const Replay replay(*file);
  Curve curve(-1, replay.lives(), 100);
  replay.for_each(
      [&](const PleatTraceEvent& event, const Ledger& ledger) { curve.take(event, ledger); });
  EXPECT_LE(curve.points().size(), 100u);
  EXPECT_GE(curve.points().size(), 90u);
  std::int64_t highest = 0;
  for (const Curve::Point& point : curve.points()) highest = std::max(highest, point.totals.live());
  EXPECT_EQ(highest, 977);
}

}  // namespace
}  // namespace pleat::trace
