// The book of what lives, as the recorder's thread keeps it, beside the reader of `pleat trace`,
// which knows the future.
#include "interpose/trace/live_book.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "interpose/trace/book_figures.h"
#include "interpose/trace/book_replay.h"
#include "tests/interpose/made_up_job.h"
#include "tests/tools/trace/story.h"
#include "tools/pleat/trace/replay.h"

namespace pleat::trace {
namespace {

using recorder_testing::MadeUpJob;
using testing::Story;

std::int64_t all_classes(const Totals& totals) {
  std::int64_t all = 0;
  for (const std::int64_t bytes : totals.bytes) all += bytes;
  return all;
}

std::unique_ptr<LiveBook> new_book() {
  auto book = std::make_unique<LiveBook>();
  EXPECT_TRUE(book->begin());
  return book;
}

// Events of a job in one thread, times ascending.
std::vector<PleatTraceEvent> events_of(int steps, unsigned seed, bool ends_phases,
                                       int device = -1) {
  std::vector<PleatTraceEvent> events;
  MadeUpJob job(
      seed,
      [&](PleatTraceEvent event) {
        event.time_ns = 1000 + 10 * events.size();
        event.thread = 7;
        events.push_back(event);
      },
      device);
  job.begin();
  for (int i = 0; i < steps; ++i) job.step();
  if (ends_phases) job.phase(PLEAT_TRACE_PHASE_DATA);
  return events;
}

// What lives, by place and class.
using Groups = std::map<std::tuple<std::uint32_t, std::uint32_t, ByteClass>, std::int64_t>;

struct Read {
  Totals totals;
  Groups groups;
  std::uint64_t disagreements = 0;
  std::size_t records = 0;
};
Read read(const std::vector<PleatTraceEvent>& events, int device = -1) {
  Story story;
  for (const PleatTraceEvent& event : events) story.add(event);
  const std::unique_ptr<File> file = story.open();
  const Replay replay(*file);
  Read read;
  replay.for_each([&](const PleatTraceEvent& /*event*/, const Ledger& ledger) {
    read.totals = ledger.totals(device);
    read.disagreements = ledger.disagreements();
    if (ledger.events() != events.size()) return;
    for (const LiveEntry& entry : ledger.live(device)) {
      read.groups[{entry.place().op, entry.place().stack, entry.of}] += entry.bytes;
      if (const LiveRecord* const record = ledger.record(device, entry.record))
        read.records += record->bytes > 0 ? 1 : 0;
    }
  });
  read.disagreements += replay.lives().disagreements;
  return read;
}

TEST(LiveBook, ClassesAddUpToWhatLivesAfterEveryEvent) {
  for (const unsigned seed : {1u, 2u, 3u}) {
    const auto book = new_book();
    for (const PleatTraceEvent& event : events_of(6, seed, false)) {
      book->apply(event);
      const Totals& now = book->device(-1).now;
      ASSERT_EQ(all_classes(now), now.live());
      ASSERT_EQ(all_classes(book->device(-1).peak.totals), book->device(-1).peak.totals.live());
      ASSERT_GE(book->device(-1).peak.totals.live(), now.live());
    }
    EXPECT_TRUE(book->exact());
    EXPECT_EQ(book->step(), 5u);
  }
}

TEST(LiveBook, WhatPhasesHaveEndedIsOfTheReadersClass) {
  for (const unsigned seed : {1u, 2u, 3u, 4u}) {
    std::vector<PleatTraceEvent> events = events_of(5, seed, true, 3);
    const auto book = new_book();
    for (const PleatTraceEvent& event : events) book->apply(event);
    const Read right = read(events, 3);
    EXPECT_EQ(right.disagreements, 0u);
    EXPECT_EQ(book->device(3).now.sums, right.totals.sums);
    EXPECT_EQ(book->device(3).now.bytes, right.totals.bytes);
  }
}

TEST(LiveBook, UntilItsPhaseEndsABlockIsTemporary) {
  const auto book = new_book();
  Story story;
  const auto tell = [&] {
    for (; book->time_ns() < 1000 + 10 * (story.events().size() - 1);) {
      book->apply(story.events()[book->time_ns() == 0 ? 0 : (book->time_ns() - 1000) / 10 + 1]);
    }
  };
  const auto of = [&](ByteClass which) {
    tell();
    return book->device(-1).now.bytes[static_cast<std::size_t>(which)];
  };
  story.begin(testing::kForward);
  story.allocate(1, 100);
  EXPECT_EQ(of(ByteClass::kTemporary), 100);
  story.record(PLEAT_TRACE_TAG, 5, 1, 100);
  EXPECT_EQ(of(ByteClass::kSavedRaw), 100);
  story.record(PLEAT_TRACE_DROP, 5, 0, 0);
  EXPECT_EQ(of(ByteClass::kTemporary), 100);
  story.begin(testing::kOptimizer);
  EXPECT_EQ(of(ByteClass::kKept), 100);
  story.allocate(2, 10);
  story.thread = 2;
  story.begin(testing::kForward, 1);  // another thread's phase does not end it
  EXPECT_EQ(of(ByteClass::kTemporary), 10);
  story.thread = 1;
  story.begin(testing::kData, 1);
  EXPECT_EQ(of(ByteClass::kOptimizerState), 10);
  story.label(1, PLEAT_TRACE_LABEL_GRADIENT, 100);
  EXPECT_EQ(of(ByteClass::kGradients), 100);
}

// Other blocks come before the verdict, which another thread takes in another phase.
TEST(LiveBook, AQueuedEncodeIsPayloadsBeforeItsVerdict) {
  for (const bool in_chunk : {false, true}) {
    const auto book = new_book();
    Story story;
    story.begin(testing::kForward);
    story.allocate(1, 1000);
    story.record(PLEAT_TRACE_TAG, 7, 1, 1000);
    if (in_chunk) {
      story.slot(PLEAT_TRACE_PAYLOAD_ALLOCATE, 250, 250, 7, 4096);
    } else {
      story.allocate(2, 250, 7);
    }
    story.allocate(3, 60);
    story.begin(testing::kBackward);
    for (const PleatTraceEvent& event : story.events()) book->apply(event);
    const Totals before = book->device(-1).now;
    EXPECT_EQ(before.of(ByteClass::kPayloads), 250);
    EXPECT_EQ(before.of(ByteClass::kSavedRaw), 1000);
    EXPECT_EQ(before.of(ByteClass::kKept), 60);
    const std::size_t told = story.events().size();
    story.thread = 2;
    story.encode(7, in_chunk ? PLEAT_TRACE_PLACE_CHUNK : PLEAT_TRACE_PLACE_OWN_BLOCK,
                 in_chunk ? testing::kChunk : 2, 250);
    story.free(1);
    for (std::size_t i = told; i < story.events().size(); ++i) book->apply(story.events()[i]);
    EXPECT_EQ(book->device(-1).now.of(ByteClass::kPayloads), 250);
    EXPECT_EQ(book->device(-1).now.live(), 310);
    EXPECT_EQ(book->device(-1).records.find(7)->payload_bytes, 250);
  }
}

TEST(LiveBook, WhatWasThereBeforeIsUnknownUntilItIsMentioned) {
  const auto book = new_book();
  Story story;
  story.present(1000, 4096);
  story.allocate(50, 10);
  story.label(20, PLEAT_TRACE_LABEL_PARAMETER, 300);
  for (const PleatTraceEvent& event : story.events()) book->apply(event);
  const Totals& now = book->device(-1).now;
  EXPECT_EQ(now.bytes[static_cast<std::size_t>(ByteClass::kUnknown)], 700);
  EXPECT_EQ(now.bytes[static_cast<std::size_t>(ByteClass::kParameters)], 300);
  EXPECT_EQ(now.sums[PLEAT_TRACE_RESERVED], 4096);
}

TEST(LiveBook, AnotherTraceBeginsWithNothing) {
  const auto book = new_book();
  for (const PleatTraceEvent& event : events_of(3, 1, false)) book->apply(event);
  ASSERT_TRUE(book->begin());
  int devices = 0;
  book->for_each_device([&](int /*index*/, const BookDevice& /*device*/) { ++devices; });
  EXPECT_EQ(devices, 0);
  const std::vector<PleatTraceEvent> events = events_of(2, 5, true);
  for (const PleatTraceEvent& event : events) book->apply(event);
  EXPECT_EQ(book->device(-1).now.bytes, read(events).totals.bytes);
}

// ---- told once more -----------------------------------------------------------------------------

std::vector<PleatTraceEvent> replayed(LiveBook& book, std::uint64_t time_ns) {
  std::vector<PleatTraceEvent> events;
  BookReplay replay;
  EXPECT_TRUE(replay.tell(
      book, time_ns,
      [](void* into, const PleatTraceEvent& event) {
        static_cast<std::vector<PleatTraceEvent>*>(into)->push_back(event);
      },
      &events));
  return events;
}

TEST(BookReplay, AReaderWhoBeginsAnywhereKnowsInTheEndWhatOneKnowsWhoReadAll) {
  const std::vector<PleatTraceEvent> all = events_of(4, 11, true);
  const Read right = read(all);
  ASSERT_EQ(right.disagreements, 0u);
  const auto book = new_book();
  std::size_t told = 0;
  for (std::size_t cut = 1; cut < all.size(); cut += 1 + cut % 7) {
    for (; told < cut; ++told) book->apply(all[told]);
    std::vector<PleatTraceEvent> events = replayed(*book, all[cut].time_ns - 1);
    for (std::size_t i = 0; i < PLEAT_TRACE_CHANGES; ++i) {
      std::int64_t sum = 0;
      for (const PleatTraceEvent& event : events) sum += event.change[i];
      ASSERT_EQ(sum, book->device(-1).now.sums[i]) << cut;
    }
    events.insert(events.end(), all.begin() + static_cast<std::ptrdiff_t>(cut), all.end());
    const Read part = read(events);
    ASSERT_EQ(part.disagreements, 0u) << cut;
    ASSERT_EQ(part.totals.sums, right.totals.sums) << cut;
    ASSERT_EQ(part.totals.bytes, right.totals.bytes) << cut;
    ASSERT_EQ(part.groups, right.groups) << cut;
  }
}

TEST(BookReplay, WhatLivesAtThatMomentIsKnownAtOnce) {
  const std::vector<PleatTraceEvent> all = events_of(4, 12, false);
  const auto book = new_book();
  for (std::size_t told = 0; told < all.size(); ++told) {
    book->apply(all[told]);
    // Between a payload's end and its record's nobody knows whose the others are.
    const bool ends = told + 1 < all.size() && all[told + 1].kind == PLEAT_TRACE_DROP;
    if (told % 11 != 0 || ends) continue;
    const std::vector<PleatTraceEvent> so_far(all.begin(),
                                              all.begin() + static_cast<std::ptrdiff_t>(told) + 1);
    const Read right = read(so_far), part = read(replayed(*book, all[told].time_ns));
    ASSERT_EQ(part.totals.sums, right.totals.sums) << told;
    ASSERT_EQ(part.totals.bytes, right.totals.bytes) << told;
    ASSERT_EQ(part.groups, right.groups)
        << told << ": kind " << int{all[told].kind} << " of record " << all[told].record;
    ASSERT_EQ(part.records, right.records) << told;
  }
}

TEST(BookReplay, BlocksOfBeforeTheTraceStayInTheSums) {
  const auto book = new_book();
  Story story;
  story.present(1000, 4096);
  story.allocate(50, 10);
  story.label(20, PLEAT_TRACE_LABEL_PARAMETER, 300);
  story.record(PLEAT_TRACE_TAG, 7, 21, 200);
  for (const PleatTraceEvent& event : story.events()) book->apply(event);
  const Read right = read(story.events());
  const std::vector<PleatTraceEvent> events = replayed(*book, 5000);
  const Read part = read(events);
  EXPECT_EQ(events[0].kind, PLEAT_TRACE_PRESENT);
  EXPECT_EQ(events[0].change[PLEAT_TRACE_REQUESTED], 1000);
  EXPECT_EQ(part.totals.bytes, right.totals.bytes);
  EXPECT_EQ(part.disagreements, 0u);
}

// ---- what if ------------------------------------------------------------------------------------

TEST(SavedBytes, PlansAndPayloadsAreScaledByTheElementsThatMayBearNoise) {
  const auto book = new_book();
  Story story;
  const auto save = [&](std::uint64_t id, std::uint64_t bytes) {
    story.allocate(id, bytes);
    story.record(PLEAT_TRACE_TAG, id, id, bytes);
  };
  const auto decide = [&](PleatTraceKind kind, std::uint64_t id, unsigned reason,
                          std::uint64_t key) {
    PleatTraceEvent mark = testing::event(kind, 1000 + 10 * story.events().size());
    mark.record = id;
    mark.reason = static_cast<std::uint8_t>(reason);
    mark.key = key;
    story.add(mark);
  };
  const auto release = [&](std::uint64_t id) { story.record(PLEAT_TRACE_RELEASE, id, id, 4096); };
  save(1, 4096);  // planned: 1024 elements of 4 bits and a head of 100 bytes
  decide(PLEAT_TRACE_DECIDED, 1, 4, 1024);
  decide(PLEAT_TRACE_PLAN, 1, PLEAT_TRACE_PLAN_CODED, 612);
  release(1);
  save(2, 4096);  // exact
  decide(PLEAT_TRACE_DECIDED, 2, 4, 0);
  decide(PLEAT_TRACE_PLAN, 2, PLEAT_TRACE_PLAN_CODED, 3000);
  release(2);
  save(3, 4096);  // nothing is known
  release(3);
  save(4, 4096);  // in use
  save(5, 4096);  // coded at 8 bits: 1024 elements and 100 bytes
  decide(PLEAT_TRACE_DECIDED, 5, 8, 1024);
  release(5);
  story.slot(PLEAT_TRACE_PAYLOAD_ALLOCATE, 1124, 1124, 5);
  story.encode(5, PLEAT_TRACE_PLACE_CHUNK, testing::kChunk, 1124);
  story.free(5);
  save(6, 4096);
  decide(PLEAT_TRACE_PLAN, 6, PLEAT_TRACE_PLAN_RECOMPUTED, 0);
  release(6);
  for (const PleatTraceEvent& event : story.events()) book->apply(event);
  const SavedBytes saved = saved_bytes(book->device(-1));
  EXPECT_EQ(saved.now, 4096 * 4 + 1124);
  EXPECT_EQ(saved.at_4_bits, 612 + 3000 + 4096 + (1124 - 512) + 0);
  EXPECT_EQ(saved.at_8_bits, (612 + 512) + 3000 + 4096 + 1124 + 0);
  EXPECT_EQ(saved.not_known, 4096);
}

TEST(BookSize, SizesReadAsTheToolWritesThem) {
  const auto text = [](std::int64_t bytes) {
    std::array<char, 32> text;
    write_size(bytes, text);
    return std::string(text.data());
  };
  EXPECT_EQ(text(0), "0 B");
  EXPECT_EQ(text(1023), "1023 B");
  EXPECT_EQ(text(1024), "1.00 KiB");
  EXPECT_EQ(text(-1536), "-1.50 KiB");
  EXPECT_EQ(text((1 << 20) - 1), "1.00 MiB");
  EXPECT_EQ(text(5'000'000'000), "4.66 GiB");
  EXPECT_EQ(text(std::numeric_limits<std::int64_t>::max()), "8.00 EiB");
}

}  // namespace
}  // namespace pleat::trace
