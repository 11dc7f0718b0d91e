// Traces of version 1. Their encodes name the source block, and no event names a payload's place.
#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "tests/tools/trace/told.h"

namespace pleat::trace {
namespace {

using namespace testing;

// One job in either version: payloads in a chunk, in blocks of their own, in place, and none.
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
    story.thread = 2;  // places of another thread or device do not count
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

// Blocks and records, with classes and sizes, in order.
using Rows = std::vector<std::tuple<std::uint64_t, std::uint64_t, std::int64_t, ByteClass>>;
Rows rows_of(const std::vector<LiveEntry>& live) {
  Rows rows;
  for (const LiveEntry& entry : live)
    rows.emplace_back(entry.block, entry.record, entry.bytes, entry.of);
  std::sort(rows.begin(), rows.end());
  return rows;
}

TEST(TraceVersion1, EqualsTheSameJobInVersion2) {
  BothVersions versions[] = {BothVersions(false), BothVersions(true)};
  const Told second(versions[0].story), first(versions[1].story);
  const std::vector<PleatTraceEvent>& events = versions[0].story.events();
  ASSERT_EQ(first.totals.size(), second.totals.size());
  std::size_t compared = 0;
  for (std::size_t i = 0; i < first.totals.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(first.totals[i].bytes, second.totals[i].bytes);
    // Until the encode only version 2 knows the record of a room.
    if (events[i].kind != PLEAT_TRACE_ENCODE) continue;
    EXPECT_EQ(rows_of(first.live[i]), rows_of(second.live[i]));
    ++compared;
  }
  EXPECT_EQ(compared, 6u);
}

TEST(TraceVersion1, EncodeNamesThePayloadsPlace) {
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

// A queued encode: its payload's block cannot be known.
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

TEST(TraceVersion1, ABlockThatWasFreedOrThatTheRecordWasTaggedOnIsNoPayload) {
  for (const bool frees : {false, true}) {
    Story story;
    story.begin(kForward);
    story.allocate(1, 250);
    story.record(PLEAT_TRACE_TAG, 7, 1, 250);
    if (frees) {
      story.allocate(2, 250);
      story.thread = 2;
      story.free(2);
      story.thread = 1;
    }
    const std::size_t encoded = story.record(PLEAT_TRACE_ENCODE, 7, 0, 250);
    story.begin(kBackward);
    story.writer.bytes()[8] = 1;
    const Told told(story);
    EXPECT_EQ(told.at(encoded, ByteClass::kPayloads), 0);
    EXPECT_EQ(told.at(encoded, ByteClass::kKept), 250);
  }
}

}  // namespace
}  // namespace pleat::trace
