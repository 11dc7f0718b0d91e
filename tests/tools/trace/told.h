// A story, replayed: what the host had after each event. Verifies that classes and what lives add
// up to what is requested.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/tools/trace/story.h"
#include "tools/pleat/trace/replay.h"

namespace pleat::trace::testing {

struct Told {
  std::unique_ptr<File> file;
  std::unique_ptr<Replay> replay;
  std::vector<Totals> totals;
  std::vector<std::vector<LiveEntry>> live;
  std::uint64_t disagreements = 0;

  explicit Told(Story& story) : file(story.open()), replay(std::make_unique<Replay>(*file)) {
    replay->for_each([&](const PleatTraceEvent& /*event*/, const Ledger& ledger) {
      totals.push_back(ledger.totals(-1));
      live.push_back(ledger.live(-1));
      disagreements = ledger.disagreements();
      std::int64_t classes = 0;
      std::int64_t entries = 0;
      for (const std::int64_t bytes : totals.back().bytes) classes += bytes;
      for (const LiveEntry& entry : live.back()) entries += entry.bytes;
      EXPECT_EQ(classes, totals.back().live()) << totals.size() - 1;
      EXPECT_EQ(entries, totals.back().live()) << totals.size() - 1;
    });
    EXPECT_EQ(totals.size(), story.events().size());
  }
  [[nodiscard]] std::int64_t at(std::size_t event, ByteClass of) const {
    return totals[event].of(of);
  }
  // All that lives after the event is of this class.
  [[nodiscard]] bool all(std::size_t event, ByteClass of) const {
    return totals[event].live() > 0 && at(event, of) == totals[event].live();
  }
};

}  // namespace pleat::trace::testing
