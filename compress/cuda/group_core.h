// One group of 256 elements, encoded or decoded by a tile of eight lanes (lane_core.h): what the
// CUDA kernels do per group, and what a test does on the CPU. Written against a Tile, which knows
// how lanes come about:
//
// - tile.each(f): f(lane) for every lane; each has its own state. On a GPU: the calling thread.
// - tile.lesser(f), greater(f): packed minimum, maximum over lanes of f(lane), given to all. On a
//   GPU all tiles of a warp call these together.
// - tile.any(f): true if f(lane) is for some lane; together as well.
// - tile.any_alone(f), least_alone(f): as any() and as a minimum of floats, for code that only some
//   tiles of a warp reach.
// - tile.pick_alone(has, f): f(lane) of the first lane for which has(lane); there is one.
//
// Everything outside each() is the same in all lanes. docs/payload_format.md says what is computed.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "compress/cuda/lane_core.h"

namespace pleat::compress {
namespace {

// ---- encoding ----

// One bit per element, set where the pattern is `one`.
template <class T, class Tile>
PLEAT_HD inline void store_bitmap(Tile& tile, uint32_t one, unsigned elements, uint8_t* slot) {
  tile.each([&](auto& lane) {
    for (unsigned run = 0; run < kRuns; ++run) {
      uint32_t bits = 0;
      for (unsigned j = 0; j < kRunLength; ++j)
        bits |= (lane.pattern(run, j) == one ? 1u : 0u) << j;
      slot[lane.element(run) / 8] = static_cast<uint8_t>(bits);
    }
    clear_padding<1>(slot, elements, lane);
  });
}

// Per element a difference and a fused multiply-add, whose sum has n, the element in units of the
// noise, in its low 16 bits; then two elements at a time: n + noise, whose upper byte is the code.
template <class T, unsigned kBits, bool kKeepZero, class L>
PLEAT_HD inline void quantise_lane(const L& lane, const Quantiser& quantiser, uint64_t nonce,
                                   uint64_t group, uint8_t* slot) {
  constexpr float kBase = kKeepZero ? kMantissa + 256.0f : kMantissa;
  PLEAT_UNROLL
  for (unsigned half = 0; half < 2; ++half) {
    const PhiloxWords noise = noise_words(nonce, group, half * 8 + lane.index);
    PLEAT_UNROLL
    for (unsigned part = 0; part < 2; ++part) {
      const unsigned run = half * 2 + part;
      uint32_t sums[4];
      PLEAT_UNROLL
      for (unsigned pair = 0; pair < 4; ++pair) {
        uint32_t bits[2];
        PLEAT_UNROLL
        for (unsigned which = 0; which < 2; ++which) {
          const float value = lane.value(run, element_of<kBits>(2 * pair + which));
          bits[which] = bits_of(fused(value - quantiser.anchor, quantiser.inverse, kBase));
          if constexpr (kKeepZero) bits[which] = value == 0.0f ? 0 : bits[which];
        }
        const unsigned j = element_of<kBits>(2 * pair), k = element_of<kBits>(2 * pair + 1);
        sums[pair] = pick_bytes(bits[0], bits[1], 0x5410) +
                     pick_bytes(noise.word[part * 2 + j / 4], 0, 0x4040 | (k % 4) << 8 | j % 4);
      }
      store_codes<kBits>(
          slot, lane.element(run),
          {pick_bytes(sums[0], sums[1], 0x7531), pick_bytes(sums[2], sums[3], 0x7531)});
    }
  }
}

// Encodes a group: metadata and slot are written, the kind is returned. An escaped group gets its
// mark and an empty slot; its number and its bytes are the caller's (finish_span()).
//   source    `elements` of the span, 1..256; `aligned`: source is 16-byte aligned
//   group     its number in the span
//   metadata  of this group; slot: of this group, aligned to 8 bytes
// kBits = 0: only constant and two-valued groups are coded.
template <class T, unsigned kBits, class Tile>
PLEAT_HD inline GroupKind encode_group(Tile& tile, const typename T::Word* source,
                                       unsigned elements, bool aligned, uint64_t group,
                                       uint64_t nonce, Metadata<T>* metadata, uint8_t* slot) {
  using Word = typename T::Word;
  constexpr unsigned kSlotBytes = 32 * (kBits == 0 ? 1 : kBits);
  tile.each([&](auto& lane) { load_lane<T>(source, elements, aligned, lane); });
  float minimum = 0, maximum = 0;
  bool plainly_other = false;  // surely neither constant nor two-valued, and finite
  if constexpr (kBits != 0) {
    minimum = tile.template lesser<T>([](auto& lane) {
      uint32_t least = lane.words[0];
      PLEAT_UNROLL
      for (unsigned r = 1; r < Lane<T>::kRegisters; ++r)
        least = Packed<T>::lesser_of(least, lane.words[r]);
      return least;
    });
    maximum = tile.template greater<T>([](auto& lane) {
      uint32_t most = lane.words[0];
      PLEAT_UNROLL
      for (unsigned r = 1; r < Lane<T>::kRegisters; ++r)
        most = Packed<T>::greater_of(most, lane.words[r]);
      return most;
    });
    // One look at an element per lane spares nearly every group the search for patterns.
    plainly_other = tile.any([&](auto& lane) {
      const float value = lane.value(0, 0);
      return value > minimum && value < maximum;
    });
  }
  Metadata<T> words{kEscapeWord<T>, kEscapeWord<T>};
  if (!plainly_other) {
    const uint32_t first =
        tile.pick_alone([](auto&) { return true; }, [](auto& lane) { return lane.pattern(0, 0); });
    const auto differs = [&](auto& lane) {
      bool found = false;
      for (unsigned run = 0; run < kRuns; ++run)
        for (unsigned j = 0; j < kRunLength; ++j) found |= lane.pattern(run, j) != first;
      return found;
    };
    if (!tile.any_alone(differs)) {
      words = {static_cast<Word>(first), 0};
      tile.each([&](auto& lane) {
        clear_slot<kSlotBytes>(slot, lane);
        if (lane.index == 0) *metadata = words;
      });
      return GroupKind::kConstant;
    }
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
    if (!third) {
      Word one = 0;
      words = two_valued_metadata<T>(static_cast<Word>(first), static_cast<Word>(second), &one);
      store_bitmap<T>(tile, one, elements, slot);
      tile.each([&](auto& lane) {
        if constexpr (kSlotBytes > 32) clear_slot<kSlotBytes - 32>(slot + 32, lane);
        if (lane.index == 0) *metadata = words;
      });
      return GroupKind::kTwoValued;
    }
  }
  Quantiser quantiser{0, 0, 0};
  bool escaped = true;
  if constexpr (kBits != 0) {
    // A range that is not finite makes the step so, and plan_group() refuses. NaN is not below
    // 2^-110 either, as unsigned bits.
    escaped =
        !plan_group<T>(minimum, maximum, static_cast<float>((1u << kBits) - 1), &quantiser, &words);
  }
  if (escaped) {
    words = {kEscapeWord<T>, kEscapeWord<T>};
    tile.each([&](auto& lane) {
      clear_slot<kSlotBytes>(slot, lane);
      if (lane.index == 0) *metadata = words;
    });
    return GroupKind::kEscaped;
  }
  if constexpr (kBits != 0) {
    if (keeps_zero(minimum, kBits)) {
      const float smallest = tile.least_alone([&](auto& lane) {
        float least = maximum;
        PLEAT_UNROLL
        for (unsigned run = 0; run < kRuns; ++run) {
          PLEAT_UNROLL
          for (unsigned j = 0; j < kRunLength; ++j) {
            const float value = lane.value(run, j);
            least = value > 0.0f && value < least ? value : least;
          }
        }
        return least;
      });
      plan_zero_kept<T>(smallest, maximum, static_cast<float>((1u << kBits) - 1), &quantiser,
                        &words);
      tile.each([&](auto& lane) {
        if constexpr (kBits >= 2)
          quantise_lane<T, kBits, true>(lane, quantiser, nonce, group, slot);
      });
    } else {
      tile.each(
          [&](auto& lane) { quantise_lane<T, kBits, false>(lane, quantiser, nonce, group, slot); });
    }
    tile.each([&](auto& lane) {
      if (lane.index == 0) *metadata = words;
      if (elements == kGroupSize) return;
      if constexpr (kBits == 3) {
        clear_padding<2>(slot, elements, lane);
        clear_padding<1>(slot + 64, elements, lane);
      } else {
        clear_padding<kBits>(slot, elements, lane);
      }
    });
  }
  return GroupKind::kRegular;
}

// ---- decoding ----

// Escaped groups of a payload: their table, and how many there are.
struct EscapeTable {
  const uint8_t* groups;
  uint64_t count;
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

// Restores a group. False: the payload is damaged, the target is untouched.
template <class T, unsigned kBits, class Tile>
PLEAT_HD inline bool decode_group(Tile& tile, const Metadata<T>& metadata, const uint8_t* slot,
                                  const EscapeTable& escapes, uint64_t group, uint64_t nonce,
                                  typename T::Word* target, unsigned elements, bool aligned) {
  using Word = typename T::Word;
  const GroupKind kind = kind_of<T>(metadata);
  if (kind == GroupKind::kRegular) {
    if constexpr (kBits == 0) {
      return false;
    } else {
      const Dequantiser how = read_group<T>(metadata, kBits);
      tile.each([&](auto& lane) {
        if (how.dither && how.keep_zero)
          restore_lane<T, kBits, true, true>(lane, how, nonce, group, slot);
        else if (how.dither)
          restore_lane<T, kBits, true, false>(lane, how, nonce, group, slot);
        else if (how.keep_zero)
          restore_lane<T, kBits, false, true>(lane, how, nonce, group, slot);
        else
          restore_lane<T, kBits, false, false>(lane, how, nonce, group, slot);
        store_lane<T>(lane, target, elements, aligned);
      });
      return true;
    }
  }
  if (kind == GroupKind::kEscaped) {
    uint64_t index;
    index = *reinterpret_cast<const Stored64*>(slot);
    if (index >= escapes.count) return false;
    const Word* const kept =
        reinterpret_cast<const Word*>(escapes.groups + index * (kGroupSize * sizeof(Word)));
    tile.each([&](auto& lane) {
      load_lane<T>(kept, kGroupSize, true, lane);
      store_lane<T>(lane, target, elements, aligned);
    });
    return true;
  }
  Word zero = metadata.first, one = metadata.first;
  if (kind == GroupKind::kTwoValued) two_values<T>(metadata, &zero, &one);
  tile.each([&](auto& lane) {
    PLEAT_UNROLL
    for (unsigned run = 0; run < kRuns; ++run) {
      const uint32_t bits = kind == GroupKind::kTwoValued ? slot[lane.element(run) / 8] : 0u;
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
    store_lane<T>(lane, target, elements, aligned);
  });
  return true;
}

}  // namespace
}  // namespace pleat::compress
