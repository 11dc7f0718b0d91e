// Groups that are rotated (compress/rotation.h) before they are coded as float32 ones, and back
// after they are restored, by a tile of eight lanes. Sums are taken in the order that rotation.h
// takes them in, so that the bytes are the same.
//
// The transform pairs elements whose numbers differ in one of eight bits. Five of them tell a
// lane's registers apart, three tell lanes: a bit is swapped into the registers for its turn where
// it has to leave the lanes anyway, else lanes trade elements. Registers and lanes by element bits:
//
//   natural order       registers 1 2 4 8 16: bits 0 1 2 6 7   lanes 1 2 4: bits 3 4 5
//   coefficients' order                       bits 5 6 7 3 4                bits 0 1 2
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "compress/cuda/decode_core.h"
#include "compress/cuda/encode_core.h"

namespace pleat::compress {
namespace {

inline constexpr unsigned kFloatRegisters = Lane<Float32>::kRegisters;

// Of elements in natural order.
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
// And of lanes. The products are exact.
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
// What told lanes apart tells registers apart, and the other way round.
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
// Register r gets what was in the register whose bits are bits kFrom0, kFrom1, ... of r; scaled.
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

// ---- groups ----

// As float32, exactly but for float16 NaNs; a short group is filled up with its first element.
template <class T>
PLEAT_HD inline void load_floats(const typename T::Word* source, unsigned elements, bool aligned,
                                 Lane<Float32>& lane) {
  if constexpr (T::kType == Float32::kType) {
    load_lane<T>(source, elements, aligned, lane);
  } else {
    Lane<T> packed;
    packed.index = lane.index;
    load_lane<T>(source, elements, aligned, packed);
    PLEAT_UNROLL
    for (unsigned r = 0; r < kFloatRegisters; ++r)
      lane.words[r] = bits_of(packed.value(r / kRunLength, r % kRunLength));
  }
}
// From float32. `kPatterns`: bits for bits where T has them, NaNs too.
template <class T, bool kPatterns>
PLEAT_HD inline void store_floats(const Lane<Float32>& lane, typename T::Word* target,
                                  unsigned elements, bool aligned) {
  if constexpr (T::kType == Float32::kType) {
    store_lane<T>(lane, target, elements, aligned);
  } else {
    Lane<T> packed;
    packed.index = lane.index;
    PLEAT_UNROLL
    for (unsigned r = 0; r < Lane<T>::kRegisters; ++r) {
      const float first = float_of(lane.words[2 * r]), second = float_of(lane.words[2 * r + 1]);
      packed.words[r] = kPatterns ? T::from_float(first) | uint32_t{T::from_float(second)} << 16
                                  : Packed<T>::pack(first, second);
    }
    store_lane<T>(packed, target, elements, aligned);
  }
}

// As encode_group(). Constant and two-valued groups are kept as they are.
template <class T, unsigned kBits, class Tile>
PLEAT_HD inline GroupKind encode_transformed_group(Tile& tile, const typename T::Word* source,
                                                   unsigned elements, bool aligned, uint64_t group,
                                                   uint64_t nonce, Metadata<Float32>* metadata,
                                                   uint8_t* slot) {
  constexpr unsigned kSlotBytes = Form<T, kBits, true>::kSlotBytes;
  tile.each([&](auto& lane) { load_floats<T>(source, elements, aligned, lane); });
  Patterns kept{GroupKind::kRegular, 0, 0};
  // Three patterns in one lane spare nearly every group the search.
  const bool other = tile.any([](auto& lane) {
    return lane.words[0] != lane.words[1] && lane.words[1] != lane.words[2] &&
           lane.words[0] != lane.words[2];
  });
  if (!other) {
    bool exact = true;
    if constexpr (T::kType == Float16::kType)
      exact = !tile.any_alone([](auto& lane) {
        bool found = false;
        for (unsigned r = 0; r < kFloatRegisters; ++r)
          found |= (lane.words[r] & 0x7FFF'FFFFu) > 0x7F80'0000u;
        return found;
      });
    if (exact) kept = find_patterns(tile);
    if (kept.kind != GroupKind::kRegular)
      encode_patterns<Float32, kSlotBytes>(tile, kept, kGroupSize, metadata, slot);
  }
  if (elements != kGroupSize)
    tile.each([&](auto& lane) {
      PLEAT_UNROLL
      for (unsigned r = 0; r < kFloatRegisters; ++r)
        if (lane.element(r / kRunLength) + r % kRunLength >= elements) lane.words[r] = 0;
    });
  rotate_tile(tile, nonce, group);
  const Extremes extremes = find_extremes<Float32>(tile);
  const bool searched = !plainly_other(tile, extremes);
  if (kept.kind != GroupKind::kRegular) return kept.kind;
  // What came out constant or two-valued would be taken for one that was kept.
  if (searched && find_patterns(tile).kind != GroupKind::kRegular)
    return encode_escape<Float32, kSlotBytes>(tile, metadata, slot);
  return encode_range<Float32, kBits>(tile, extremes, kGroupSize, group, nonce, metadata, slot);
}

// As decode_group(); all tiles of a warp together.
template <class T, unsigned kBits, class Tile>
PLEAT_HD inline bool decode_transformed_group(Tile& tile, const Metadata<Float32>& metadata,
                                              const uint8_t* slot, const EscapeTable& escapes,
                                              uint64_t group, uint64_t nonce,
                                              typename T::Word* target, unsigned elements,
                                              bool aligned) {
  const GroupKind kind = kind_of<Float32>(metadata);
  bool intact = true;
  if (kind == GroupKind::kRegular) {
    const Dequantiser how = read_group<Float32>(metadata, kBits);
    tile.each([&](auto& lane) { restore_regular<Float32, kBits>(lane, how, nonce, group, slot); });
  } else if (kind == GroupKind::kEscaped) {
    const auto* const whole = escapes.find<typename T::Word>(slot);
    intact = whole != nullptr;
    if (intact)
      tile.each([&](auto& lane) {
        Lane<T> copy;
        copy.index = lane.index;
        load_lane<T>(whole, kGroupSize, true, copy);
        store_lane<T>(copy, target, elements, aligned);
      });
  } else {
    tile.each([&](auto& lane) {
      restore_patterns<Float32>(lane, metadata, slot);
      store_floats<T, true>(lane, target, elements, aligned);
    });
  }
  if (kind != GroupKind::kRegular)
    tile.each([](auto& lane) {
      PLEAT_UNROLL
      for (unsigned r = 0; r < kFloatRegisters; ++r) lane.words[r] = 0;
    });
  rotate_tile_back(tile, nonce, group);
  if (kind != GroupKind::kRegular) return intact;
  tile.each([&](auto& lane) {
    PLEAT_UNROLL
    for (unsigned r = 0; r < kFloatRegisters; ++r) {
      float value = float_of(lane.words[r]);
      value = value < T::kLargest ? value : T::kLargest;
      value = value > -T::kLargest ? value : -T::kLargest;
      lane.words[r] = bits_of(value);
    }
    store_floats<T, false>(lane, target, elements, aligned);
  });
  return true;
}

// ---- by form ----

template <class F, class Tile>
PLEAT_HD inline GroupKind encode_form(Tile& tile, const typename F::Source::Word* source,
                                      unsigned elements, bool aligned, uint64_t group,
                                      uint64_t nonce, Metadata<typename F::Coded>* metadata,
                                      uint8_t* slot) {
  if constexpr (F::kTransformed)
    return encode_transformed_group<typename F::Source, F::kBits>(tile, source, elements, aligned,
                                                                  group, nonce, metadata, slot);
  else
    return encode_group<typename F::Source, F::kBits>(tile, source, elements, aligned, group, nonce,
                                                      metadata, slot);
}
template <class F, class Tile>
PLEAT_HD inline bool decode_form(Tile& tile, const Metadata<typename F::Coded>& metadata,
                                 const uint8_t* slot, const EscapeTable& escapes, uint64_t group,
                                 uint64_t nonce, typename F::Source::Word* target,
                                 unsigned elements, bool aligned) {
  if constexpr (F::kTransformed)
    return decode_transformed_group<typename F::Source, F::kBits>(
        tile, metadata, slot, escapes, group, nonce, target, elements, aligned);
  else
    return decode_group<typename F::Source, F::kBits>(tile, metadata, slot, escapes, group, nonce,
                                                      target, elements, aligned);
}

}  // namespace
}  // namespace pleat::compress
