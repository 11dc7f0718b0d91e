// What a program gathers from step to step: places whose blocks are still there at the end of the
// last step, although they were born long before.
#pragma once

#include <cstdint>
#include <vector>

#include "lines.h"
#include "lives.h"
#include "replay.h"

namespace pleat::trace {

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
