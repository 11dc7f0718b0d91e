// The transform of compress/rotated/rotation.h by a tile of eight lanes (lane_core.h). Sums are
// taken in the order of rotation.h, so that the bytes are the same.
//
// The transform pairs elements whose numbers differ in one of eight bits. Five bits number a lane's
// registers, three number lanes. For its turn, a bit that has to leave the lanes anyway is swapped
// into the registers; for the others, lanes trade elements. Registers and lanes by element bits:
//
//   natural order       registers 1 2 4 8 16: bits 0 1 2 6 7   lanes 1 2 4: bits 3 4 5
//   coefficients' order                       bits 5 6 7 3 4                bits 0 1 2
#pragma once

#include <stdint.h>

#include "compress/device/lane_core.h"

namespace pleat::compress {
namespace {

inline constexpr unsigned kFloatRegisters = Lane<Float32>::kRegisters;

// For elements in natural order.
template <class L>
PLEAT_HD inline void flip_lane_signs(L& lane, uint64_t nonce, uint64_t group) {
  PLEAT_UNROLL
  for (unsigned call = 0; call < 2; ++call) {
    const PhiloxWords words = philox(nonce, group, kSignCall + call);
    PLEAT_UNROLL
    for (unsigned half = 0; half < 2; ++half) {
      const unsigned run = call * 2 + half;
      const uint32_t word = lane.index < 4 ? words.word[half * 2] : words.word[half * 2 + 1];
      const uint32_t byte = word >> (lane.index % 4 * 8);
      PLEAT_UNROLL
      for (unsigned j = 0; j < kRunLength; ++j)
        lane.words[run * kRunLength + j] ^= byte << (31 - j) & 0x8000'0000u;
    }
  }
}

// Sums and differences of registers whose numbers differ in bit kBit.
template <unsigned kBit, class Tile>
PLEAT_HD inline void pair_registers(Tile& tile) {
  tile.each([](auto& lane) {
    PLEAT_UNROLL
    for (unsigned r = 0; r < kFloatRegisters; ++r) {
      if ((r & kBit) != 0) continue;
      const float a = float_of(lane.words[r]), b = float_of(lane.words[r + kBit]);
      lane.words[r] = bits_of(a + b);
      lane.words[r + kBit] = bits_of(a - b);
    }
  });
}
// Sums and differences of lanes whose numbers differ in bit kBit. The products are exact.
template <unsigned kBit, class Tile>
PLEAT_HD inline void pair_lanes(Tile& tile) {
  PLEAT_UNROLL
  for (unsigned r = 0; r < kFloatRegisters; ++r)
    tile.across(
        kBit, [&](auto& lane) { return lane.words[r]; },
        [&](auto& lane, uint32_t other) {
          const float sign = (lane.index & kBit) == 0 ? 1.0f : -1.0f;
          lane.words[r] = bits_of(fused(float_of(lane.words[r]), sign, float_of(other)));
        });
}
// Exchanges a bit that numbers lanes with a bit that numbers registers.
template <unsigned kLaneBit, unsigned kRegisterBit, class Tile>
PLEAT_HD inline void swap_bits(Tile& tile) {
  PLEAT_UNROLL
  for (unsigned r = 0; r < kFloatRegisters; ++r) {
    if ((r & kRegisterBit) != 0) continue;
    tile.across(
        kLaneBit,
        [&](auto& lane) {
          return (lane.index & kLaneBit) == 0 ? lane.words[r + kRegisterBit] : lane.words[r];
        },
        [&](auto& lane, uint32_t other) {
          if ((lane.index & kLaneBit) == 0)
            lane.words[r + kRegisterBit] = other;
          else
            lane.words[r] = other;
        });
  }
}
// Register r gets the scaled value of the register whose bits are bits kFrom0, kFrom1, ... of r.
template <unsigned kFrom0, unsigned kFrom1, unsigned kFrom2, unsigned kFrom3, unsigned kFrom4,
          class L>
PLEAT_HD inline void rename_registers(L& lane, float scale) {
  uint32_t old[kFloatRegisters];
  PLEAT_UNROLL
  for (unsigned r = 0; r < kFloatRegisters; ++r) old[r] = lane.words[r];
  PLEAT_UNROLL
  for (unsigned r = 0; r < kFloatRegisters; ++r) {
    const unsigned from = (r >> kFrom0 & 1) | (r >> kFrom1 & 1) << 1 | (r >> kFrom2 & 1) << 2 |
                          (r >> kFrom3 & 1) << 3 | (r >> kFrom4 & 1) << 4;
    lane.words[r] = bits_of(float_of(old[from]) * scale);
  }
}

// All tiles of a warp together.
template <class Tile>
PLEAT_HD inline void rotate_tile(Tile& tile, uint64_t nonce, uint64_t group) {
  tile.each([&](auto& lane) { flip_lane_signs(lane, nonce, group); });
  pair_registers<16>(tile);  // bit 7
  pair_registers<8>(tile);   // 6
  swap_bits<4, 16>(tile);    // 5 for 7
  pair_registers<16>(tile);  // 5
  pair_registers<1>(tile);   // 0
  pair_registers<2>(tile);   // 1
  pair_registers<4>(tile);   // 2
  swap_bits<1, 1>(tile);     // 3 for 0
  pair_registers<1>(tile);   // 3
  swap_bits<2, 2>(tile);     // 4 for 1
  pair_registers<2>(tile);   // 4
  swap_bits<4, 4>(tile);     // 7 for 2; registers are bits 3 4 7 6 5
  tile.each([](auto& lane) { rename_registers<3, 4, 2, 1, 0>(lane, 0.0625f); });
}
// Rows become columns, and back: register m of lane j is element 8 m + j.
template <class Tile>
PLEAT_HD inline void turn_tile(Tile& tile) {
  swap_bits<1, 1>(tile);
  swap_bits<2, 2>(tile);
  swap_bits<4, 4>(tile);
}
// rotate_tile() from one turned order to the other; signs have been flipped.
template <class Tile>
PLEAT_HD inline void rotate_turned(Tile& tile) {
  pair_registers<16>(tile);  // bit 7
  pair_registers<8>(tile);   // 6
  pair_registers<4>(tile);   // 5
  swap_bits<1, 4>(tile);     // 0 for 5
  swap_bits<2, 8>(tile);     // 1 for 6
  swap_bits<4, 16>(tile);    // 2 for 7
  pair_registers<4>(tile);   // 0
  pair_registers<8>(tile);   // 1
  pair_registers<16>(tile);  // 2
  pair_registers<1>(tile);   // 3
  pair_registers<2>(tile);   // 4; registers are bits 3 4 0 1 2
  tile.each([](auto& lane) { rename_registers<3, 4, 0, 1, 2>(lane, 0.0625f); });
}
template <class Tile>
PLEAT_HD inline void rotate_tile_back(Tile& tile, uint64_t nonce, uint64_t group) {
  swap_bits<1, 8>(tile);     // 0 for 3
  pair_registers<8>(tile);   // 0
  swap_bits<2, 16>(tile);    // 1 for 4
  pair_registers<16>(tile);  // 1
  swap_bits<4, 1>(tile);     // 2 for 5
  pair_registers<1>(tile);   // 2
  pair_lanes<1>(tile);       // 3
  pair_lanes<2>(tile);       // 4
  pair_lanes<4>(tile);       // 5
  pair_registers<2>(tile);   // 6
  pair_registers<4>(tile);   // 7; registers are bits 2 6 7 0 1
  tile.each([&](auto& lane) {
    rename_registers<2, 3, 4, 0, 1>(lane, 0.0625f);
    flip_lane_signs(lane, nonce, group);
  });
}

}  // namespace
}  // namespace pleat::compress
