// Traces of version 1, which say of an encode the block that its record came from, and of no
// payload where it lies.
#include <gtest/gtest.h>

#include "tests/tools/trace/told.h"

namespace pleat::trace {
namespace {

using namespace testing;

// Saved tensors whose payloads go to a chunk, to blocks of their own, into the block itself and
// nowhere, as either version tells of them.
class BothVersions {
 public:
  explicit BothVersions(bool is_first) : is_first_(is_first) {
    story.begin(kForward);
    save(1, 100);
    room(PLEAT_TRACE_PLACE_CHUNK, 1, 40, 25);
    save(2, 1000);
    room(PLEAT_TRACE_PLACE_OWN_BLOCK, 2, 400, 250);
    save(3, 1000);
    room(PLEAT_TRACE_PLACE_OWN_BLOCK, 3, 300, 300);  // of just its size
    save(4, 500);
    story.shrink(4, 125);
    encode(PLEAT_TRACE_PLACE_IN_PLACE, 4, 4, 0, 125);
    save(5, 500);
    encode(PLEAT_TRACE_PLACE_NONE, 5, 0, 0, 0);
    story.free(5);
    story.thread = 2;  // the places of another thread are no matter, nor of another device
    save(6, 80);
    story.device = 0;
    story.allocate(1, 20);
    story.device = -1;
    room(PLEAT_TRACE_PLACE_CHUNK, 6, 20, 20);
    story.begin(kBackward);
    for (std::uint64_t record = 1; record <= 6; ++record)
      story.record(PLEAT_TRACE_DROP, record, 0, 0);
    if (is_first_) story.writer.bytes()[8] = 1;
  }

  Story story;

 private:
  void save(std::uint64_t record, std::uint64_t bytes) {
    story.allocate(record, bytes);
    story.record(PLEAT_TRACE_TAG, record, record, bytes);
  }
  void room(PleatTracePlace place, std::uint64_t record, std::uint64_t bytes, std::uint64_t used) {
    const std::uint64_t owner = is_first_ ? 0 : record;
    const std::uint64_t block = 100 + record;
    const std::uint64_t address = 4096 * record;
    if (place == PLEAT_TRACE_PLACE_CHUNK) {
      story.slot(PLEAT_TRACE_PAYLOAD_ALLOCATE, bytes, static_cast<std::int64_t>(bytes), owner,
                 address);
      if (used != bytes)
        story.slot(PLEAT_TRACE_PAYLOAD_SHRINK, used, static_cast<std::int64_t>(used - bytes), 0,
                   address);
      encode(place, record, kChunk, address, used);
    } else {
      story.allocate(block, bytes, owner);
      if (used != bytes) story.shrink(block, used);
      encode(place, record, block, 0, used);
    }
    story.free(record);
  }
  void encode(PleatTracePlace place, std::uint64_t record, std::uint64_t block,
              std::uint64_t address, std::uint64_t bytes) {
    PleatTraceEvent one = event(PLEAT_TRACE_ENCODE, 1000 + 10 * story.events().size());
    one.thread = story.thread;
    one.phase = story.phase;
    one.record = record;
    one.bytes = bytes;
    one.block = is_first_ ? record : block;
    one.address = is_first_ ? 0 : address;
    one.reason = is_first_ ? 0 : place;
    story.add(one);
  }

  bool is_first_;
};

TEST(TraceVersion1, IsReadAsVersion2WouldHaveToldIt) {
  BothVersions versions[] = {BothVersions(false), BothVersions(true)};
  const Told second(versions[0].story), first(versions[1].story);
  ASSERT_EQ(first.totals.size(), second.totals.size());
  for (std::size_t i = 0; i < first.totals.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(first.totals[i].bytes, second.totals[i].bytes);
    ASSERT_EQ(first.live[i].size(), second.live[i].size());
  }
}

TEST(TraceVersion1, EachEncodeIsToldWithThePlaceOfItsPayload) {
  const auto encodes = [](bool is_first) {
    BothVersions versions(is_first);
    std::vector<PleatTraceEvent> found;
    (void)versions.story.open()->for_each([&](const PleatTraceEvent& event) {
      if (event.kind == PLEAT_TRACE_ENCODE) found.push_back(event);
    });
    return found;
  };
  const std::vector<PleatTraceEvent> first = encodes(true), second = encodes(false);
  ASSERT_EQ(first.size(), 6u);
  ASSERT_EQ(second.size(), 6u);
  for (std::size_t i = 0; i < first.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(first[i].reason, second[i].reason);
    EXPECT_EQ(first[i].block, second[i].block);
    EXPECT_EQ(first[i].address, second[i].address);
  }
}

// As a queued encode told it: whose payload it is cannot be known, and no block is called one.
TEST(TraceVersion1, APlaceThatIsNotTheLastOfItsThreadIsNotGuessed) {
  Story story;
  story.begin(kForward);
  story.allocate(1, 1000);
  story.record(PLEAT_TRACE_TAG, 7, 1, 1000);
  story.allocate(2, 250);
  story.allocate(3, 60);
  story.record(PLEAT_TRACE_ENCODE, 7, 1, 250);
  story.free(1);
  story.begin(kBackward);
  story.writer.bytes()[8] = 1;
  const Told told(story);
  EXPECT_EQ(told.totals.back().of(ByteClass::kPayloads), 0);
  EXPECT_EQ(told.totals.back().of(ByteClass::kKept), 310);
}

}  // namespace
}  // namespace pleat::trace
