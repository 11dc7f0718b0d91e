// Looks for groups of one or two bit patterns, by a tile of eight lanes (lane_core.h).
#pragma once

#include <stdint.h>

#include "compress/device/lane_core.h"
#include "compress/grouped/group_math.h"

namespace pleat::compress {
namespace {

// The bit patterns of a group that has one or two; kRegular if it has more.
struct Patterns {
  GroupKind kind;
  uint32_t first;
  uint32_t second;
};
template <class Tile>
PLEAT_HD inline Patterns find_patterns(Tile& tile) {
  const uint32_t first =
      tile.pick_alone([](auto&) { return true; }, [](auto& lane) { return lane.pattern(0, 0); });
  const auto differs = [&](auto& lane) {
    bool found = false;
    for (unsigned run = 0; run < kRuns; ++run)
      for (unsigned j = 0; j < kRunLength; ++j) found |= lane.pattern(run, j) != first;
    return found;
  };
  if (!tile.any_alone(differs)) return {GroupKind::kConstant, first, first};
  const uint32_t second = tile.pick_alone(differs, [&](auto& lane) {
    uint32_t other = first;
    for (unsigned run = 0; run < kRuns; ++run)
      for (unsigned j = 0; j < kRunLength; ++j)
        if (lane.pattern(run, j) != first) other = lane.pattern(run, j);
    return other;
  });
  const bool third = tile.any_alone([&](auto& lane) {
    bool found = false;
    for (unsigned run = 0; run < kRuns; ++run)
      for (unsigned j = 0; j < kRunLength; ++j)
        found |= lane.pattern(run, j) != first && lane.pattern(run, j) != second;
    return found;
  });
  return {third ? GroupKind::kRegular : GroupKind::kTwoValued, first, second};
}

}  // namespace
}  // namespace pleat::compress
