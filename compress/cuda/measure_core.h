// What an encoder on the CPU tells of a span (SpanStatistics), found on a device after the encode,
// from the elements and the groups' metadata. Sums are in double and in a fixed order: over the
// lanes of a warp as a tree, over the groups of a warp and the warps of a tile in turn, and over
// the tiles by the last block, each of whose threads takes every 256th. Written against a Block
// (span_core.h) and a Warp (lines_core.h), which also has
//
// - warp.sum(f): f(lane) is an array of doubles, Sums, as in scaled_core.h; lane + step is added to
//   lane, for steps 1, 2, 4, 8, 16.
#pragma once

#include "compress/cuda/lines_core.h"
#include "compress/cuda/scaled_core.h"

namespace pleat::compress {
namespace {

// What a tile, or all of a span, adds up to.
struct Measured {
  double energy;
  double squared_range;
  uint32_t two_valued;
  uint32_t escaped;
  uint64_t at_minimum;

  PLEAT_HD void add(const Measured& more) {
    energy += more.energy;
    squared_range += more.squared_range;
    two_valued += more.two_valued;
    escaped += more.escaped;
    at_minimum += more.at_minimum;
  }
};
static_assert(sizeof(Measured) == 32);

inline constexpr unsigned kGroupsPerWarp = 4;  // of a tile

// A job is a LineJob with the statistics in its section.
PLEAT_HD inline Measured* measured_of(const cuda::LineJob& job) {
  return static_cast<Measured*>(job.scratch);
}

// The outer levels among a lane's eight codes of a scaled group.
PLEAT_HD inline unsigned outer_codes(const uint8_t* slot, unsigned bits, unsigned lane) {
  if (bits == 1) return 8;
  const unsigned codes = *reinterpret_cast<const Stored16*>(slot + 2 * lane);
  const unsigned same = ~(codes ^ codes >> 1);  // the lower bit of each code: are its two alike?
  return count_bits(same & 0x5555u);
}

// By all lanes of a warp.
template <class T, class Warp>
PLEAT_HD inline Measured measure_group(Warp& warp, const cuda::LineJob& job, uint64_t group) {
  const uint64_t first = group * kGroupSize;
  const uint64_t left = job.elements - first;
  const unsigned elements = left < kGroupSize ? static_cast<unsigned>(left) : kGroupSize;
  const bool transformed = job.transformed != 0;
  const auto* const payload = static_cast<const uint8_t*>(job.codes);
  bool zero_kept = false, scaled = false;
  float scale = 0;
  GroupKind kind;
  if (transformed) {
    const auto words = reinterpret_cast<const Metadata<Float32>*>(payload + 64)[group];
    kind = kind_of<Float32>(words);
    scaled = job.scaled != 0 && is_scaled(words);
    scale = float_of(words.second);
  } else {
    const auto words = reinterpret_cast<const Metadata<T>*>(payload + 64)[group];
    kind = kind_of<T>(words);
    zero_kept = is_zero_kept<T>(words);
  }
  const LineRange range = warp.fold([&](unsigned lane) {
    LineRange part;
    for (unsigned e = lane; e < elements; e += 32) part.add(value_of<T>(job, first + e));
    return part;
  });
  // Of finite elements: the sum of squares, and how many; how many are zero; of a scaled group, how
  // many have an outer level.
  const Sums<4> sums = warp.sum([&](unsigned lane) {
    Sums<4> part{};
    for (unsigned e = lane; e < elements; e += 32) {
      const float value = value_of<T>(job, first + e);
      const bool finite = is_finite_value(value);
      part.of[0] += finite ? square(value) : 0.0;
      part.of[1] += finite ? 1.0 : 0.0;
      part.of[2] += value == 0.0f ? 1.0 : 0.0;
    }
    if (scaled) {
      const LineShape shape = LineShape::of<T>(job);
      const uint64_t groups = (shape.elements + (kGroupSize - 1)) / kGroupSize;
      const uint64_t codes = 64 + round_up_64(groups * sizeof(Metadata<Float32>));
      part.of[3] = outer_codes(payload + codes + group * 32 * job.bits, job.bits, lane);
    }
    return part;
  });
  Measured all{};
  const bool finite = sums.of[1] == static_cast<double>(elements);
  all.two_valued = kind == GroupKind::kTwoValued ? 1 : 0;
  all.escaped = kind == GroupKind::kEscaped ? 1 : 0;
  all.energy = finite || kind == GroupKind::kWide ? sums.of[0] : 0.0;
  if (kind != GroupKind::kRegular && kind != GroupKind::kWide) return all;
  const double largest_code = static_cast<double>((1u << job.bits) - 1);
  // As if by all codes: of a wide group, and of rotated elements.
  const double by_step = static_cast<double>(step_of<T>(job, group)) * largest_code;
  if (scaled) {
    const double outer = job.bits == 1 ? kOneBitLevel : kOuterLevel, inner = kInnerLevel;
    const double levels = sums.of[3] * outer * outer + (256.0 - sums.of[3]) * inner * inner;
    const double error = square(scale) * levels - sums.of[0];
    all.squared_range = 12.0 * largest_code * largest_code * (error > 0 ? error : 0);
  } else if (kind == GroupKind::kWide) {
    all.squared_range = sums.of[1] * (by_step * by_step);
  } else if (transformed) {
    all.squared_range = 256.0 * (by_step * by_step);
  } else {
    const double span = static_cast<double>(range.high) - static_cast<double>(range.low);
    all.squared_range = static_cast<double>(elements) * (span * span);
    all.at_minimum = zero_kept ? static_cast<uint64_t>(sums.of[2]) : 0;
  }
  return all;
}

// The groups of a tile that a warp of eight takes.
template <class T, class Warp>
PLEAT_HD inline Measured measure_part(Warp& warp, const cuda::LineJob& job, uint64_t tile,
                                      unsigned number) {
  Measured all{};
  for (unsigned n = 0; n < kGroupsPerWarp; ++n) {
    const uint64_t group = tile * cuda::kGroupsPerTile + number * kGroupsPerWarp + n;
    if (group * kGroupSize < job.elements) all.add(measure_group<T>(warp, job, group));
  }
  return all;
}

// What thread `thread` of the last block adds up.
PLEAT_HD inline Measured measured_tiles(const cuda::LineJob& job, uint64_t tiles, unsigned thread) {
  Measured all{};
  for (uint64_t tile = thread; tile < tiles; tile += cuda::kThreads)
    all.add(measured_of(job)[tile]);
  return all;
}
PLEAT_HD inline void write_statistics(const cuda::LineJob& job, const Measured& all) {
  auto* const to = static_cast<cuda::DeviceStatistics*>(job.section);
  to->elements = job.elements;
  to->groups = (job.elements + (kGroupSize - 1)) / kGroupSize;
  to->two_valued_groups = all.two_valued;
  to->escaped_groups = all.escaped;
  to->elements_at_minimum = all.at_minimum;
  to->sum_squared_range = all.squared_range;
  to->energy = all.energy;
  job.verdict->escapes = all.escaped;
}

}  // namespace
}  // namespace pleat::compress
