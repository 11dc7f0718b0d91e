// What memory would be with other bits: each rule by numbers worked out by hand.
#include <cstdint>
#include <map>

#include "tests/tools/trace/what_if_story.h"

namespace pleat::trace {
namespace {

using namespace testing;

TEST(TraceWhatIf, AHeldTensorIsItsPlannedPayloadScaledToTheBits) {
  Story story;
  save(story, 1, 10);
  const std::size_t held = hold(story, 1, 10);
  for (const auto& [bits, bytes] : std::map<double, std::int64_t>{
           {8, kAt8}, {4, kAt4}, {2.5, 416}, {2, kAt2}, {1, 224}, {kLossless, kRaw}}) {
    const Asked asked(story, bits);
    EXPECT_EQ(asked.live[0], std::int64_t{kRaw}) << bits;
    EXPECT_EQ(asked.live[1], std::int64_t{kRaw}) << bits;
    EXPECT_EQ(asked.live[held], bytes) << bits;
    EXPECT_TRUE(asked.what_if->knows());
  }
}

TEST(TraceWhatIf, WhatNeedsSoManyBitsHasThemHoweverFewAreAskedFor) {
  Story story;
  save(story, 1, 10);
  story.record(PLEAT_TRACE_RELEASE, 1, 10, kRaw);
  decide(story, 1, 8, kElements, kRaw, 4);
  plan(story, 1, PLEAT_TRACE_PLAN_CODED, kAt8);
  const std::size_t held = story.record(PLEAT_TRACE_HOLD, 1, 10, kRaw);
  EXPECT_EQ(Asked(story, 8).live[held], std::int64_t{kAt8});
  EXPECT_EQ(Asked(story, 4).live[held], std::int64_t{kAt4});
  EXPECT_EQ(Asked(story, 2).live[held], std::int64_t{kAt4});
}

TEST(TraceWhatIf, RawBytesAndPayloadAreBothThereWhileATensorIsCoded) {
  Story story;
  save(story, 1, 10);
  const std::size_t held = hold(story, 1, 10);
  const Asked asked(story, 4);
  EXPECT_EQ(asked.highest[held], std::int64_t{kRaw + kAt4});
  EXPECT_EQ(asked.what_if->peak().bytes, std::int64_t{kRaw + kAt4});
  EXPECT_EQ(asked.what_if->peak().event, held);
  EXPECT_EQ(asked.peak_of(ByteClass::kSavedRaw), std::int64_t{kRaw});
  EXPECT_EQ(asked.peak_of(ByteClass::kPayloads), std::int64_t{kAt4});
}

TEST(TraceWhatIf, ARestoredTensorHasItsPayloadBesideIt) {
  Story story;
  save(story, 1, 10);
  hold(story, 1, 10);
  const std::size_t restored = story.record(PLEAT_TRACE_RESTORE, 1, 10, kRaw);
  const std::size_t back = story.record(PLEAT_TRACE_RESTORED_FREE, 1, 10, kRaw);
  const std::size_t again = story.record(PLEAT_TRACE_RESTORE, 1, 10, kRaw);
  story.record(PLEAT_TRACE_RESTORED_FREE, 1, 10, kRaw);
  const std::size_t freed = story.free(10);
  const std::size_t dropped = story.record(PLEAT_TRACE_DROP, 1, 0, 0);
  const Asked asked(story, 4);
  EXPECT_EQ(asked.live[restored], std::int64_t{kRaw + kAt4});
  EXPECT_EQ(asked.live[back], std::int64_t{kAt4});
  EXPECT_EQ(asked.live[again], std::int64_t{kRaw + kAt4});
  EXPECT_EQ(asked.live[freed], 0);  // the record's only bytes
  EXPECT_EQ(asked.live[dropped], 0);
}

TEST(TraceWhatIf, ADroppedRecordLeavesWhatItGaveBack) {
  Story story;
  save(story, 1, 10);
  hold(story, 1, 10);
  story.record(PLEAT_TRACE_RESTORE, 1, 10, kRaw);
  const std::size_t dropped = story.record(PLEAT_TRACE_DROP, 1, 0, 0);
  const std::size_t freed = story.free(10);
  const Asked asked(story, 4);
  EXPECT_EQ(asked.live[dropped], std::int64_t{kRaw});
  EXPECT_EQ(asked.live[freed], 0);
}

TEST(TraceWhatIf, ARestoredCopyIsBesideThePayloadAndThePayloadForTheRawBytes) {
  Story story;
  save(story, 1, 10);
  hold(story, 1, 10);
  story.allocate(11, kRaw);
  const std::size_t copied = story.record(PLEAT_TRACE_RESTORE, 1, 11, kRaw);
  story.record(PLEAT_TRACE_RESTORED_FREE, 1, 11, kRaw);
  const std::size_t freed = story.free(11);
  const Asked asked(story, 4);
  EXPECT_EQ(asked.live[copied], std::int64_t{kRaw + kAt4});
  EXPECT_EQ(asked.live[freed], std::int64_t{kAt4});
}

// The block that was given back dies in another thread while a copy takes its place.
TEST(TraceWhatIf, ACopyOfWhatWasGivenBackTakesItsPlace) {
  Story story;
  save(story, 1, 10);
  hold(story, 1, 10);
  story.record(PLEAT_TRACE_RESTORE, 1, 10, kRaw);
  story.allocate(11, kRaw);
  const std::size_t both = story.record(PLEAT_TRACE_RESTORE, 1, 11, kRaw);
  const std::size_t old_gone = story.free(10);
  const std::size_t back = story.record(PLEAT_TRACE_RESTORED_FREE, 1, 11, kRaw);
  const std::size_t gone = story.free(11);
  const Asked asked(story, 4);
  EXPECT_EQ(asked.live[both], std::int64_t{2 * kRaw + kAt4});
  EXPECT_EQ(asked.live[old_gone], std::int64_t{kRaw + kAt4});
  EXPECT_EQ(asked.live[back], std::int64_t{kAt4});
  EXPECT_EQ(asked.live[gone], 0);
}

TEST(TraceWhatIf, WhatIsExactIsAsPlannedAtAnyBits) {
  Story story;
  save(story, 1, 10);
  const std::size_t held = hold(story, 1, 10, 0, 0, 2000);
  EXPECT_EQ(Asked(story, 4).live[held], 2000);
  EXPECT_EQ(Asked(story, 1).live[held], 2000);
  EXPECT_EQ(Asked(story, kLossless).live[held], 2000);
}

TEST(TraceWhatIf, WhatIsRecomputedHasNoPayload) {
  Story story;
  save(story, 1, 10);
  const std::size_t held = hold(story, 1, 10, 8, kElements, 0, PLEAT_TRACE_PLAN_RECOMPUTED);
  const std::size_t restored = story.record(PLEAT_TRACE_RESTORE, 1, 10, kRaw);
  const std::size_t back = story.record(PLEAT_TRACE_RESTORED_FREE, 1, 10, kRaw);
  const Asked asked(story, 4);
  EXPECT_EQ(asked.live[held], 0);
  EXPECT_EQ(asked.highest[held], std::int64_t{kRaw});
  EXPECT_EQ(asked.live[restored], std::int64_t{kRaw});
  EXPECT_EQ(asked.live[back], 0);
  // Of noise there would be no payload to compute it from.
  EXPECT_EQ(Asked(story, kLossless).live[held], std::int64_t{kRaw});
}

TEST(TraceWhatIf, WhatStaysRawOrHasNoPlanIsAsItWas) {
  Story story;
  save(story, 1, 10);
  const std::size_t raw = hold(story, 1, 10, 8, kElements, 0, PLEAT_TRACE_PLAN_RAW);
  save(story, 2, 20);
  story.record(PLEAT_TRACE_RELEASE, 2, 20, kRaw);
  const std::size_t waits = story.record(PLEAT_TRACE_WAIT, 2, 20, kRaw);
  decide(story, 2, 8, kElements);
  const std::size_t no_plan = story.record(PLEAT_TRACE_HOLD, 2, 20, kRaw);
  save(story, 3, 30);
  decide(story, 3, 4, kElements);
  const std::size_t kept = story.record(PLEAT_TRACE_KEEP, 3, 30, kRaw);
  const Asked asked(story, 4);
  EXPECT_EQ(asked.live[raw], std::int64_t{kRaw});
  EXPECT_EQ(asked.live[waits], std::int64_t{2 * kRaw});
  EXPECT_EQ(asked.live[no_plan], std::int64_t{2 * kRaw});
  EXPECT_EQ(asked.live[kept], std::int64_t{3 * kRaw});
  EXPECT_EQ(asked.highest[raw], std::int64_t{kRaw});
}

TEST(TraceWhatIf, APayloadWithFewerCodesThanElementsKeepsItsShareOfThem) {
  Story story;
  save(story, 1, 10);
  // Three quarters are zeros that were left out: 16 bytes stand beside 240 of codes.
  const std::size_t some = hold(story, 1, 10, 8, kElements, 256);
  save(story, 2, 20);
  const std::size_t none = hold(story, 2, 20, 8, kElements, 10);  // a constant
  const Asked asked(story, 4);
  EXPECT_EQ(asked.live[some], 16 + 120);
  EXPECT_EQ(asked.live[none], 16 + 120 + 10);
  EXPECT_EQ(Asked(story, 1).live[some], 16 + 30);
}

TEST(TraceWhatIf, NoPayloadIsLongerThanWhatItIsMadeOf) {
  Story story;
  story.allocate(10, 1100);
  story.record(PLEAT_TRACE_TAG, 1, 10, 1100);
  decide(story, 1, 1, 1024, 1100);
  plan(story, 1, PLEAT_TRACE_PLAN_CODED, 224, 1100);
  const std::size_t held = story.record(PLEAT_TRACE_HOLD, 1, 10, 1100);
  EXPECT_EQ(Asked(story, 4).live[held], 608);
  EXPECT_EQ(Asked(story, 8).live[held], 1100);  // not 1120
}

// ---- of a run that codes ------------------------------------------------------------------------

TEST(TraceWhatIf, PayloadsOfARunThatCodesAreScaledWhileTheyLive) {
  Story story;
  save(story, 1, 10);
  story.record(PLEAT_TRACE_RELEASE, 1, 10, kRaw);
  decide(story, 1, 8, kElements);
  const std::size_t room = story.slot(PLEAT_TRACE_PAYLOAD_ALLOCATE, 1200, 1200);
  const std::size_t shrunk = story.slot(PLEAT_TRACE_PAYLOAD_SHRINK, kAt8, -80);
  story.encode(1, PLEAT_TRACE_PLACE_CHUNK, testing::kChunk, kAt8);
  const std::size_t encoded = story.free(10);
  story.allocate(11, kRaw);
  const std::size_t restored = story.record(PLEAT_TRACE_RESTORE, 1, 11, kRaw);
  story.record(PLEAT_TRACE_RESTORED_FREE, 1, 11, kRaw);
  const std::size_t back = story.free(11);
  story.slot(PLEAT_TRACE_PAYLOAD_FREE, kAt8, -1120);
  const std::size_t dropped = story.record(PLEAT_TRACE_DROP, 1, 0, kAt8);
  const Asked four(story, 4);
  EXPECT_EQ(four.live[room], std::int64_t{kRaw} + 1200 - 512);
  EXPECT_EQ(four.live[shrunk], std::int64_t{kRaw + kAt4});
  EXPECT_EQ(four.live[encoded], std::int64_t{kAt4});
  EXPECT_EQ(four.live[restored], std::int64_t{kRaw + kAt4});
  EXPECT_EQ(four.live[back], std::int64_t{kAt4});
  EXPECT_EQ(four.live[dropped], 0);
  EXPECT_TRUE(four.what_if->knows());
  const Asked two(story, 2);
  EXPECT_EQ(two.live[encoded], std::int64_t{kAt2});
  const Asked raw(story, kLossless);
  EXPECT_EQ(raw.live[encoded], std::int64_t{kRaw});
  EXPECT_EQ(raw.live[restored], std::int64_t{kRaw});  // the raw bytes themselves
  EXPECT_EQ(raw.live[back], std::int64_t{kRaw});
  EXPECT_EQ(raw.live[dropped], 0);
  EXPECT_LT(raw.what_if->peak().bytes, std::int64_t{2 * kRaw});
}

TEST(TraceWhatIf, APayloadInTheBlockItself) {
  Story story;
  save(story, 1, 10);
  decide(story, 1, 8, kElements);
  story.shrink(10, kAt8);
  const std::size_t encoded = story.encode(1, PLEAT_TRACE_PLACE_IN_PLACE, 10, kAt8);
  story.free(10);
  const std::size_t dropped = story.record(PLEAT_TRACE_DROP, 1, 0, kAt8);
  const Asked four(story, 4);
  EXPECT_EQ(four.live[encoded], std::int64_t{kAt4});
  EXPECT_EQ(four.live[dropped], 0);
  const Asked raw(story, kLossless);
  EXPECT_EQ(raw.live[encoded], std::int64_t{kRaw});
  EXPECT_EQ(raw.live[dropped], 0);
}

TEST(TraceWhatIf, APayloadInABlockOfItsOwn) {
  Story story;
  save(story, 1, 10);
  decide(story, 1, 8, kElements);
  story.allocate(11, kAt8, 1);
  story.encode(1, PLEAT_TRACE_PLACE_OWN_BLOCK, 11, kAt8);
  const std::size_t encoded = story.free(10);
  EXPECT_EQ(Asked(story, 4).live[encoded], std::int64_t{kAt4});
  const Asked asked(story, 4);
  ASSERT_EQ(asked.last.size(), 1u);
  EXPECT_EQ(asked.last[0].would_be, std::int64_t{kAt4});
}

TEST(TraceWhatIf, TheLastOfSeveralEncodesCounts) {
  Story story;
  save(story, 1, 10);
  decide(story, 1, 8, kElements);
  story.slot(PLEAT_TRACE_PAYLOAD_ALLOCATE, 2000, 2000);
  story.encode(1, PLEAT_TRACE_PLACE_CHUNK, testing::kChunk, 2000);
  const std::size_t encoded = story.slot(PLEAT_TRACE_PAYLOAD_SHRINK, kAt8, -880);
  const std::size_t again = story.encode(1, PLEAT_TRACE_PLACE_CHUNK, testing::kChunk, kAt8);
  const std::size_t dropped = story.record(PLEAT_TRACE_DROP, 1, 0, kAt8);
  const Asked asked(story, 2);
  EXPECT_EQ(asked.live[encoded], std::int64_t{kRaw + kAt8} - 768);
  EXPECT_EQ(asked.live[again], std::int64_t{kRaw + kAt2});
  EXPECT_EQ(asked.live[dropped], std::int64_t{kRaw + kAt8});  // its memory's end was not told
}

TEST(TraceWhatIf, AnEncodeThatGivesUpOrComputesAgainHasNoPayload) {
  Story story;
  save(story, 1, 10);
  decide(story, 1, 8, kElements);
  story.slot(PLEAT_TRACE_PAYLOAD_ALLOCATE, kAt8, kAt8);
  story.slot(PLEAT_TRACE_PAYLOAD_FREE, kAt8, -1120);
  const std::size_t held = story.record(PLEAT_TRACE_HOLD, 1, 10, kRaw);
  save(story, 2, 20);
  decide(story, 2, 8, kElements);
  story.encode(2, PLEAT_TRACE_PLACE_NONE, 0, 0);
  const std::size_t recomputed = story.free(20);
  const Asked four(story, 4);
  EXPECT_EQ(four.live[held], std::int64_t{kRaw});
  EXPECT_EQ(four.live[recomputed], std::int64_t{kRaw});
  const Asked raw(story, kLossless);
  EXPECT_EQ(raw.live[recomputed], std::int64_t{2 * kRaw});
  // What would live, though nothing does, has a row all the same.
  ASSERT_EQ(raw.last.size(), 2u);
  EXPECT_EQ(raw.last[1].bytes, 0);
  EXPECT_EQ(raw.last[1].would_be, std::int64_t{kRaw});
  EXPECT_EQ(raw.last[1].record, 2u);
}

}  // namespace
}  // namespace pleat::trace
