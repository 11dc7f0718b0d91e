// The elements that a lane of a group's tile holds, and how they are loaded and stored. A lane has
// 32 elements, e = i * 64 + lane * 8 + j (i < 4, j < 8): four runs of eight neighbours. The noise
// of a run is one half of a Philox call, and its codes are `bits` whole bytes. Anonymous, as
// element_math.h is.
//
// The code of a group is written against a Tile, which provides the lanes. "Together" means that
// all tiles of a warp make the call together.
//
// - tile.each(f): f(lane) for every lane; each lane has its own state. On a GPU: the calling thread
//   runs its lane.
// - tile.lesser(f), greater(f): packed minimum, maximum of f(lane) over all lanes, given to all;
//   together.
// - tile.any(f): true if f(lane) is true for some lane; together.
// - tile.any_alone(f), least_alone(f): as any(), and the least of floats f(lane), for code that
//   only some tiles of a warp reach.
// - tile.pick_alone(has, f): f(lane) of the first lane for which has(lane) is true; one must be.
// - tile.sum(f): f(lane) is an array of doubles, Sums; each is summed over the lanes and given to
//   all; together. The order is ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)).
// - Tile::PerLane<X> x: an X for each lane, x(lane).
// - tile.words(): 36 words that the lanes share, 16-byte aligned; tile.raise(word, value) makes one
//   of them the larger of both; tile.sync_alone(), and sync() together: after it, what
//   lanes have written is visible to the others.
// - tile.across(step, give, take): take(lane, word), where `word` is what give() returned for
//   lane ^ step; together.
// - tile.all_of_warp(mine): true if `mine` is true in every tile of the warp; together. On a CPU:
//   mine.
//
// All values outside each() are the same in all lanes.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "compress/device/lane_math.h"

#if defined(__CUDA_ARCH__)
#define PLEAT_UNROLL _Pragma("unroll")
#define PLEAT_ROLL _Pragma("unroll 1")
#else
#define PLEAT_UNROLL
#define PLEAT_ROLL
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

  // Of the largest element, as the bits of a float; NaN if one is NaN.
  PLEAT_HD uint32_t magnitude_of_run(unsigned run) const {
    const uint32_t* const own = words + run * kRegistersPerRun;
    uint32_t most = Packed<T>::magnitude_of(own[0]);
    PLEAT_UNROLL
    for (unsigned r = 1; r < kRegistersPerRun; ++r)
      most = Packed<T>::greater_of(most, Packed<T>::magnitude_of(own[r]));
    if constexpr (Packed<T>::kPerRegister == 1) return most;
    return bits_of(greater(Packed<T>::value(most, 0), Packed<T>::value(most, 1)));
  }
  // Of factor().
  PLEAT_HD void multiply_run(unsigned run, uint32_t factor) {
    PLEAT_UNROLL
    for (unsigned r = 0; r < kRegistersPerRun; ++r) {
      uint32_t& word = words[run * kRegistersPerRun + r];
      word = Packed<T>::times(word, factor);
    }
  }
  // Each element times its own power of two, whose exponents are exponent(j).
  template <class Exponent>
  PLEAT_HD void multiply_each(unsigned run, Exponent exponent) {
    constexpr unsigned kEach = Packed<T>::kPerRegister;
    PLEAT_UNROLL
    for (unsigned r = 0; r < kRegistersPerRun; ++r) {
      uint32_t& word = words[run * kRegistersPerRun + r];
      word = Packed<T>::times(
          word, Packed<T>::factors([&](unsigned which) { return exponent(r * kEach + which); }));
    }
  }
  // The largest element times its power of two, likewise. Not for NaN.
  template <class Exponent>
  PLEAT_HD float largest_of_run(unsigned run, Exponent exponent) const {
    float most = 0;
    PLEAT_UNROLL
    for (unsigned j = 0; j < kRunLength; ++j)
      most = greater(most, magnitude(value(run, j)) * power_of_two(exponent(j)));
    return most;
  }
  static constexpr unsigned kFarthest = Packed<T>::kFarthest;
  PLEAT_HD static uint32_t factor(int exponent) { return Packed<T>::factor(exponent); }

  // Takes the lane's elements as words of type U: of T, or T is float32.
  template <class U>
  PLEAT_HD void pack(const typename U::Word* elements) {
    PLEAT_UNROLL
    for (unsigned r = 0; r < kRegisters; ++r) {
      if constexpr (U::kType != T::kType)
        words[r] = bits_of(U::to_float(elements[r]));
      else if constexpr (Packed<T>::kPerRegister == 1)
        words[r] = elements[r];
      else
        words[r] = elements[2 * r] | uint32_t{elements[2 * r + 1]} << 16;
    }
  }
};

// Loads elements [0, elements) of a group; `aligned`: 16-byte aligned. The padding of a short group
// repeats its first element, which changes neither extremes nor the number of patterns.
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

// Loads a run's elements into registers; those beyond the end of the span are zero.
template <class T, unsigned kRun>
PLEAT_HD inline void load_run(const typename T::Word* source, uint64_t left, bool aligned,
                              uint32_t* words) {
  constexpr unsigned kWords = kRun * sizeof(typename T::Word) / 4;
  if (left >= kRun && aligned) {
    PLEAT_UNROLL
    for (unsigned w = 0; w < kWords; w += 4)
      load16(reinterpret_cast<const uint8_t*>(source) + 4 * w, words + w);
    return;
  }
  constexpr unsigned kEach = Packed<T>::kPerRegister;
  PLEAT_UNROLL
  for (unsigned w = 0; w < kWords; ++w) {
    words[w] = 0;
    for (unsigned i = 0; i < kEach; ++i)
      if (w * kEach + i < left) words[w] |= uint32_t{source[w * kEach + i]} << (16 * i);
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

// As store_lane(), by whole tiles, all of a warp together; stores nothing unless `wanted`. Where a
// lane's eight neighbours are 32 bytes, a sector of the cache, two lanes first swap their second
// halves, and then both store each sector at once. One lane would store it in two steps, which
// takes a fifth of decode's time on an H200. The lanes' elements may be out of order afterwards.
template <class T, class Tile>
PLEAT_HD inline void store_tile(Tile& tile, typename T::Word* target, unsigned elements,
                                bool aligned, bool wanted) {
  if constexpr (Lane<T>::kRegistersPerRun == 8) {
    if (tile.all_of_warp(elements == kGroupSize && aligned)) {
      PLEAT_UNROLL
      for (unsigned r = 0; r < Lane<T>::kRegisters; ++r) {
        if (r % 8 < 4) continue;
        tile.across(
            1, [&](auto& lane) { return lane.words[r]; },
            [&](auto& lane, uint32_t other) { lane.words[r] = other; });
      }
      if (!wanted) return;
      tile.each([&](auto& lane) {
        const bool even = lane.index % 2 == 0;
        typename T::Word* const pair = target + lane.index / 2 * 16;
        typename T::Word* const in_even = pair + (even ? 0 : 4);
        typename T::Word* const in_odd = pair + (even ? 12 : 8);
        PLEAT_UNROLL
        for (unsigned run = 0; run < kRuns; ++run) {
          uint32_t of_even[4], of_odd[4];  // of the eight of the even and of the odd lane
          PLEAT_UNROLL
          for (unsigned w = 0; w < 4; ++w) {
            const uint32_t own = lane.words[run * 8 + w], other = lane.words[run * 8 + 4 + w];
            of_even[w] = even ? own : other;
            of_odd[w] = even ? other : own;
          }
          store16(in_even + run * 64, of_even);
          store16(in_odd + run * 64, of_odd);
        }
      });
      return;
    }
    aligned = false;  // one element at a time: at the end of a span, and where it is not aligned
  }
  if (wanted) tile.each([&](auto& lane) { store_lane<T>(lane, target, elements, aligned); });
}

// ---- codes ----

// The noise of element j of a run, from the call that two runs share.
PLEAT_HD inline unsigned noise_byte(const PhiloxWords& noise, unsigned run, unsigned j) {
  const uint32_t low = run % 2 == 0 ? noise.word[0] : noise.word[2];
  const uint32_t high = run % 2 == 0 ? noise.word[1] : noise.word[3];
  return (j < 4 ? low : high) >> (8 * (j % 4)) & 0xFFu;
}

// Moves four fields of one or two bits, one in each byte, together into the top byte. The partial
// products do not overlap.
template <unsigned kWidth>
PLEAT_HD inline uint32_t squeeze(uint32_t bytes) {
  constexpr uint32_t kShift = 8 - kWidth;
  return bytes *
             (1u << 24 | 1u << (24 - kShift) | 1u << (24 - 2 * kShift) | 1u << (24 - 3 * kShift)) >>
         24;
}
// Moves them apart again: field n of the low bits into byte n. Copies must not overlap, so pairs go
// first.
template <unsigned kWidth>
PLEAT_HD inline uint32_t spread(uint32_t fields) {
  if constexpr (kWidth == 1) return fields * (1u | 1u << 7 | 1u << 14 | 1u << 21) & 0x0101'0101u;
  const uint32_t pairs = fields * (1u | 1u << 12) & 0x000F'000Fu;
  return pairs * (1u | 1u << 6) & 0x0303'0303u;
}

// Moves four nibbles, each the low half of a byte, to the low 16 bits; and back.
PLEAT_HD inline uint32_t squeeze_nibbles(uint32_t bytes) {
  return pick_bytes((bytes & 0x000F'000Fu) | (bytes >> 4 & 0x00F0'00F0u), 0, 0x4420);
}
PLEAT_HD inline uint32_t spread_nibbles(uint32_t nibbles) {
  const uint32_t pairs = pick_bytes(nibbles, 0, 0x4140);
  return (pairs | pairs << 4) & 0x0F0F'0F0Fu;
}

// The eight codes of a run as bytes, four to a word: elements 0..3 and 4..7; where they have a
// plane of four bits the even and the odd elements.
struct RunCodes {
  uint32_t first;
  uint32_t second;
};
template <unsigned kBits>
inline constexpr bool kEvenApart = planes_of(kBits).low == 4;
template <unsigned kBits>
PLEAT_HD constexpr unsigned element_of(unsigned byte) {  // 0..3 of first, 4..7 of second
  return kEvenApart<kBits> ? byte % 4 * 2 + byte / 4 : byte;
}

// A run in one plane, whose bytes begin at `at`. Codes are below 2^kWidth.
template <unsigned kWidth, bool kEven>
PLEAT_HD inline void store_in_plane(uint8_t* at, const RunCodes& codes) {
  static_assert(kEven ? kWidth == 4 || kWidth == 2 : kWidth != 4, "no width needs the others");
  if constexpr (kWidth == 8) {
    reinterpret_cast<Stored32*>(at)[0] = codes.first;
    reinterpret_cast<Stored32*>(at)[1] = codes.second;
  } else if constexpr (kWidth == 4) {
    *reinterpret_cast<Stored32*>(at) = codes.first + codes.second * 16;
  } else if constexpr (kWidth == 2 && kEven) {
    *reinterpret_cast<Stored16*>(at) =
        static_cast<uint16_t>(squeeze_nibbles(codes.first + codes.second * 4));
  } else if constexpr (kWidth == 2) {
    *reinterpret_cast<Stored16*>(at) =
        static_cast<uint16_t>(squeeze<2>(codes.first) | squeeze<2>(codes.second) << 8);
  } else {
    *at = static_cast<uint8_t>((squeeze<1>(codes.first) & 0xF) | squeeze<1>(codes.second) << 4);
  }
}
template <unsigned kWidth, bool kEven>
PLEAT_HD inline RunCodes load_from_plane(const uint8_t* at) {
  if constexpr (kWidth == 8) {
    const Stored32* const words = reinterpret_cast<const Stored32*>(at);
    return {words[0], words[1]};
  } else if constexpr (kWidth == 4) {
    const uint32_t word = *reinterpret_cast<const Stored32*>(at);
    return {word & 0x0F0F'0F0Fu, word >> 4 & 0x0F0F'0F0Fu};
  } else if constexpr (kWidth == 2 && kEven) {
    const uint32_t pairs = spread_nibbles(*reinterpret_cast<const Stored16*>(at));
    return {pairs & 0x0303'0303u, pairs >> 2 & 0x0303'0303u};
  } else if constexpr (kWidth == 2) {
    const uint32_t codes = *reinterpret_cast<const Stored16*>(at);
    return {spread<2>(codes & 0xFF), spread<2>(codes >> 8)};
  } else {
    const uint32_t byte = *at;
    return {spread<1>(byte & 0xF), spread<1>(byte >> 4)};
  }
}

template <unsigned kBits>
PLEAT_HD inline void store_codes(uint8_t* slot, unsigned element, const RunCodes& codes) {
  constexpr CodePlanes kPlanes = planes_of(kBits);
  constexpr bool kEven = kEvenApart<kBits>;
  uint8_t* const low = slot + kPlanes.low_bytes(element);
  if constexpr (kPlanes.high == 0) {
    store_in_plane<kPlanes.low, kEven>(low, codes);
  } else {
    constexpr uint32_t kLow = kPlanes.low_mask() * 0x0101'0101u;
    constexpr uint32_t kHigh = kPlanes.high_mask() * 0x0101'0101u;
    store_in_plane<kPlanes.low, kEven>(low, {codes.first & kLow, codes.second & kLow});
    store_in_plane<kPlanes.high, kEven>(
        slot + kPlanes.low_bytes(kGroupSize) + element / 8 * kPlanes.high,
        {codes.first >> kPlanes.low & kHigh, codes.second >> kPlanes.low & kHigh});
  }
}
template <unsigned kBits>
PLEAT_HD inline RunCodes load_codes(const uint8_t* slot, unsigned element) {
  constexpr CodePlanes kPlanes = planes_of(kBits);
  constexpr bool kEven = kEvenApart<kBits>;
  RunCodes codes = load_from_plane<kPlanes.low, kEven>(slot + kPlanes.low_bytes(element));
  if constexpr (kPlanes.high != 0) {
    const RunCodes high = load_from_plane<kPlanes.high, kEven>(
        slot + kPlanes.low_bytes(kGroupSize) + element / 8 * kPlanes.high);
    codes.first |= high.first << kPlanes.low;
    codes.second |= high.second << kPlanes.low;
  }
  return codes;
}

// Clears the lane's part of the slot.
template <unsigned kSlotBytes, class L>
PLEAT_HD inline void clear_slot(uint8_t* slot, const L& lane) {
  constexpr unsigned kWords = kSlotBytes / 4 / kTileLanes;
  PLEAT_UNROLL
  for (unsigned w = 0; w < kWords; ++w)
    reinterpret_cast<Stored32*>(slot)[w * kTileLanes + lane.index] = 0;
}
// For a short group: clears the codes of padding that this lane has written.
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

// Reduces a lane's registers by `op`: those from `first` on into `all`, or all into the first one.
template <class T, class L, class Op>
PLEAT_HD inline uint32_t fold_words(const L& lane, uint32_t all, Op op, unsigned first = 0) {
  PLEAT_UNROLL
  for (unsigned r = first; r < Lane<T>::kRegisters; ++r) all = op(all, lane.words[r]);
  return all;
}
template <class T, class L, class Op>
PLEAT_HD inline uint32_t fold_words(const L& lane, Op op) {
  return fold_words<T>(lane, lane.words[0], op, 1);
}

}  // namespace
}  // namespace pleat::compress
