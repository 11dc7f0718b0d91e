// Saved tensors as runs at bits:off tell of them, and what there would be after each event of a
// story. Verifies that entries add up to what would live.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/tools/trace/story.h"
#include "tools/pleat/trace/replay.h"
#include "tools/pleat/trace/what_if.h"

namespace pleat::trace::testing {

// 1024 floats of 4 bytes. At 8 bits 1024 bytes are codes, and 96 stand beside them.
inline constexpr std::uint64_t kRaw = 4096, kElements = 1024, kAt8 = 1120, kAt4 = 608, kAt2 = 352;

inline std::size_t decide(Story& story, std::uint64_t record, std::uint8_t bits,
                          std::uint64_t elements, std::uint64_t bytes = kRaw,
                          std::uint64_t least_bits = 0) {
  PleatTraceEvent one = event(PLEAT_TRACE_DECIDED, 1000 + 10 * story.events().size());
  one.device = story.device;
  one.record = record;
  one.bytes = bytes;
  one.reason = bits;
  one.stream = least_bits;
  one.key = elements;
  return story.add(one);
}

inline std::size_t plan(Story& story, std::uint64_t record, std::uint8_t how, std::uint64_t payload,
                        std::uint64_t bytes = kRaw) {
  PleatTraceEvent one = event(PLEAT_TRACE_PLAN, 1000 + 10 * story.events().size());
  one.device = story.device;
  one.record = record;
  one.bytes = bytes;
  one.reason = how;
  one.key = payload;
  return story.add(one);
}

inline std::size_t save(Story& story, std::uint64_t record, std::uint64_t block) {
  story.allocate(block, kRaw);
  return story.record(PLEAT_TRACE_TAG, record, block, kRaw);
}

// Of a run at bits:off. Returns the number of the HOLD.
inline std::size_t hold(Story& story, std::uint64_t record, std::uint64_t block,
                        std::uint8_t bits = 8, std::uint64_t elements = kElements,
                        std::uint64_t payload = kAt8, std::uint8_t how = PLEAT_TRACE_PLAN_CODED) {
  story.record(PLEAT_TRACE_RELEASE, record, block, kRaw);
  decide(story, record, bits, elements);
  plan(story, record, how, payload);
  return story.record(PLEAT_TRACE_HOLD, record, block, kRaw);
}

// What there would be after each event.
struct Asked {
  std::unique_ptr<File> file;
  std::unique_ptr<Replay> replay;
  std::unique_ptr<WhatIf> what_if;
  std::vector<std::int64_t> live, highest, entries;
  std::vector<LiveEntry> last;

  Asked(Story story, double bits, Filter filter = {}, int device = -1)
      : file(story.open()), replay(std::make_unique<Replay>(*file, filter)) {
    what_if = std::make_unique<WhatIf>(device, bits, replay->filter());
    replay->for_each([&](const PleatTraceEvent& event, const Ledger& ledger) {
      what_if->take(event, ledger);
      live.push_back(what_if->live());
      highest.push_back(what_if->highest());
      last = ledger.live(device);
      const std::int64_t told = what_if->tell(last, ledger);
      std::int64_t sum = 0;
      for (const LiveEntry& entry : last) sum += entry.would_be;
      EXPECT_EQ(sum, told) << live.size() - 1;
      if (event.kind < PLEAT_TRACE_PHASE) {
        EXPECT_EQ(told, what_if->live()) << live.size() - 1;
      }
    });
    std::int64_t classes = 0;
    for (const std::int64_t bytes : what_if->classes()) classes += bytes;
    EXPECT_EQ(classes, what_if->peak().bytes);
  }
  [[nodiscard]] std::int64_t peak_of(ByteClass of) const {
    return what_if->classes()[static_cast<std::size_t>(of)];
  }
};

}  // namespace pleat::trace::testing
