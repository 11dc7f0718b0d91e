// Divides the elements of a restored group by their powers of two, by a tile of eight lanes: the
// other half of raise_core.h. A payload may hold any bytes.
#pragma once

#include <stdint.h>

#include "compress/exponents/part_core.h"
#include "compress/grouped/group_math.h"

namespace pleat::compress {
namespace {

// Whether lower_runs() can divide by a lane's exponents, of a group whose parts are whole
// runs.
template <class T>
PLEAT_HD PLEAT_APART bool can_lower_lane(unsigned lane, GroupParts parts, unsigned elements) {
  const bool table = parts.rows->channels != 0;
  bool can = true;
  PLEAT_UNROLL
  for (unsigned run = 0; run < kRuns; ++run) {
    const unsigned place = run * kTileLanes + lane;
    if (place * kRunLength >= elements) continue;
    const unsigned part = parts.of_run(place);
    const int exponent = parts.bytes[part];
    if (table && exponent == kAsItIs) continue;
    can &= static_cast<uint32_t>(exponent) <= Lane<T>::kFarthest &&
           !(table && is_too_far<Lane<T>>(parts.entries_of_run(place, part)));
  }
  return can;
}
// Of all lanes; all tiles of a warp together.
template <class T, class Tile>
PLEAT_HD inline bool can_lower_runs(Tile& tile, const GroupParts& parts, unsigned elements) {
  return !tile.any([&](auto& lane) { return !can_lower_lane<T>(lane.index, parts, elements); });
}
// Finite elements stay finite.
template <class T>
PLEAT_HD PLEAT_APART Lane<T> lower_runs(Lane<T> lane, GroupParts parts, unsigned elements) {
  const bool table = parts.rows->channels != 0;
  PLEAT_UNROLL
  for (unsigned run = 0; run < kRuns; ++run) {
    const unsigned place = run * kTileLanes + lane.index;
    if (place * kRunLength >= elements) continue;
    const unsigned part = parts.of_run(place);
    const int exponent = parts.bytes[part];
    if (!table) {
      lane.multiply_run(run, lane.factor(-exponent));
    } else if (exponent != kAsItIs) {
      const RunEntries entries = parts.entries_of_run(place, part);
      lane.multiply_each(run, [&](unsigned j) { return -exponent - entries.at(j); });
      lane.bound_run(run);
    }
  }
  return lane;
}

// For any group but an escaped one, in its place in the target; the tile has stored it there.
template <class T>
PLEAT_HD PLEAT_APART void lower_lane(unsigned lane, GroupParts parts, unsigned elements,
                                     typename T::Word* target) {
  const bool table = parts.rows->channels != 0;
  each_in_parts(lane, parts, elements, [&](unsigned, unsigned e, unsigned part, int entry) {
    const int exponent = parts.bytes[part];
    if (exponent == kZeroPart)
      target[e] = 0;
    else if (exponent != kAsItIs && (table || exponent != 0))
      target[e] = lowered<T>(target[e], exponent + entry);
  });
}
template <class T, class Tile>
PLEAT_HD inline void lower_elements(Tile& tile, const GroupParts& parts, unsigned elements,
                                    typename T::Word* target) {
  tile.sync_alone();
  tile.each([&](auto& lane) { lower_lane<T>(lane.index, parts, elements, target); });
}

}  // namespace
}  // namespace pleat::compress
