// Encodes one group of 256 elements by a tile of eight lanes (lane_core.h). The CUDA kernels run
// this code per group, and a test runs it on the CPU. docs/payload_format.md says what is computed.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <type_traits>

#include "compress/device/lane_core.h"
#include "compress/exponents/raise_core.h"
#include "compress/grouped/group_math.h"
#include "compress/grouped/pattern_core.h"

namespace pleat::compress {
namespace {

// How the groups of a span are coded. Transformed groups are rotated and then coded as float32
// groups (transform_core.h); with kLevels some are scaled groups.
template <class SourceType, unsigned kWidth, bool kRotated = false, bool kLevels = false>
struct Form {
  using Source = SourceType;
  using Coded = std::conditional_t<kRotated, Float32, SourceType>;
  static constexpr unsigned kBits = kWidth;
  static constexpr bool kTransformed = kRotated;
  static constexpr bool kScaled = kLevels;
  static constexpr unsigned kSlotBytes = 32 * (kBits == 0 ? 1 : kBits);
};

// Whether a group of this kind is quantised.
PLEAT_HD inline bool is_lossy(GroupKind kind) {
  return kind == GroupKind::kRegular || kind == GroupKind::kWide;
}

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

// Each element takes a difference and a fused multiply-add, whose sum holds n, the element in units
// of the noise, in its low 16 bits. Then n + noise is taken for two elements at a time; its upper
// byte is the code.
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

// Codes a group of one or two patterns exactly.
template <class T, unsigned kSlotBytes, class Tile>
PLEAT_HD inline void encode_patterns(Tile& tile, const Patterns& patterns, unsigned elements,
                                     Metadata<T>* metadata, uint8_t* slot) {
  using Word = typename T::Word;
  Metadata<T> words{static_cast<Word>(patterns.first), 0};
  if (patterns.kind == GroupKind::kTwoValued) {
    Word one = 0;
    words = two_valued_metadata<T>(static_cast<Word>(patterns.first),
                                   static_cast<Word>(patterns.second), &one);
    store_bitmap<T>(tile, one, elements, slot);
  }
  tile.each([&](auto& lane) {
    if (patterns.kind == GroupKind::kConstant)
      clear_slot<kSlotBytes>(slot, lane);
    else if constexpr (kSlotBytes > 32)
      clear_slot<kSlotBytes - 32>(slot + 32, lane);
    if (lane.index == 0) *metadata = words;
  });
}

// Writes the mark of an escaped group and an empty slot. The caller gives it its number and keeps
// its bytes (finish_span()).
template <class T, unsigned kSlotBytes, class Tile>
PLEAT_HD inline GroupKind encode_escape(Tile& tile, Metadata<T>* metadata, uint8_t* slot) {
  tile.each([&](auto& lane) {
    clear_slot<kSlotBytes>(slot, lane);
    if (lane.index == 0) *metadata = {kEscapeWord<T>, kEscapeWord<T>};
  });
  return GroupKind::kEscaped;
}

// Minimum and maximum of a group; NaN if an element is NaN.
struct Extremes {
  float minimum;
  float maximum;
};
template <class T, class Tile>
PLEAT_HD inline Extremes find_extremes(Tile& tile) {
  return {
      tile.template lesser<T>([](auto& lane) { return fold_words<T>(lane, Packed<T>::lesser_of); }),
      tile.template greater<T>(
          [](auto& lane) { return fold_words<T>(lane, Packed<T>::greater_of); })};
}
// True if the group is certainly neither constant nor two-valued. One look at an element per lane
// spares nearly every group the search for patterns.
template <class Tile>
PLEAT_HD inline bool plainly_other(Tile& tile, const Extremes& extremes) {
  return tile.any([&](auto& lane) {
    const float value = lane.value(0, 0);
    return value > extremes.minimum && value < extremes.maximum;
  });
}

// A lane's share of a wide group: elements e with e mod 8 = index, which no order needs.
template <class T>
PLEAT_HD inline WideRange wide_range_of_lane(const CodedElement<T>& element, unsigned elements,
                                             unsigned index) {
  WideRange range;
  PLEAT_ROLL
  for (unsigned e = index; e < elements; e += kTileLanes) widen_range(element(e), &range);
  return range;
}
// The codes of a lane, and the metadata of the group.
template <class T, class Coded, unsigned kBits>
PLEAT_HD inline Metadata<Coded> encode_wide_lane(const CodedElement<T>& element, unsigned elements,
                                                 unsigned index, uint64_t group, uint64_t nonce,
                                                 WideRange range, uint8_t* slot) {
  WidePlan plan;
  Metadata<Coded> words;
  plan_wide<Coded>(range, kBits, &plan, &words);
  PLEAT_ROLL
  for (unsigned run = 0; run < kRuns; ++run) {
    const PhiloxWords noise = noise_words(nonce, group, run / 2 * 8 + index);
    const unsigned first = run * 64 + index * kRunLength;
    uint32_t codes[2] = {0, 0};
    PLEAT_ROLL
    for (unsigned at = 0; at < kRunLength; ++at) {
      const unsigned e = first + element_of<kBits>(at);
      if (e >= elements) continue;
      const unsigned code = wide_code(element(e), plan, kBits, noise_byte(noise, run, e - first));
      codes[0] |= at < 4 ? code << (8 * at) : 0;
      codes[1] |= at < 4 ? 0 : code << (8 * (at - 4));
    }
    store_codes<kBits>(slot, first, {codes[0], codes[1]});
  }
  return words;
}
// Codes a group that holds NaN or Inf, or whose range overflows, or that a rotation cannot bear.
// Reads it again, one element at a time: such groups are rare, and lanes may hold rotated values.
//   Coded  the type whose metadata are written: the source's, or float32
template <class T, class Coded, unsigned kBits, class Tile>
PLEAT_HD inline GroupKind encode_wide(Tile& tile, const CodedElement<T>& element, unsigned elements,
                                      uint64_t group, uint64_t nonce, Metadata<Coded>* metadata,
                                      uint8_t* slot) {
  const auto range_of = [&](auto& lane) {
    return wide_range_of_lane<T>(element, elements, lane.index);
  };
  WideRange range;
  range.minimum = tile.least_alone([&](auto& lane) { return range_of(lane).minimum; });
  range.maximum = -tile.least_alone([&](auto& lane) { return -range_of(lane).maximum; });
  range.smallest = tile.least_alone([&](auto& lane) { return range_of(lane).smallest; });
  tile.each([&](auto& lane) {
    const Metadata<Coded> words =
        encode_wide_lane<T, Coded, kBits>(element, elements, lane.index, group, nonce, range, slot);
    if (lane.index == 0) *metadata = words;
  });
  return GroupKind::kWide;
}

// Codes a group of more than two patterns. One that cannot be coded so is escaped, or wide where
// there are wide groups.
//   refused  it cannot be, whatever its range
//   zeros    of CodecSpec
//   unable   is called for a group that cannot be coded: codes it otherwise and returns its kind.
//            Stands in the code once, as it costs registers
template <class T, unsigned kBits, class Tile, class Unable>
PLEAT_HD inline GroupKind encode_range(Tile& tile, const Extremes& extremes, unsigned elements,
                                       uint64_t group, uint64_t nonce, Metadata<T>* metadata,
                                       uint8_t* slot, bool refused, bool zeros, Unable unable) {
  constexpr float kLargestCode = static_cast<float>((1u << kBits) - 1);
  const float minimum = extremes.minimum, maximum = extremes.maximum;
  Quantiser quantiser{0, 0, 0};
  Metadata<T> words;
  // A range that is not finite makes the step infinite or NaN, and plan_group() refuses it. As
  // unsigned bits, NaN is not below 2^-110 either.
  if (refused || !plan_group<T>(minimum, maximum, kLargestCode, &quantiser, &words))
    return unable();
  const bool between = kBits >= 2 && zeros && keeps_zero_between(minimum, maximum);
  if (between || keeps_zero(minimum, kBits)) {
    float smallest = minimum;
    if (!between)
      smallest = tile.least_alone([&](auto& lane) {
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
    plan_zero_kept<T>(smallest, maximum, kLargestCode, &quantiser, &words);
    tile.each([&](auto& lane) {
      if constexpr (kBits >= 2) quantise_lane<T, kBits, true>(lane, quantiser, nonce, group, slot);
    });
  } else {
    tile.each(
        [&](auto& lane) { quantise_lane<T, kBits, false>(lane, quantiser, nonce, group, slot); });
  }
  tile.each([&](auto& lane) {
    if (lane.index == 0) *metadata = words;
    if (elements == kGroupSize) return;
    constexpr CodePlanes kPlanes = planes_of(kBits);
    clear_padding<kPlanes.low>(slot, elements, lane);
    if constexpr (kPlanes.high != 0)
      clear_padding<kPlanes.high>(slot + kPlanes.low_bytes(kGroupSize), elements, lane);
  });
  return GroupKind::kRegular;
}

// Encodes a group: writes its metadata and slot, returns its kind.
//   source    the group's `elements` elements, 1..256; `aligned`: 16-byte aligned
//   group     its number in the span
//   metadata  of this group; slot: of this group, 8-byte aligned
//   all       its parts, if its elements have exponents; not with kBits = 0
//   zeros     of CodecSpec
// kBits = 0: only constant and two-valued groups are coded; others are escaped. From 3 on none is.
template <class T, unsigned kBits, class Tile>
PLEAT_HD inline GroupKind encode_group(Tile& tile, const typename T::Word* source,
                                       unsigned elements, bool aligned, uint64_t group,
                                       uint64_t nonce, Metadata<T>* metadata, uint8_t* slot,
                                       const PartsOfGroup& all, bool zeros) {
  constexpr unsigned kSlotBytes = Form<T, kBits>::kSlotBytes;
  tile.each([&](auto& lane) { load_lane<T>(source, elements, aligned, lane); });
  if (kBits != 0 && all.any())
    raise_group<T, T>(tile, source, elements, all.parts(), false, kBits >= 2 && zeros);
  Extremes extremes{};
  bool searched = true;
  if constexpr (kBits != 0) {
    extremes = find_extremes<T>(tile);
    searched = !plainly_other(tile, extremes);
  }
  if (searched) {
    const Patterns patterns = find_patterns(tile);
    if (patterns.kind != GroupKind::kRegular) {
      encode_patterns<T, kSlotBytes>(tile, patterns, elements, metadata, slot);
      return patterns.kind;
    }
  }
  const auto unable = [&] {
    if constexpr (kBits >= kFewestWideBits)
      return encode_wide<T, T, kBits>(tile, CodedElement<T>{source, all, tile.words()}, elements,
                                      group, nonce, metadata, slot);
    else
      return encode_escape<T, kSlotBytes>(tile, metadata, slot);
  };
  if constexpr (kBits == 0)
    return unable();
  else
    return encode_range<T, kBits>(tile, extremes, elements, group, nonce, metadata, slot, false,
                                  zeros, unable);
}

}  // namespace
}  // namespace pleat::compress
