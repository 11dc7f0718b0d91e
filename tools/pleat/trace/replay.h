// A trace, understood: two passes over its file. Everything that is told of a trace is a visitor of
// the second pass, or a table of what lived at a moment.
//
//   Replay replay(*file);
//   replay.for_each([](const PleatTraceEvent& event, const Ledger& ledger) {
//     ledger.totals(event.device).of(ByteClass::kSavedRaw);  // after the event
//   });
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "filter.h"
#include "ledger.h"
#include "lines.h"
#include "lives.h"
#include "reader.h"
#include "what_if.h"

namespace pleat::trace {

class Replay {
 public:
  // The first pass. `file` must outlive it.
  explicit Replay(const File& file, Filter filter = {}, const Progress& progress = {})
      : file_(file), filter_(std::move(filter)), lives_(find_lives(file, filter_, progress)) {}

  // The second pass: visit(event, ledger) after each event, the marks included.
  template <class Visit>
  void for_each(Visit&& visit, const Progress& progress = {}) const {
    Ledger ledger(file_, lives_);
    file_.for_each(
        [&](const PleatTraceEvent& event) {
          if (ledger.events() >= lives_.events) return false;
          ledger.apply(event);
          visit(event, static_cast<const Ledger&>(ledger));
          return true;
        },
        kAllColumns, progress);
  }

  [[nodiscard]] const File& file() const noexcept { return file_; }
  [[nodiscard]] const Filter& filter() const noexcept { return filter_; }
  [[nodiscard]] const Lives& lives() const noexcept { return lives_; }

 private:
  const File& file_;
  Filter filter_;
  Lives lives_;
};

// ---- a moment -----------------------------------------------------------------------------------

// What a device had after an event.
struct Snapshot {
  bool taken = false;
  std::uint64_t event = 0;
  std::uint64_t time_ns = 0;
  std::uint32_t step = kNoStep;
  std::uint8_t phase = 0;
  Totals totals;
  std::int64_t resident = -1;  // of the process, as last heard; -1: never
  std::int64_t small = 0, other = 0;
  Gaps gaps;
  std::vector<LiveEntry> live;
};
[[nodiscard]] Snapshot take_snapshot(const Ledger& ledger, int device,
                                     const PleatTraceEvent& event);

// ---- a curve ------------------------------------------------------------------------------------

// Totals over time, in at most so many points: of each piece of time the moment at which most was
// live, and the highest of each class.
class Curve {
 public:
  struct Point {
    std::uint64_t time_ns = 0;  // of the moment
    Totals totals;
    std::array<std::int64_t, kByteClasses> highest{};
    std::int64_t highest_reserved = 0;
    std::int64_t highest_would_be = 0;  // live bytes of a WhatIf
  };

  Curve(int device, const Lives& lives, std::size_t points);
  // `what_if`: has taken the event.
  void take(const PleatTraceEvent& event, const Ledger& ledger, const WhatIf* what_if = nullptr);
  [[nodiscard]] const std::vector<Point>& points() const noexcept { return points_; }

 private:
  void begin(std::uint64_t time_ns, const Totals& totals);

  int device_;
  std::size_t most_;
  std::uint64_t start_ns_;
  std::uint64_t width_ns_;
  std::uint64_t end_ns_ = 0;  // of the last point's piece of time
  Totals last_;               // after the event before
  std::int64_t last_would_be_ = 0;
  std::vector<Point> points_;
};

// ---- tables -------------------------------------------------------------------------------------

// The filter lets the entry through: its size, class, step of birth and operator.
[[nodiscard]] bool passes(const LiveEntry& entry, const Replay& replay);

// What a filter says of something of so many bytes, made by an operator in a step (an index): size,
// name and step. Its times, class and number of events are no matter here.
[[nodiscard]] bool passes(const Filter& filter, const Lives& lives, const Definitions& definitions,
                          std::int64_t bytes, std::uint32_t op, std::uint32_t step);

// Entries of one place and class together.
struct Group {
  std::uint32_t op = 0;
  std::uint32_t frame = 0;  // the line; 0 in a table by operator
  ByteClass of = ByteClass::kUnknown;
  std::int64_t bytes = 0;
  std::int64_t would_be = 0;  // bytes with other payloads
  std::uint64_t count = 0;
  std::uint32_t first_step = kNoStep, last_step = kNoStep;  // of birth
  std::uint64_t oldest_ns = 0;                              // of birth
};
enum class GroupBy : std::uint8_t { kLine, kOperator };

// The largest first. Entries that the filter leaves out are in no group.
[[nodiscard]] std::vector<Group> group(const std::vector<LiveEntry>& live, GroupBy by,
                                       const Replay& replay, Lines& lines);

// ---- growth -------------------------------------------------------------------------------------

// What a program gathers from step to step: places whose blocks are still there at the end of the
// last step, although they were born long before.

// Steps are counted from 0. The first two fill caches and optimizers, and the last two have had no
// time to give back.
inline constexpr std::size_t kFirstGrowthStep = 2;
inline constexpr std::size_t kLeastSteps = 5;

struct GrowthLine {
  std::uint32_t op = 0;
  std::uint32_t frame = 0;
  std::int64_t bytes = 0;   // that are left of all steps that were looked at
  std::uint64_t count = 0;  // of blocks
  std::uint32_t steps = 0;  // in how many of these they were born
  double bytes_per_step = 0;
};

struct Growth {
  bool known = false;             // else there were too few steps
  std::size_t steps = 0;          // looked at
  double bytes_per_step = 0;      // of all places that are listed
  std::vector<GrowthLine> lines;  // that grew in at least half of the steps; the fastest first
};

// `live`: at Lives::end_event.
[[nodiscard]] Growth find_growth(const std::vector<LiveEntry>& live, const Lives& lives,
                                 Lines& lines);

}  // namespace pleat::trace
