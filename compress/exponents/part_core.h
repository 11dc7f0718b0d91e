// Where the parts of a group lie, for device code: the rows of a span (exponents.h) as tiles of
// lanes meet them, without a division for each group. Anonymous, as element_math.h is.
//
// A group has up to 32 parts, as rows have at least kFewestOfPart elements. So at most one part
// begins inside a run of eight elements.
#pragma once

#include <stdint.h>

#include "compress/device/jobs.h"
#include "compress/device/lane_core.h"
#include "compress/exponents/exponents.h"

namespace pleat::compress {
namespace {

inline constexpr unsigned kMostParts = kGroupSize / kFewestOfPart;
inline constexpr uint32_t kLongestRow = 1u << 30;

// Whether device code takes them.
PLEAT_HD constexpr bool device_takes(const Exponents& exponents) {
  return exponents.row >= kFewestOfPart && exponents.row <= kLongestRow;
}

// Where a group lies in the rows; or how far another is from it.
struct PartCursor {
  uint32_t into;    // elements of its first row that lie before it
  uint32_t phase;   // groups since a row began with a group
  uint64_t before;  // parts of the groups before
};

// The rows of a job's span.
struct Rows {
  uint32_t row;
  uint32_t period;     // groups after which rows begin in the same places
  uint32_t starts[8];  // set_starts()
  uint32_t channels, inner;
  const int8_t* table;
  int8_t* bytes;                           // of all parts
  PartCursor step;                         // from a group of a tile to that of the next one
  PartCursor place[cuda::kGroupsPerTile];  // of the groups of the block's tile

  PLEAT_HD void set(const Exponents& exponents, const int8_t* channel_table, int8_t* parts,
                    uint64_t groups_apart) {
    row = exponents.row;
    const uint32_t power = row & (~row + 1);
    period = row / (power < kGroupSize ? power : kGroupSize);
    channels = exponents.channels;
    inner = exponents.inner;
    table = channel_table;
    bytes = parts;
    step = at(groups_apart);
  }
  // Bit n: the first run of eight from which on, where a row begins at element `first` (below 8),
  // an element is of a row that begins there or later.
  PLEAT_HD void set_starts(unsigned first) {
    uint32_t bits = 0;
    for (uint64_t begin = first; (begin + 7) / 8 < 32; begin += row) bits |= 1u << (begin + 7) / 8;
    starts[first] = bits;
  }

  PLEAT_HD PartCursor at(uint64_t group) const {
    const uint64_t first = group * kGroupSize;
    return {static_cast<uint32_t>(first % row), static_cast<uint32_t>(group % period),
            group + first / row - group / period};
  }
  PLEAT_HD void advance(PartCursor* cursor) const {
    cursor->into += step.into;
    cursor->phase += step.phase;
    cursor->before += step.before;
    if (cursor->into >= row) cursor->into -= row, ++cursor->before;
    if (cursor->phase >= period) cursor->phase -= period, --cursor->before;
  }
  // Whether parts consist of whole runs of eight, and so does a table, if there is one.
  PLEAT_HD bool by_runs() const {
    return row % kRunLength == 0 && (channels == 0 || (inner == 1 && channels == row));
  }
};

// The entries of the channels of a run of eight.
struct RunEntries {
  uint32_t words[2];

  PLEAT_HD int at(unsigned j) const {
    return static_cast<int8_t>(words[j / 4] >> (8 * (j % 4)) & 0xFFu);
  }
};

// The parts of a group.
struct GroupParts {
  const Rows* rows;
  bool by_runs;  // Rows::by_runs()
  uint64_t group;
  uint32_t second;  // where the second part begins, beyond the group if there is none
  uint32_t starts;  // bit n: a part begins in the eight elements up to the first of run n
  uint32_t count;   // of parts
  int8_t* bytes;

  PLEAT_HD unsigned of_run(unsigned run) const {
    return count_bits(starts & 0xFFFF'FFFFu >> (31 - run));
  }
  // With a table by runs: of a run of part `part`.
  PLEAT_HD RunEntries entries_of_run(unsigned run, unsigned part) const {
    const uint32_t row = rows->row, begin = second + part * row - row;  // may wrap
    const uint64_t eight =
        *reinterpret_cast<const Stored64*>(rows->table + (run * kRunLength - begin));
    return {{static_cast<uint32_t>(eight), static_cast<uint32_t>(eight >> 32)}};
  }
  PLEAT_HD unsigned of_element(unsigned e) const {
    return e < second ? 0 : 1 + (e - second) / rows->row;
  }
};
PLEAT_HD inline GroupParts parts_of(const Rows& rows, uint64_t group, unsigned elements,
                                    const PartCursor& cursor) {
  const uint32_t second = rows.row - cursor.into, run = second / kRunLength;
  const uint32_t starts = run < 32 ? rows.starts[second % kRunLength] << run : 0;
  GroupParts parts{&rows,
                   rows.by_runs(),
                   group,
                   second,
                   starts,
                   count_bits(starts) + 1,
                   rows.bytes + cursor.before};
  if (elements == 0)
    parts.count = 0;
  else if (!parts.by_runs || elements != kGroupSize)
    parts.count = parts.of_element(elements - 1) + 1;
  return parts;
}

// A group's parts, found again wherever they are needed: groups without pay no registers for them.
struct PartsOfGroup {
  const Rows* rows;  // null: it has no exponents
  unsigned place;    // Rows::place
  uint64_t group;
  unsigned elements;

  PLEAT_HD bool any() const { return rows != nullptr; }
  PLEAT_HD GroupParts parts() const { return parts_of(*rows, group, elements, rows->place[place]); }
};
PLEAT_HD inline PartsOfGroup no_parts() { return {nullptr, 0, 0, 0}; }

// Of groups that are coded as they are.
template <class Tile>
PLEAT_HD inline void clear_parts(Tile& tile, const GroupParts& parts) {
  tile.each([&](auto& lane) {
    PLEAT_ROLL
    for (unsigned part = lane.index; part < parts.count; part += kTileLanes) parts.bytes[part] = 0;
  });
}

// Goes through channels of the table, element by element.
class ChannelWalk {
 public:
  PLEAT_HD ChannelWalk(const Rows& rows, uint64_t element) : rows_(rows) {
    if (rows.channels == 0) return;
    channel_ = static_cast<uint32_t>(element / rows.inner % rows.channels);
    left_ = rows.inner - static_cast<uint32_t>(element % rows.inner);
  }
  PLEAT_HD int entry() const { return rows_.channels == 0 ? 0 : rows_.table[channel_]; }
  PLEAT_HD void advance() {
    if (--left_ != 0) return;
    left_ = rows_.inner;
    channel_ = channel_ + 1 < rows_.channels ? channel_ + 1 : 0;
  }

 private:
  const Rows& rows_;
  uint32_t channel_ = 0, left_ = 1;
};

// visit(n, e, part, entry) for the elements of a lane, in order: the n-th is element e.
template <class Visit>
PLEAT_HD inline void each_in_parts(unsigned lane, const GroupParts& parts, unsigned elements,
                                   Visit visit) {
  const uint32_t row = parts.rows->row;
  PLEAT_ROLL
  for (unsigned run = 0; run < kRuns; ++run) {
    const unsigned first = run * 64 + lane * kRunLength;
    if (first >= elements) return;
    unsigned part = parts.of_element(first);
    uint32_t next = parts.second + part * row;
    ChannelWalk channel(*parts.rows, parts.group * kGroupSize + first);
    PLEAT_ROLL
    for (unsigned j = 0; j < kRunLength && first + j < elements; ++j) {
      if (first + j == next) ++part, next += row;
      visit(run * kRunLength + j, first + j, part, channel.entry());
      channel.advance();
    }
  }
}

// An element times, or divided by, a power of two. NaN only loses what signals.
template <class T>
PLEAT_HD inline typename T::Word moved(typename T::Word word, int exponent) {
  const float value = T::to_float(word);
  if (value != value) return static_cast<typename T::Word>(word | (T::kNan ^ T::kInfinity));
  return T::from_float(value * power_of_two(exponent));
}

// How the elements of a group are multiplied or divided by their powers of two.
enum class Moves { kNone, kRuns, kElements };

// All tiles of a warp together. The elements that are moved are those of lanes L. Some byte may be
// damaged.
template <class L, class Tile>
PLEAT_HD inline Moves find_moves(Tile& tile, const GroupParts& parts) {
  const auto any_above = [&](unsigned bound) {
    return tile.any([&](auto& lane) {
      bool found = false;
      PLEAT_ROLL
      for (unsigned part = lane.index; part < parts.count; part += kTileLanes)
        found |= static_cast<uint8_t>(parts.bytes[part]) > bound;  // kZeroPart is above all
      return found;
    });
  };
  const bool any = any_above(0);
  if (tile.all_of_warp(!any)) return Moves::kNone;
  const bool runs = !any_above(L::kFarthest) && parts.by_runs;
  return !any ? Moves::kNone : runs ? Moves::kRuns : Moves::kElements;
}
// Multiplies a lane's runs, kUp, or divides them.
template <bool kUp, class L>
PLEAT_HD inline void move_runs(L& lane, const GroupParts& parts, unsigned elements) {
  const bool table = parts.rows->channels != 0;
  PLEAT_UNROLL
  for (unsigned run = 0; run < kRuns; ++run) {
    const unsigned place = run * kTileLanes + lane.index;
    if (place * kRunLength >= elements) continue;
    const unsigned part = parts.of_run(place);
    const int exponent = parts.bytes[part];
    if (!table) {
      lane.multiply_run(run, lane.factor(kUp ? exponent : -exponent));
    } else {
      const RunEntries entries = parts.entries_of_run(place, part);
      lane.multiply_each(run, [&](unsigned j) {
        const int own = exponent_of_element(exponent, entries.at(j));
        return kUp ? own : -own;
      });
    }
  }
}

}  // namespace
}  // namespace pleat::compress
