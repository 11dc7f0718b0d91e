// Restores one group that encode_core.h coded, by a tile of eight lanes (lane_core.h).
// A payload may hold any bytes: no lane leaves its group, its slot or the escape table.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "compress/device/lane_core.h"
#include "compress/exponents/lower_core.h"
#include "compress/grouped/group_math.h"

namespace pleat::compress {
namespace {

// The escaped groups of a payload: their table and their number.
struct EscapeTable {
  const uint8_t* groups;
  uint64_t count;

  // The elements of the escaped group with this slot; nullptr if the table has no such group.
  template <class Word>
  PLEAT_HD const Word* find(const uint8_t* slot) const {
    const uint64_t index = *reinterpret_cast<const Stored64*>(slot);
    if (index >= count) return nullptr;
    return reinterpret_cast<const Word*>(groups + index * (kGroupSize * sizeof(Word)));
  }
};

// Code `at` (0..7, bytes of first and second) and a noise byte's complement as the level
// base + code + (255 - noise) / 256. Words of one run share what `frames` prepares.
template <unsigned kBits>
struct LevelBits {
  uint32_t frames[4];  // two codes each, and the float's upper byte

  PLEAT_HD explicit LevelBits(const RunCodes& codes) {
    PLEAT_UNROLL
    for (unsigned f = 0; f < 4; ++f)
      frames[f] = kBits == 8 ? (f < 2 ? codes.first : codes.second)
                             : pick_bytes(f < 2 ? codes.first : codes.second, 0x0000'0043u,
                                          f % 2 == 0 ? 0x5410 : 0x5432);
  }
  PLEAT_HD uint32_t bits(unsigned at, uint32_t noise, unsigned noise_byte) const {
    if constexpr (kBits == 8)
      return (pick_bytes(noise, frames[at / 2], (4 + at % 4) << 4 | noise_byte) & 0xFFFFu) << 7 |
             0x4380'0000u;
    return pick_bytes(noise, frames[at / 2], 0x6007 | (4 + at % 2) << 8 | noise_byte << 4);
  }
};

template <class T, unsigned kBits, bool kDither, bool kKeepZero, class L>
PLEAT_HD inline void restore_lane(L& lane, const Dequantiser& how, uint64_t nonce, uint64_t group,
                                  const uint8_t* slot) {
  constexpr unsigned kStep = Lane<T>::kRegistersPerRun;
  PLEAT_UNROLL
  for (unsigned half = 0; half < 2; ++half) {
    PhiloxWords noise{};
    if constexpr (kDither) noise = noise_words(nonce, group, half * 8 + lane.index);
    PLEAT_UNROLL
    for (unsigned part = 0; part < 2; ++part) {
      const unsigned run = half * 2 + part;
      const RunCodes codes = load_codes<kBits>(slot, lane.element(run));
      const LevelBits<kBits> levels(codes);
      float values[kRunLength];
      PLEAT_UNROLL
      for (unsigned at = 0; at < kRunLength; ++at) {
        const unsigned j = element_of<kBits>(at);
        const uint32_t code = pick_bytes(at < 4 ? codes.first : codes.second, 0, 0x4440 | at % 4);
        float value;
        if constexpr (kDither) {
          const uint32_t bits = levels.bits(at, ~noise.word[part * 2 + j / 4], j % 4);
          value = fused(how.step, float_of(bits) - level_offset(kBits, kKeepZero), how.anchor);
        } else {
          const float level =
              float_of(0x4B00'0000u | code) - (kMantissa + (kKeepZero ? 1.0f : 0.0f));
          value = fused(how.step, level, how.anchor);
          value = value < T::kLargest ? value : T::kLargest;
          value = value > -T::kLargest ? value : -T::kLargest;
        }
        if constexpr (kKeepZero) value = code == 0 ? 0.0f : value;
        values[j] = value;
      }
      PLEAT_UNROLL
      for (unsigned r = 0; r < kStep; ++r)
        lane.words[run * kStep + r] =
            Packed<T>::pack(values[r * Packed<T>::kPerRegister],
                            values[r * Packed<T>::kPerRegister + Packed<T>::kPerRegister - 1]);
    }
  }
}

// Restores a constant or two-valued group.
template <class T, class L>
PLEAT_HD inline void restore_patterns(L& lane, const Metadata<T>& metadata, const uint8_t* slot) {
  const bool two = kind_of<T>(metadata) == GroupKind::kTwoValued;
  typename T::Word zero = metadata.first, one = metadata.first;
  if (two) two_values<T>(metadata, &zero, &one);
  PLEAT_UNROLL
  for (unsigned run = 0; run < kRuns; ++run) {
    const uint32_t bits = two ? slot[lane.element(run) / 8] : 0u;
    PLEAT_UNROLL
    for (unsigned r = 0; r < Lane<T>::kRegistersPerRun; ++r) {
      uint32_t word = 0;
      PLEAT_UNROLL
      for (unsigned which = 0; which < Packed<T>::kPerRegister; ++which)
        word |= static_cast<uint32_t>(
                    (bits >> (r * Packed<T>::kPerRegister + which) & 1) != 0 ? one : zero)
                << (16 * which);
      lane.words[run * Lane<T>::kRegistersPerRun + r] = word;
    }
  }
}

// Restores a regular group, in whichever way it was quantised.
template <class T, unsigned kBits, class L>
PLEAT_HD inline void restore_regular(L& lane, const Dequantiser& how, uint64_t nonce,
                                     uint64_t group, const uint8_t* slot) {
  if (how.dither && how.keep_zero)
    restore_lane<T, kBits, true, true>(lane, how, nonce, group, slot);
  else if (how.dither)
    restore_lane<T, kBits, true, false>(lane, how, nonce, group, slot);
  else if (how.keep_zero)
    restore_lane<T, kBits, false, true>(lane, how, nonce, group, slot);
  else
    restore_lane<T, kBits, false, false>(lane, how, nonce, group, slot);
}

// Restores a lane's elements of a wide group, one at a time: such groups are rare.
//   Coded  the type of the metadata: T, or float32
template <class T, class Coded, unsigned kBits>
PLEAT_HD inline void restore_wide_lane(Metadata<Coded> metadata, unsigned index, uint64_t group,
                                       uint64_t nonce, const uint8_t* slot,
                                       typename T::Word* target, unsigned elements) {
  const Dequantiser how = read_lossy_group<Coded>(metadata, kBits);
  constexpr unsigned kLevels = wide_levels(kBits);
  PLEAT_ROLL
  for (unsigned run = 0; run < kRuns; ++run) {
    const PhiloxWords noise = noise_words(nonce, group, run / 2 * 8 + index);
    const unsigned first = run * 64 + index * kRunLength;
    const RunCodes codes = load_codes<kBits>(slot, first);
    PLEAT_ROLL
    for (unsigned at = 0; at < kRunLength; ++at) {
      const unsigned e = first + element_of<kBits>(at);
      if (e >= elements) continue;
      const unsigned code = (at < 4 ? codes.first : codes.second) >> (8 * (at % 4)) & 0xFFu;
      target[e] = code >= kLevels ? nonfinite_word<T>(code - kLevels)
                                  : T::from_float(wide_value(
                                        how, code, noise_byte(noise, run, e - first), T::kLargest));
    }
  }
}
template <class T, class Coded, unsigned kBits, class Tile>
PLEAT_HD inline void restore_wide(Tile& tile, const Metadata<Coded>& metadata, uint64_t group,
                                  uint64_t nonce, const uint8_t* slot, typename T::Word* target,
                                  unsigned elements) {
  tile.each([&](auto& lane) {
    restore_wide_lane<T, Coded, kBits>(metadata, lane.index, group, nonce, slot, target, elements);
  });
}

// Restores a group; all tiles of a warp call it together. False if the payload is damaged; the
// target is then untouched.
//   all  its parts, if its elements have exponents; zeros: of CodecSpec
template <class T, unsigned kBits, class Tile>
PLEAT_HD inline bool decode_group(Tile& tile, const Metadata<T>& metadata, const uint8_t* slot,
                                  const EscapeTable& escapes, uint64_t group, uint64_t nonce,
                                  typename T::Word* target, unsigned elements, bool aligned,
                                  const PartsOfGroup& all, bool zeros) {
  using Word = typename T::Word;
  const bool regular = (metadata.second & kSignBit<T>) == 0 && metadata.second >= T::kWideEnd;
  bool intact = true, held = true;  // by the lanes
  if (regular) {
    if constexpr (kBits == 0) {
      intact = held = false;
    } else {
      const Dequantiser how = read_group<T>(metadata, kBits, kBits >= 2 && zeros);
      tile.each([&](auto& lane) { restore_regular<T, kBits>(lane, how, nonce, group, slot); });
    }
  } else if (const GroupKind kind = kind_of<T>(metadata); kind == GroupKind::kEscaped) {
    intact = held = false;
    if constexpr (!has_wide_groups(kBits)) {
      const Word* const kept = escapes.find<Word>(slot);
      intact = held = kept != nullptr;
      if (intact) tile.each([&](auto& lane) { load_lane<T>(kept, kGroupSize, true, lane); });
    }
  } else if (kind == GroupKind::kWide) {
    intact = kBits >= kFewestWideBits;
    held = false;
    if constexpr (kBits >= kFewestWideBits)
      restore_wide<T, T, kBits>(tile, metadata, group, nonce, slot, target, elements);
  } else {
    tile.each([&](auto& lane) { restore_patterns<T>(lane, metadata, slot); });
  }
  bool in_place = false;
  if (kBits != 0 && all.any()) {
    const GroupParts parts = all.parts();
    const Moves moves = find_moves<Lane<T>>(tile, parts);
    if (moves == Moves::kRuns && regular)
      tile.each([&](auto& lane) { move_runs<false>(lane, parts, elements); });
    else
      in_place = moves != Moves::kNone && intact && kind_of<T>(metadata) != GroupKind::kEscaped;
  }
  store_tile<T>(tile, target, elements, aligned, held);
  if (in_place) lower_elements<T>(tile, all.parts(), elements, target);
  return intact;
}

}  // namespace
}  // namespace pleat::compress
