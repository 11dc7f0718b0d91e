// Each rule of what bytes are there for, by a few events told by hand.
#include "tests/tools/trace/told.h"

namespace pleat::trace {
namespace {

using namespace testing;

TEST(TraceClasses, ALabelCountsForTheWholeLife) {
  Story story;
  const std::size_t parameter = story.allocate(1, 100);
  const std::size_t gradient = story.allocate(2, 10);
  story.label(1, PLEAT_TRACE_LABEL_PARAMETER, 100);
  story.label(2, PLEAT_TRACE_LABEL_GRADIENT, 10);
  const std::size_t tagged = story.record(PLEAT_TRACE_TAG, 5, 1, 100);
  const Told told(story);
  EXPECT_TRUE(told.all(parameter, ByteClass::kParameters));
  EXPECT_EQ(told.at(gradient, ByteClass::kGradients), 10);
  EXPECT_EQ(told.at(tagged, ByteClass::kParameters), 100);
  EXPECT_EQ(told.at(tagged, ByteClass::kSavedRaw), 0);
}

TEST(TraceClasses, WhatTheOptimizerMakesAndKeepsIsItsState) {
  Story story;
  story.begin(kOptimizer);
  const std::size_t state = story.allocate(1, 100);
  const std::size_t both = story.allocate(2, 10);
  story.thread = 2;  // another thread's phase does not end it
  story.begin(kForward);
  story.thread = 1;
  story.free(2);
  story.begin(kData, 1);
  story.free(1);
  const Told told(story);
  EXPECT_TRUE(told.all(state, ByteClass::kOptimizerState));
  EXPECT_EQ(told.at(both, ByteClass::kOptimizerState), 100);
  EXPECT_EQ(told.at(both, ByteClass::kUnknown), 10);
}

TEST(TraceClasses, DataThatIsThereWhenTheNextPhaseBeginsIsInput) {
  for (const std::uint8_t phase : {kOther, kData}) {
    Story story;
    story.begin(phase);
    const std::size_t input = story.allocate(1, 100);
    const std::size_t both = story.allocate(2, 10);
    story.free(2);
    story.thread = 2;
    story.begin(kForward);
    const std::size_t saved = story.record(PLEAT_TRACE_TAG, 1, 1, 100);
    const Told told(story);
    EXPECT_TRUE(told.all(input, ByteClass::kInputs));
    EXPECT_EQ(told.at(both, ByteClass::kTemporary), 10);
    EXPECT_TRUE(told.all(saved, ByteClass::kInputs));
  }
}

TEST(TraceClasses, FromItsTagABlockIsSavedRawUntilItsRecordIsEncodedKeptOrDropped) {
  for (const std::uint8_t end : {PLEAT_TRACE_ENCODE, PLEAT_TRACE_KEEP, PLEAT_TRACE_DROP}) {
    Story story;
    story.begin(kForward);
    const std::size_t born = story.allocate(1, 100);
    const std::size_t tagged = story.record(PLEAT_TRACE_TAG, 7, 1, 100);
    const std::size_t others = story.record(end, 8, 1, 0);  // of another record
    const std::size_t ended = story.record(end, 7, 0, 0);
    story.begin(kBackward);
    story.free(1);
    const Told told(story);
    EXPECT_TRUE(told.all(born, ByteClass::kKept));
    EXPECT_TRUE(told.all(tagged, ByteClass::kSavedRaw));
    EXPECT_TRUE(told.all(others, ByteClass::kSavedRaw));
    EXPECT_TRUE(told.all(ended, ByteClass::kKept));
  }
}

TEST(TraceClasses, PlacesInChunksAreFromTheirAllocationPayloads) {
  Story story;
  story.allocate(1, 100);
  story.record(PLEAT_TRACE_TAG, 7, 1, 100);
  const std::size_t taken = story.slot(PLEAT_TRACE_PAYLOAD_ALLOCATE, 40, 40);
  const std::size_t shrunk = story.slot(PLEAT_TRACE_PAYLOAD_SHRINK, 25, -15);
  story.encode(7, PLEAT_TRACE_PLACE_CHUNK, testing::kChunk, 25);
  const std::size_t freed = story.free(1);
  const std::size_t gone = story.slot(PLEAT_TRACE_PAYLOAD_FREE, 25, -25);
  const Told told(story);
  EXPECT_EQ(told.at(taken, ByteClass::kPayloads), 40);
  EXPECT_EQ(told.at(shrunk, ByteClass::kPayloads), 25);
  EXPECT_EQ(told.at(shrunk, ByteClass::kSavedRaw), 100);
  EXPECT_TRUE(told.all(freed, ByteClass::kPayloads));
  ASSERT_EQ(told.live[freed].size(), 1u);
  EXPECT_EQ(told.live[freed][0].record, 7u);
  EXPECT_EQ(told.totals[gone].live(), 0);
}

TEST(TraceClasses, ABlockThatIsEncodedInPlaceIsAPayloadFromThenOn) {
  Story story;
  story.begin(kForward);
  story.allocate(1, 100);
  story.record(PLEAT_TRACE_TAG, 7, 1, 100);
  const std::size_t before = story.shrink(1, 30);
  const std::size_t encoded = story.encode(7, PLEAT_TRACE_PLACE_IN_PLACE, 1, 30);
  story.begin(kBackward);
  const std::size_t freed = story.free(1);
  const Told told(story);
  EXPECT_TRUE(told.all(before, ByteClass::kSavedRaw));
  EXPECT_TRUE(told.all(encoded, ByteClass::kPayloads));
  EXPECT_EQ(told.totals[freed].live(), 0);
}

TEST(TraceClasses, ABlockThatALargePayloadGetsIsAPayloadAllItsLife) {
  Story story;
  story.begin(kForward);
  story.allocate(1, 1000);
  story.record(PLEAT_TRACE_TAG, 7, 1, 1000);
  const std::size_t room = story.allocate(2, 400, 7);
  story.shrink(2, 250);
  story.encode(7, PLEAT_TRACE_PLACE_OWN_BLOCK, 2, 250);
  const std::size_t freed = story.free(1);
  story.begin(kBackward);
  const Told told(story);
  EXPECT_EQ(told.at(room, ByteClass::kPayloads), 400);
  EXPECT_EQ(told.at(room, ByteClass::kSavedRaw), 1000);
  EXPECT_TRUE(told.all(freed, ByteClass::kPayloads));
}

TEST(TraceClasses, AQueuedEncodeIsPayloadsBeforeItsVerdict) {
  Story story;
  story.begin(kForward);
  story.allocate(1, 1000);
  story.record(PLEAT_TRACE_TAG, 7, 1, 1000);
  const std::size_t room = story.allocate(2, 250, 7);
  const std::size_t other = story.allocate(3, 60);
  story.begin(kBackward);
  story.thread = 2;
  const std::size_t encoded = story.encode(7, PLEAT_TRACE_PLACE_OWN_BLOCK, 2, 250);
  story.free(1);
  const Told told(story);
  for (const std::size_t at : {room, other, encoded})
    EXPECT_EQ(told.at(at, ByteClass::kPayloads), 250) << at;
  EXPECT_EQ(told.at(other, ByteClass::kSavedRaw), 1000);
}

TEST(TraceClasses, ABlockThatIsRestoredIntoIsRestoredAllItsLife) {
  Story story;
  story.begin(kForward);
  story.allocate(1, 100);
  story.record(PLEAT_TRACE_TAG, 7, 1, 100);
  story.encode(7, PLEAT_TRACE_PLACE_NONE, 0, 0);
  story.free(1);
  story.begin(kBackward);
  const std::size_t born = story.allocate(2, 100);
  story.record(PLEAT_TRACE_RESTORE, 7, 2, 100);
  const std::size_t free_of_storage = story.record(PLEAT_TRACE_RESTORED_FREE, 7, 2, 100);
  story.free(2);
  const Told told(story);
  EXPECT_TRUE(told.all(born, ByteClass::kRestored));
  EXPECT_TRUE(told.all(free_of_storage, ByteClass::kRestored));
}

TEST(TraceClasses, ARawBlockThatIsGivenBackIsRestoredFromThenOn) {
  Story story;
  story.begin(kForward);
  story.allocate(1, 100);
  const std::size_t tagged = story.record(PLEAT_TRACE_TAG, 7, 1, 100);
  story.record(PLEAT_TRACE_HOLD, 7, 1, 100);
  story.begin(kBackward);
  const std::size_t restored = story.record(PLEAT_TRACE_RESTORE, 7, 1, 100);
  const std::size_t raw_again = story.record(PLEAT_TRACE_RESTORED_FREE, 7, 1, 100);
  const Told told(story);
  EXPECT_TRUE(told.all(tagged, ByteClass::kSavedRaw));
  EXPECT_TRUE(told.all(restored, ByteClass::kRestored));
  EXPECT_TRUE(told.all(raw_again, ByteClass::kSavedRaw));
}

TEST(TraceClasses, WhatIsBornAndFreedWithinAPhaseIsTemporaryWhatOutlivesItIsKept) {
  for (const std::uint8_t phase : {kForward, kBackward, kBetween}) {
    Story story;
    story.begin(phase);
    const std::size_t kept = story.allocate(1, 100);
    const std::size_t both = story.allocate(2, 10);
    story.free(2);
    story.begin(kOptimizer);
    story.free(1);
    const Told told(story);
    EXPECT_TRUE(told.all(kept, ByteClass::kKept));
    EXPECT_EQ(told.at(both, ByteClass::kTemporary), 10);
  }
}

TEST(TraceClasses, TheEndOfATraceEndsThePhasesOfTraining) {
  Story story;
  story.begin(kOther);
  const std::size_t other = story.allocate(1, 1);
  Story training;
  training.begin(kForward);
  const std::size_t forward = training.allocate(1, 10);
  EXPECT_TRUE(Told(story).all(other, ByteClass::kUnknown));
  EXPECT_TRUE(Told(training).all(forward, ByteClass::kKept));
  Story optimizer;
  optimizer.begin(kOptimizer);
  const std::size_t state = optimizer.allocate(1, 10);
  EXPECT_TRUE(Told(optimizer).all(state, ByteClass::kOptimizerState));
}

TEST(TraceClasses, WhatWasThereBeforeTheTraceIsUnknownUntilToldOtherwise) {
  Story story;
  const std::size_t present = story.present(1000, 4096);
  story.allocate(50, 10);
  story.label(20, PLEAT_TRACE_LABEL_PARAMETER, 300);
  const std::size_t saved = story.record(PLEAT_TRACE_TAG, 7, 21, 200);
  PleatTraceEvent gone = event(PLEAT_TRACE_FREE, 1000 + 10 * story.events().size());
  gone.block = 22;  // nobody has heard of
  gone.bytes = 50;
  gone.change[0] = gone.change[1] = -50;
  const std::size_t freed = story.add(gone);
  story.free(20);
  const std::size_t slot = story.slot(PLEAT_TRACE_PAYLOAD_FREE, 60, -60);
  const Told told(story);
  EXPECT_EQ(told.at(present, ByteClass::kParameters), 300);
  EXPECT_EQ(told.at(present, ByteClass::kPayloads), 60);
  EXPECT_EQ(told.at(present, ByteClass::kUnknown), 640);
  EXPECT_EQ(told.at(saved, ByteClass::kSavedRaw), 200);
  EXPECT_EQ(told.at(freed, ByteClass::kUnknown), 400);
  EXPECT_EQ(told.at(slot, ByteClass::kPayloads), 0);
  EXPECT_EQ(told.totals[slot].cached(), 4096 - told.totals[slot].active());
  EXPECT_EQ(told.disagreements, 0u);
}

TEST(TraceClasses, LostEventsMakeADisagreementAndNoNegativeBytes) {
  Story story;
  story.begin(kForward);
  story.allocate(1, 100);
  PleatTraceEvent odd = event(PLEAT_TRACE_OTHER, 1011);
  odd.change[0] = -40;
  story.add(odd);
  const auto file = story.open();
  const Replay replay(*file);
  std::uint64_t disagreements = 0;
  replay.for_each([&](const PleatTraceEvent& /*event*/, const Ledger& ledger) {
    for (const std::int64_t bytes : ledger.totals(-1).bytes) EXPECT_GE(bytes, 0);
    disagreements = ledger.disagreements();
  });
  EXPECT_EQ(disagreements, 1u);
}

TEST(TraceClasses, DevicesHaveBlocksAndRecordsOfTheirOwn) {
  Story story;
  story.begin(kForward);
  story.allocate(1, 100);
  story.device = 3;
  const std::size_t other = story.allocate(1, 7);
  story.record(PLEAT_TRACE_TAG, 7, 1, 7);
  const auto file = story.open();
  const Replay replay(*file);
  EXPECT_EQ(replay.lives().devices.size(), 2u);
  replay.for_each([&](const PleatTraceEvent& /*event*/, const Ledger& ledger) {
    if (ledger.events() <= other + 1) return;
    EXPECT_EQ(ledger.totals(-1).of(ByteClass::kKept), 100);
    EXPECT_EQ(ledger.totals(3).of(ByteClass::kSavedRaw), 7);
  });
}

}  // namespace
}  // namespace pleat::trace
