// Scaled groups (compress/rotated/scaled_groups.h) by a tile of eight lanes (lane_core.h). Their
// sums are in double and in a fixed order: eight partial sums, where sum j takes the elements with
// e mod 8 = j in ascending order, are added as a tree. So lanes trade elements until lane j has all
// elements of partial sum j.
#pragma once

#include <math.h>
#include <stdint.h>

#include "compress/grouped/encode_core.h"
#include "compress/rotated/rotation_core.h"
#include "compress/rotated/scaled_math.h"

namespace pleat::compress {
namespace {

// The terms of tile.sum().
template <unsigned kCount>
struct Sums {
  double of[kCount];
};

// The sums that the gate needs: of x^2, x^4 and |x|. Signs may have been flipped.
template <class Tile>
PLEAT_HD inline Sums<3> gate_sums(Tile& turned) {
  return turned.sum([](auto& lane) {
    Sums<3> partial{};
    PLEAT_UNROLL
    for (unsigned m = 0; m < kFloatRegisters; ++m) {
      const float x = float_of(lane.words[m]);
      partial.of[0] += square(x);
      partial.of[1] += square(x) * square(x);
      partial.of[2] += fabs(static_cast<double>(x));
    }
    return partial;
  });
}
// Sum of z^2 over rotated values.
template <class Tile>
PLEAT_HD inline Sums<1> energy_sum(Tile& turned) {
  return turned.sum([](auto& lane) {
    Sums<1> partial{};
    PLEAT_UNROLL
    for (unsigned m = 0; m < kFloatRegisters; ++m) partial.of[0] += square(float_of(lane.words[m]));
    return partial;
  });
}
// Sum of |z| times its level. Converts the magnitudes, so that the compiler does not keep the
// doubles of energy_sum() in registers.
template <unsigned kBits, class Tile>
PLEAT_HD inline Sums<1> product_sum(Tile& turned, float outer) {
  return turned.sum([&](auto& lane) {
    Sums<1> partial{};
    PLEAT_UNROLL
    for (unsigned m = 0; m < kFloatRegisters; ++m) {
      const float z = float_of(lane.words[m]);
      partial.of[0] += static_cast<double>(magnitude(z)) * scaled_level<kBits>(z, outer);
    }
    return partial;
  });
}

struct ScaledPlan {
  bool scaled;
  float outer;
  float scale;
};
// rotate_tile(), taking the sums of a scaled group where the lanes hold the elements of their
// partial sums.
template <unsigned kBits, class Tile>
PLEAT_HD inline ScaledPlan rotate_and_plan(Tile& tile, uint64_t nonce, uint64_t group) {
  tile.each([&](auto& lane) { flip_lane_signs(lane, nonce, group); });
  turn_tile(tile);
  const Sums<3> gate = gate_sums(tile);
  rotate_turned(tile);
  ScaledPlan plan{};
  const Sums<1> energy = energy_sum(tile);
  plan.outer = outer_threshold(energy.of[0]);
  const Sums<1> product = product_sum<kBits>(tile, plan.outer);
  plan.scaled = find_scale(energy.of[0], product.of[0], &plan.scale) &&
                passes_gate(gate.of[0], gate.of[1], gate.of[2]);
  turn_tile(tile);
  return plan;
}

template <unsigned kBits, class Tile>
PLEAT_HD inline GroupKind encode_scaled(Tile& tile, const ScaledPlan& plan,
                                        Metadata<Float32>* metadata, uint8_t* slot) {
  tile.each([&](auto& lane) {
    PLEAT_UNROLL
    for (unsigned run = 0; run < kRuns; ++run) {
      uint32_t codes = 0;
      PLEAT_UNROLL
      for (unsigned j = 0; j < kRunLength; ++j)
        codes |= scaled_code<kBits>(lane.value(run, j), plan.outer) << (j * kBits);
      if constexpr (kBits == 1)
        slot[lane.element(run) / 8] = static_cast<uint8_t>(codes);
      else
        *reinterpret_cast<Stored16*>(slot + lane.element(run) / 4) = static_cast<uint16_t>(codes);
    }
    if (lane.index == 0) *metadata = {kScaledMark, bits_of(plan.scale)};
  });
  return GroupKind::kRegular;
}

// Writes the levels to the lanes; they are still to be rotated back.
template <unsigned kBits, class L>
PLEAT_HD inline void restore_scaled(L& lane, float scale, const uint8_t* slot) {
  const float inner = scale * (kBits == 1 ? kOneBitLevel : kInnerLevel);
  const float outer = scale * (kBits == 1 ? kOneBitLevel : kOuterLevel);
  PLEAT_UNROLL
  for (unsigned run = 0; run < kRuns; ++run) {
    uint32_t codes;
    if constexpr (kBits == 1)
      codes = slot[lane.element(run) / 8];
    else
      codes = *reinterpret_cast<const Stored16*>(slot + lane.element(run) / 4);
    PLEAT_UNROLL
    for (unsigned j = 0; j < kRunLength; ++j) {
      const uint32_t code = codes >> (j * kBits) & ((1u << kBits) - 1);
      const bool upper = code >> (kBits - 1) != 0;
      const float level = upper == ((code & 1) != 0) ? outer : inner;
      lane.words[run * kRunLength + j] = bits_of(upper ? level : -level);
    }
  }
}

}  // namespace
}  // namespace pleat::compress
