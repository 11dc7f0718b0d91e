// What memory would be with other bits: what a trace does not tell, and peaks, curves and rows.
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <random>
#include <vector>

#include "tests/tools/trace/reading.h"
#include "tests/tools/trace/what_if_story.h"

namespace pleat::trace {
namespace {

using namespace testing;

// ---- what is not told ---------------------------------------------------------------------------

TEST(TraceWhatIf, ATraceThatDecidedNothingDoesNotKnow) {
  Story story;
  save(story, 1, 10);
  story.record(PLEAT_TRACE_HOLD, 1, 10, kRaw);
  EXPECT_FALSE(Asked(story, 4).what_if->knows());
  EXPECT_FALSE(Asked(story, kLossless).what_if->knows());
  decide(story, 1, 0, 0);  // of a run without loss
  EXPECT_FALSE(Asked(story, 4).what_if->knows());
  EXPECT_TRUE(Asked(story, kLossless).what_if->knows());
}

TEST(TraceWhatIf, RecordsFromBeforeTheTraceCountWithTheBytesTheyTell) {
  Story story;
  story.present(10000, 10000);
  const std::size_t held = hold(story, 1, 10);
  const std::size_t restored = story.record(PLEAT_TRACE_RESTORE, 1, 10, kRaw);
  // Of what was coded or held before nothing is known.
  story.record(PLEAT_TRACE_RESTORE, 2, 20, kRaw);
  const std::size_t unknown = story.record(PLEAT_TRACE_DROP, 2, 0, kAt8);
  const Asked asked(story, 4);
  EXPECT_EQ(asked.live[held], std::int64_t{10000 - kRaw + kAt4});
  EXPECT_EQ(asked.live[restored], std::int64_t{10000 + kAt4});
  EXPECT_EQ(asked.live[unknown], std::int64_t{10000 + kAt4});
}

TEST(TraceWhatIf, LostEndsOfRecordsDoNotAddUp) {
  Story story;
  for (std::uint64_t i = 1; i <= 5; ++i) {
    save(story, i, 10);  // the block's number comes again: its FREE was lost
    hold(story, i, 10);
    story.record(PLEAT_TRACE_RESTORE, i, 10, kRaw);
    story.record(PLEAT_TRACE_TAG, 100 + i, 10, kRaw);  // saved anew: the first record has ended
    if (i % 2 == 0) hold(story, 100 + i, 10);
    if (i % 2 != 0) story.free(10);
  }
  const Asked asked(story, 4);
  EXPECT_LE(*std::max_element(asked.live.begin(), asked.live.end()),
            std::int64_t{3 * kRaw + kAt4});  // what live itself says, after two lost frees
  EXPECT_EQ(asked.live.back(), std::int64_t{2 * kRaw});
}

TEST(TraceWhatIf, TwoRecordsInTurnOnOneBlock) {
  Story story;
  save(story, 1, 10);
  hold(story, 1, 10);
  story.record(PLEAT_TRACE_RESTORE, 1, 10, kRaw);
  story.record(PLEAT_TRACE_DROP, 1, 0, 0);
  story.record(PLEAT_TRACE_TAG, 2, 10, kRaw);
  const std::size_t held = hold(story, 2, 10);
  // The other's TAG was lost, and so was this one's end.
  decide(story, 3, 8, kElements);
  plan(story, 3, PLEAT_TRACE_PLAN_CODED, kAt8);
  const std::size_t third = story.record(PLEAT_TRACE_HOLD, 3, 10, kRaw);
  const std::size_t late = story.record(PLEAT_TRACE_DROP, 2, 0, 0);
  const std::size_t freed = story.free(10);
  const Asked asked(story, 4);
  EXPECT_EQ(asked.live[held], std::int64_t{kAt4});
  EXPECT_EQ(asked.live[third], std::int64_t{kAt4});
  EXPECT_EQ(asked.live[late], std::int64_t{kAt4});
  EXPECT_EQ(asked.live[freed], 0);
}

TEST(TraceWhatIf, ATensorThatTheScriptHoldsIsAsItIs) {
  Story story;
  save(story, 1, 10);
  save(story, 2, 20);
  hold(story, 2, 20);
  const Asked asked(story, 4);
  EXPECT_EQ(asked.live.back(), std::int64_t{kRaw + kAt4});
}

TEST(TraceWhatIf, OtherDevicesAreNotLookedAt) {
  Story story;
  save(story, 1, 10);
  hold(story, 1, 10);
  story.device = 0;
  save(story, 1, 10);
  const Asked host(story, 4);
  EXPECT_EQ(host.live.back(), std::int64_t{kAt4});
  const Asked cuda(story, 4, {}, 0);
  EXPECT_EQ(cuda.live.back(), std::int64_t{kRaw});
  EXPECT_FALSE(cuda.what_if->knows());
}

TEST(TraceWhatIf, HostileNumbersWrapAndDoNotFail) {
  for (unsigned seed = 1; seed <= 30; ++seed) {
    Story story;
    std::mt19937_64 random(seed);
    for (PleatTraceEvent one : any_events(400, seed)) {
      constexpr std::uint8_t kKinds[] = {4, 5, 6, 10, 12, 13, 15, 16, 17, 18, 19, 20, 67, 68, 70};
      one.kind = kKinds[random() % std::size(kKinds)];
      one.block %= 7;  // they meet
      one.record %= 5;
      one.device = static_cast<std::int8_t>(-1 + static_cast<int>(random() % 2));
      one.reason = static_cast<std::uint8_t>(random() % 10);
      story.add(one);
    }
    const auto file = story.open();
    const Replay replay(*file);
    for (const double bits : {1.0, 4.0, 8.0, kLossless}) {
      WhatIf what_if(-1, bits, replay.filter());
      Curve curve(-1, replay.lives(), 10);
      replay.for_each([&](const PleatTraceEvent& event, const Ledger& ledger) {
        what_if.take(event, ledger);
        curve.take(event, ledger, &what_if);
        std::vector<LiveEntry> live = ledger.live(-1);
        (void)what_if.tell(live, ledger);
      });
      EXPECT_GE(what_if.peak().bytes, 0) << "seed " << seed;
    }
  }
}

// ---- peaks, curves, rows ------------------------------------------------------------------------

TEST(TraceWhatIf, ThePeakHasAMomentOfItsOwn) {
  Story story;
  story.begin(kForward, 3);
  for (std::uint64_t i = 1; i <= 3; ++i) {
    save(story, i, 10 * i);
    hold(story, i, 10 * i);
  }
  story.begin(kBackward, 3);
  for (std::uint64_t i = 1; i <= 3; ++i) {
    story.free(10 * i);
    story.record(PLEAT_TRACE_DROP, i, 0, 0);
  }
  story.begin(kOptimizer, 3);
  const std::size_t later = story.allocate(99, 10000);
  const Asked asked(story, 4);
  EXPECT_EQ(asked.replay->lives().devices.at(-1).peaks[0].bytes, std::int64_t{3 * kRaw});
  const Peak& peak = asked.what_if->peak();
  EXPECT_EQ(peak.bytes, 10000);
  EXPECT_EQ(peak.event, later);
  EXPECT_EQ(peak.time_ns, story.events()[later].time_ns);
  EXPECT_EQ(peak.step, 0u);
  EXPECT_EQ(peak.phase, kOptimizer);
  EXPECT_EQ(asked.peak_of(ByteClass::kPayloads), 0);
  Filter filter;
  filter.until_ns = story.events()[later].time_ns - 1;
  EXPECT_EQ(Asked(story, 4, filter).what_if->peak().bytes, std::int64_t{kRaw + 3 * kAt4});
}

TEST(TraceWhatIf, ACurveHasTheHighestOfEachPieceOfTime) {
  Story story;
  save(story, 1, 10);
  const std::size_t held = hold(story, 1, 10);
  for (int i = 0; i < 20; ++i) story.mark(PLEAT_TRACE_RESIDENT, 1);
  const std::size_t more = story.allocate(20, 1000);
  const auto file = story.open();
  const Replay replay(*file);
  WhatIf what_if(-1, 4, replay.filter());
  Curve curve(-1, replay.lives(), 4);
  Curve plain(-1, replay.lives(), 4);
  replay.for_each([&](const PleatTraceEvent& event, const Ledger& ledger) {
    what_if.take(event, ledger);
    curve.take(event, ledger, &what_if);
    plain.take(event, ledger);
  });
  ASSERT_EQ(curve.points().size(), 4u);
  ASSERT_LT(held, more);
  EXPECT_EQ(curve.points()[0].highest_would_be, std::int64_t{kRaw + kAt4});
  EXPECT_EQ(curve.points()[1].highest_would_be, std::int64_t{kAt4});
  EXPECT_EQ(curve.points()[3].highest_would_be, std::int64_t{kAt4 + 1000});
  EXPECT_EQ(curve.points()[3].totals.live(), std::int64_t{kRaw + 1000});
  EXPECT_EQ(plain.points()[3].highest_would_be, 0);
}

TEST(TraceWhatIf, RowsHoldWhatTheirTensorsWouldBe) {
  Story story;
  TraceWriter& writer = story.writer;
  story.op = writer.string("aten::gelu");
  story.stack = writer.stack_of({writer.python_frame("f", "/me/net.py", 5)});
  save(story, 1, 10);
  save(story, 2, 20);
  hold(story, 1, 10);
  hold(story, 2, 20);
  story.op = writer.string("aten::mm");
  story.stack = writer.stack_of({writer.python_frame("g", "/me/net.py", 6)});
  save(story, 3, 30);
  hold(story, 3, 30);
  story.record(PLEAT_TRACE_RESTORE, 3, 30, kRaw);
  story.allocate(40, 500);
  const Asked asked(story, 4);
  Lines lines(asked.file->definitions());
  const std::vector<Group> groups = group(asked.last, GroupBy::kLine, *asked.replay, lines);
  ASSERT_EQ(groups.size(), 3u);
  EXPECT_EQ(groups[0].bytes, std::int64_t{2 * kRaw});
  EXPECT_EQ(groups[0].would_be, std::int64_t{2 * kAt4});
  EXPECT_EQ(groups[0].count, 2u);
  EXPECT_EQ(groups[1].bytes, std::int64_t{kRaw});
  EXPECT_EQ(groups[1].would_be, std::int64_t{kRaw + kAt4});
  EXPECT_EQ(groups[2].would_be, 500);
}

}  // namespace
}  // namespace pleat::trace
