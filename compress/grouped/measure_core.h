// Finds the bytes of a group's parts, by a tile of eight lanes (lane_core.h), before the group is
// coded: compress/exponents/raiser.h for the device. It is a launch of its own, since it depends on
// neither width nor transform. raise_core.h multiplies by what it has found.
#pragma once

#include <stdint.h>

#include "compress/exponents/part_core.h"
#include "compress/grouped/group_math.h"
#include "compress/grouped/pattern_core.h"

namespace pleat::compress {
namespace {

// The tile's words beside those of parts.
inline constexpr unsigned kLargestWord = kMostParts;     // magnitude of the group
inline constexpr unsigned kWidestWord = kMostParts + 1;  // with the table's powers of two

template <class Tile>
PLEAT_HD inline void clear_words(Tile& tile) {
  uint32_t* const words = tile.words();
  tile.each([&](auto& lane) {
    const uint32_t zeros[4] = {0, 0, 0, 0};
    store16(words + 4 * lane.index, zeros);
    if (lane.index == 0) words[kLargestWord] = words[kWidestWord] = 0;
  });
}

// visit(part) for the lane's share of parts.
template <class L, class Visit>
PLEAT_HD inline void each_part_of_lane(const L& lane, unsigned count, Visit visit) {
  PLEAT_ROLL
  for (unsigned part = lane.index; part < count; part += kTileLanes) visit(part);
}

// visit(run, part, entries) for a lane's runs, of a group whose parts are whole runs.
template <bool kTable, class L, class Visit>
PLEAT_HD inline void each_run(const L& lane, const GroupParts& parts, Visit visit) {
  PLEAT_UNROLL
  for (unsigned run = 0; run < kRuns; ++run) {
    const unsigned place = run * kTileLanes + lane.index, part = parts.of_run(place);
    visit(run, part, kTable ? parts.entries_of_run(place, part) : RunEntries{});
  }
}

template <class T>
PLEAT_HD inline uint32_t exponent_of_size(const uint32_t* words, uint32_t size) {
  const uint32_t largest = words[kLargestWord], widest = words[kWidestWord];
  const uint32_t up =
      common_exponent(largest, widest, bits_of(T::kLargest)) + ((widest - size) >> 23);
  return up < kMostOfPart ? up : uint32_t{kMostOfPart};
}

// For whole groups whose parts are whole runs, as is the table if there is one; all tiles of a warp
// together. False if the group needs a look at its elements: it may have one or two patterns,
// values that are not finite, or a part of zeros.
template <class T, bool kTable, class Tile>
PLEAT_HD inline bool measure_runs(Tile& tile, const GroupParts& parts) {
  uint32_t* const words = tile.words();
  // Three patterns in one lane: nearly every group has them.
  const bool other = tile.any([](auto& lane) {
    const uint32_t first = lane.pattern(0, 0), second = lane.pattern(0, 1),
                   third = lane.pattern(0, 2);
    return first != second && second != third && first != third;
  });
  clear_words(tile);
  tile.sync();
  tile.each([&](auto& lane) {
    uint32_t largest = 0, widest = 0;
    each_run<kTable>(lane, parts, [&](unsigned run, unsigned part, const RunEntries& entries) {
      uint32_t size = lane.magnitude_of_run(run);
      largest = size > largest ? size : largest;
      if (kTable)
        size = bits_of(lane.largest_of_run(run, [&](unsigned j) { return entries.at(j); }));
      tile.raise(words + part, size);
      widest = size > widest ? size : widest;
    });
    tile.raise(words + kLargestWord, largest);
    tile.raise(words + kWidestWord, widest);
  });
  tile.sync();
  // Without a table bytes are 0 where nothing moves.
  const bool moves = !kTable || tile.any([&](auto& lane) {
    bool found = false;
    each_run<kTable>(lane, parts, [&](unsigned, unsigned part, const RunEntries& entries) {
      const auto exponent = static_cast<int>(exponent_of_size<T>(words, words[part]));
      PLEAT_UNROLL
      for (unsigned j = 0; j < kRunLength; ++j) found |= exponent + entries.at(j) > 0;
    });
    return found;
  });
  const bool plain = !tile.any([&](auto& lane) {
    bool found = words[kLargestWord] > kLargestFinite;
    each_part_of_lane(lane, parts.count, [&](unsigned part) { found |= words[part] == 0; });
    return found;
  });
  const bool fits = other && plain;
  tile.each([&](auto& lane) {
    each_part_of_lane(lane, parts.count, [&](unsigned part) {
      if (fits)
        parts.bytes[part] =
            static_cast<int8_t>(moves ? exponent_of_size<T>(words, words[part]) : 0);
    });
  });
  tile.sync();
  return fits;
}

// Any group.
template <class T, class Tile>
PLEAT_HD inline void measure_elements(Tile& tile, const typename T::Word* source, unsigned elements,
                                      const GroupParts& parts) {
  uint32_t* const words = tile.words();
  clear_words(tile);
  tile.sync_alone();
  // Of a part: its size, and in the lowest bit whether some element is not zero.
  tile.each([&](auto& lane) {
    each_in_parts(lane.index, parts, elements, [&](unsigned, unsigned e, unsigned part, int entry) {
      const float value = T::to_float(source[e]);
      const float finite = is_finite_value(value) ? magnitude(value) : 0.0f;
      const float size = finite * power_of_two(entry);
      tile.raise(words + kLargestWord, bits_of(finite));
      tile.raise(words + kWidestWord, bits_of(size));
      tile.raise(words + part, bits_of(size) << 1 | (value == 0.0f ? 0u : 1u));
    });
  });
  tile.sync_alone();
  const auto exponent_of = [&](unsigned part) {
    const uint32_t size = words[part] >> 1;
    return words[part] == 0 ? int{kZeroPart}
           : size == 0      ? 0
                            : static_cast<int>(exponent_of_size<T>(words, size));
  };
  const bool moves =
      find_patterns(tile).kind == GroupKind::kRegular && tile.any_alone([&](auto& lane) {
        bool found = false;
        each_in_parts(lane.index, parts, elements,
                      [&](unsigned, unsigned, unsigned part, int entry) {
                        const int exponent = exponent_of(part);
                        found |= exponent == kZeroPart || exponent + entry > 0;
                      });
        return found;
      });
  tile.each([&](auto& lane) {
    each_part_of_lane(lane, parts.count, [&](unsigned part) {
      parts.bytes[part] = static_cast<int8_t>(moves ? exponent_of(part) : 0);
    });
  });
  tile.sync_alone();
}

// Writes the bytes of a group's parts; all tiles of a warp together.
template <class T, class Tile>
PLEAT_HD inline void measure_group(Tile& tile, const typename T::Word* source, unsigned elements,
                                   bool aligned, const GroupParts& parts) {
  const bool table = parts.rows->channels != 0, whole = elements == kGroupSize;
  if (tile.all_of_warp(parts.count == 1 && !table)) return clear_parts(tile, parts);
  tile.each([&](auto& lane) { load_lane<T>(source, elements, aligned, lane); });
  if (tile.all_of_warp(parts.by_runs && whole)) {
    if (table ? measure_runs<T, true>(tile, parts) : measure_runs<T, false>(tile, parts)) return;
  }
  measure_elements<T>(tile, source, elements, parts);
}

}  // namespace
}  // namespace pleat::compress
