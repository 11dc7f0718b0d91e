// One group of 256 elements, encoded or decoded by a tile of eight lanes: what the CUDA kernels do
// per group, and what a test does on the CPU. A lane holds 32 elements, e = i * 64 + lane * 8 + j
// (i < 4, j < 8): runs of eight neighbours, whose noise is one half of a Philox call and whose
// codes are `bits` whole bytes. Written against a Tile, which knows how lanes come about:
//
//   tile.each(f)        f(lane) for every lane; each has its own state. On a GPU: the calling
//   thread tile.lesser(f)      packed minimum over lanes of f(lane), given to all; also greater. On
//   a GPU all
//                       tiles of a warp call these together
//   tile.any(f)         true if f(lane) is for some lane; together as well
//   tile.any_alone(f)   as any(), least_alone(f) as a minimum of floats, for code that only some
//   tiles
//                       of a warp reach
//   tile.pick_alone(has, f)  f(lane) of the first lane for which has(lane); there is one
//
// Everything outside each() is the same in all lanes. docs/payload_format.md says what is computed.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "compress/cuda/lane_math.h"

#if defined(__CUDA_ARCH__)
#define PLEAT_UNROLL _Pragma("unroll")
#else
#define PLEAT_UNROLL
#endif

namespace pleat::compress {
namespace {

inline constexpr unsigned kTileLanes = 8;
inline constexpr unsigned kGroupSize = 256;
inline constexpr unsigned kRuns = 4;       // of neighbouring elements, per lane
inline constexpr unsigned kRunLength = 8;  // elements

// Words of a payload, which is bytes to others.
typedef uint16_t __attribute__((may_alias)) Stored16;
typedef uint32_t __attribute__((may_alias)) Stored32;
typedef uint64_t __attribute__((may_alias)) Stored64;

// A lane's elements as they lie in memory.
template <class T>
struct Lane {
  static constexpr unsigned kRegistersPerRun = kRunLength / Packed<T>::kPerRegister;
  static constexpr unsigned kRegisters = kRuns * kRegistersPerRun;
  unsigned index = 0;
  uint32_t words[kRegisters];

  PLEAT_HD float value(unsigned run, unsigned j) const {
    return Packed<T>::value(words[run * kRegistersPerRun + j / Packed<T>::kPerRegister],
                            j % Packed<T>::kPerRegister);
  }
  PLEAT_HD uint32_t pattern(unsigned run, unsigned j) const {
    return Packed<T>::pattern(words[run * kRegistersPerRun + j / Packed<T>::kPerRegister],
                              j % Packed<T>::kPerRegister);
  }
  PLEAT_HD unsigned element(unsigned run) const { return run * 64 + index * kRunLength; }
};

// Elements [0, elements) of a group; `aligned`: to 16 bytes. A short group's padding repeats its
// first element, which changes neither extremes nor the number of patterns.
template <class T>
PLEAT_HD inline void load_lane(const typename T::Word* source, unsigned elements, bool aligned,
                               Lane<T>& lane) {
  constexpr unsigned kStep = Lane<T>::kRegistersPerRun;
  if (elements == kGroupSize && aligned) {
    PLEAT_UNROLL
    for (unsigned run = 0; run < kRuns; ++run) {
      PLEAT_UNROLL
      for (unsigned r = 0; r < kStep; r += 4)
        load16(source + lane.element(run) + r * Packed<T>::kPerRegister,
               &lane.words[run * kStep + r]);
    }
    return;
  }
  PLEAT_UNROLL
  for (unsigned r = 0; r < Lane<T>::kRegisters; ++r) {
    uint32_t word = 0;
    PLEAT_UNROLL
    for (unsigned which = 0; which < Packed<T>::kPerRegister; ++which) {
      const unsigned e = lane.element(r / kStep) + (r % kStep) * Packed<T>::kPerRegister + which;
      word |= static_cast<uint32_t>(source[e < elements ? e : 0]) << (16 * which);
    }
    lane.words[r] = word;
  }
}

template <class T>
PLEAT_HD inline void store_lane(const Lane<T>& lane, typename T::Word* target, unsigned elements,
                                bool aligned) {
  constexpr unsigned kStep = Lane<T>::kRegistersPerRun;
  if (elements == kGroupSize && aligned) {
    PLEAT_UNROLL
    for (unsigned run = 0; run < kRuns; ++run) {
      PLEAT_UNROLL
      for (unsigned r = 0; r < kStep; r += 4)
        store16(target + lane.element(run) + r * Packed<T>::kPerRegister,
                &lane.words[run * kStep + r]);
    }
    return;
  }
  PLEAT_UNROLL
  for (unsigned run = 0; run < kRuns; ++run) {
    PLEAT_UNROLL
    for (unsigned j = 0; j < kRunLength; ++j)
      if (lane.element(run) + j < elements)
        target[lane.element(run) + j] = static_cast<typename T::Word>(lane.pattern(run, j));
  }
}

// ---- codes ----

// Eight codes, each in byte kByte of a word, as 2 x 4 bytes.
PLEAT_HD inline uint32_t gather_bytes(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  return pick_bytes(pick_bytes(a, b, 0x0062), pick_bytes(c, d, 0x0062), 0x5410);
}
// Four fields of one or two bits, a byte each, moved together into the top byte: the partial
// products do not meet.
template <unsigned kWidth>
PLEAT_HD inline uint32_t squeeze(uint32_t bytes) {
  constexpr uint32_t kShift = 8 - kWidth;
  return bytes *
             (1u << 24 | 1u << (24 - kShift) | 1u << (24 - 2 * kShift) | 1u << (24 - 3 * kShift)) >>
         24;
}
// And apart again: field n of the low bits into byte n. Copies must not meet, so pairs go first.
template <unsigned kWidth>
PLEAT_HD inline uint32_t spread(uint32_t fields) {
  if constexpr (kWidth == 1) return fields * (1u | 1u << 7 | 1u << 14 | 1u << 21) & 0x0101'0101u;
  const uint32_t pairs = fields * (1u | 1u << 12) & 0x000F'000Fu;
  return pairs * (1u | 1u << 6) & 0x0303'0303u;
}

// The codes of one run, each in byte 2 of a word, into the slot of their group.
template <unsigned kBits>
PLEAT_HD inline void store_codes(uint8_t* slot, unsigned element, const uint32_t* codes) {
  const unsigned at = element / 8 * (kBits == 3 ? 2 : kBits);
  if constexpr (kBits == 4) {
    const uint32_t even = gather_bytes(codes[0], codes[2], codes[4], codes[6]);
    const uint32_t odd = gather_bytes(codes[1], codes[3], codes[5], codes[7]);
    *reinterpret_cast<Stored32*>(slot + at) = even + odd * 16;
  } else {
    const uint32_t low = gather_bytes(codes[0], codes[1], codes[2], codes[3]);
    const uint32_t high = gather_bytes(codes[4], codes[5], codes[6], codes[7]);
    if constexpr (kBits == 8) {
      reinterpret_cast<Stored32*>(slot + at)[0] = low;
      reinterpret_cast<Stored32*>(slot + at)[1] = high;
    } else if constexpr (kBits == 1) {
      slot[at] = static_cast<uint8_t>((squeeze<1>(low) & 0xF) | squeeze<1>(high) << 4);
    } else {
      *reinterpret_cast<Stored16*>(slot + at) = static_cast<uint16_t>(
          squeeze<2>(low & 0x0303'0303u) | squeeze<2>(high & 0x0303'0303u) << 8);
      if constexpr (kBits == 3)
        slot[64 + element / 8] = static_cast<uint8_t>((squeeze<1>(low >> 2 & 0x0101'0101u) & 0xF) |
                                                      squeeze<1>(high >> 2 & 0x0101'0101u) << 4);
    }
  }
}

// The codes of one run as bytes. first[0], first[1]: bytes of elements 0..3 and 4..7, but for four
// bits those of even and of odd elements.
struct RunCodes {
  uint32_t first;
  uint32_t second;
};
template <unsigned kBits>
PLEAT_HD inline RunCodes load_codes(const uint8_t* slot, unsigned element) {
  const unsigned at = element / 8 * (kBits == 3 ? 2 : kBits);
  if constexpr (kBits == 4) {
    const uint32_t word = *reinterpret_cast<const Stored32*>(slot + at);
    return {word & 0x0F0F'0F0Fu, word >> 4 & 0x0F0F'0F0Fu};
  } else if constexpr (kBits == 8) {
    const Stored32* const words = reinterpret_cast<const Stored32*>(slot + at);
    return {words[0], words[1]};
  } else if constexpr (kBits == 1) {
    const uint32_t byte = slot[at];
    return {spread<1>(byte & 0xF), spread<1>(byte >> 4)};
  } else {
    const uint32_t low = *reinterpret_cast<const Stored16*>(slot + at);
    RunCodes codes{spread<2>(low & 0xFF), spread<2>(low >> 8)};
    if constexpr (kBits == 3) {
      const uint32_t top = slot[64 + element / 8];
      codes.first |= spread<1>(top & 0xF) << 2;
      codes.second |= spread<1>(top >> 4) << 2;
    }
    return codes;
  }
}
// Where element j of a run is among them: byte of first (0..3) or of second (4..7).
template <unsigned kBits>
PLEAT_HD constexpr unsigned byte_of(unsigned j) {
  return kBits == 4 ? j / 2 + 4 * (j % 2) : j;
}

// Every bit of the lane's part of the slot to 0.
template <unsigned kSlotBytes, class L>
PLEAT_HD inline void clear_slot(uint8_t* slot, const L& lane) {
  constexpr unsigned kWords = kSlotBytes / 4 / kTileLanes;
  PLEAT_UNROLL
  for (unsigned w = 0; w < kWords; ++w)
    reinterpret_cast<Stored32*>(slot)[w * kTileLanes + lane.index] = 0;
}
// Of a short group: the lane clears the codes of the padding that it has written itself.
template <unsigned kWidth, class L>
PLEAT_HD inline void clear_padding(uint8_t* slot, unsigned elements, const L& lane) {
  for (unsigned run = 0; run < kRuns; ++run) {
    const unsigned from = lane.element(run);
    uint8_t* const bytes = slot + from / 8 * kWidth;
    for (unsigned b = 0; b < kWidth; ++b) {
      const unsigned first = from * kWidth + 8 * b;  // bit in the slot
      const unsigned end = elements * kWidth;
      if (first + 8 <= end) continue;
      bytes[b] =
          first >= end ? uint8_t{0} : static_cast<uint8_t>(bytes[b] & ((1u << (end - first)) - 1));
    }
  }
}

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

// Sums whose mantissa holds the code in plain sight: 128 + code + (something below 1), for 8 bits
// 256. The code needs no comparison with the largest one: see below.
//   range / K is rounded to nearest and then up, so D >= range / K (1 - 2^-24); inverse, difference
//   and sum each add an error of 2^-24 relative to K, where D is above 2^126 inverse adds 2^-21. t
//   is at most K + K 2^-19, and t + u at most K + 255.5/256 + 2^-11 < K + 1.
template <class T, unsigned kBits, bool kKeepZero, class L>
PLEAT_HD inline void quantise_lane(const L& lane, const Quantiser& quantiser, uint64_t nonce,
                                   uint64_t group, uint8_t* slot) {
  PLEAT_UNROLL
  for (unsigned half = 0; half < 2; ++half) {
    const NoiseWords noise = philox_call(nonce, group, half * 8 + lane.index);
    PLEAT_UNROLL
    for (unsigned part = 0; part < 2; ++part) {
      const unsigned run = half * 2 + part;
      uint32_t codes[kRunLength];
      PLEAT_UNROLL
      for (unsigned j = 0; j < kRunLength; ++j) {
        const float value = lane.value(run, j);
        const uint32_t words = noise.word[part * 2 + j / 4];
        uint32_t dither;
        if constexpr (kBits == 8)
          dither = pick_bytes(words, 0x8700'0080u, 0x7504 | (j % 4) << 4) >> 1;
        else
          dither = pick_bytes(words, 0x4300'0080u, 0x7504 | (j % 4) << 4);
        float start = float_of(dither);
        if constexpr (kKeepZero) start += 1.0f;
        float sum = (value - quantiser.anchor) * quantiser.inverse + start;
        if constexpr (kKeepZero) sum = value == 0.0f ? float_of(0x4300'0000u) : sum;
        codes[j] = kBits == 8 ? bits_of(sum) << 1 : bits_of(sum);
      }
      store_codes<kBits>(slot, lane.element(run), codes);
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

template <class T, unsigned kBits, bool kKeepZero, class L>
PLEAT_HD inline void restore_lane(L& lane, const Dequantiser& how, uint64_t nonce, uint64_t group,
                                  const uint8_t* slot) {
  constexpr unsigned kStep = Lane<T>::kRegistersPerRun;
  constexpr float kFirst = kKeepZero ? 1.0f : 0.0f;
  const float step = how.step * (1.0f / 256.0f);
  PLEAT_UNROLL
  for (unsigned half = 0; half < 2; ++half) {
    NoiseWords noise{};
    if (how.dither) noise = philox_call(nonce, group, half * 8 + lane.index);
    PLEAT_UNROLL
    for (unsigned part = 0; part < 2; ++part) {
      const unsigned run = half * 2 + part;
      const RunCodes codes = load_codes<kBits>(slot, lane.element(run));
      float values[kRunLength];
      PLEAT_UNROLL
      for (unsigned j = 0; j < kRunLength; ++j) {
        constexpr unsigned kNone = 0x4B00'0000u;  // 2^23
        const unsigned at = byte_of<kBits>(j);
        const uint32_t code = (at < 4 ? codes.first : codes.second) >> (8 * (at % 4)) & 0xFF;
        if (how.dither) {
          const uint32_t byte = noise.word[part * 2 + j / 4] >> (8 * (j % 4)) & 0xFF;
          const float level =
              float_of(kNone | code << 8 | (byte ^ 0xFF)) - (8388608.0f + kFirst * 256.0f);
          values[j] = how.anchor + step * (level - 127.5f);
        } else {
          const float level = float_of(kNone | code) - (8388608.0f + kFirst);
          const float value = how.anchor + how.step * level;
          const float below = value < T::kLargest ? value : T::kLargest;
          values[j] = below > -T::kLargest ? below : -T::kLargest;
        }
        if constexpr (kKeepZero) values[j] = code == 0 ? 0.0f : values[j];
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
      const Dequantiser how = read_group<T>(metadata, static_cast<float>(1u << kBits));
      tile.each([&](auto& lane) {
        if (how.keep_zero)
          restore_lane<T, kBits, true>(lane, how, nonce, group, slot);
        else
          restore_lane<T, kBits, false>(lane, how, nonce, group, slot);
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
