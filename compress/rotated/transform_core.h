// Rotates groups before they are coded as float32 groups, and back after they are restored, by a
// tile of eight lanes: compress/rotated/transform_kernels.h for the device.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "compress/grouped/decode_core.h"
#include "compress/grouped/encode_core.h"
#include "compress/rotated/rotation_core.h"
#include "compress/rotated/scaled_core.h"

namespace pleat::compress {
namespace {

// Converts to float32, exactly but for float16 NaNs. A short group is filled up with its first
// element.
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
// Converts from float32. `kPatterns`: bit for bit where T has the bits, NaNs too.
template <class T, bool kPatterns>
PLEAT_HD inline Lane<T> packed_lane(const Lane<Float32>& lane) {
  if constexpr (T::kType == Float32::kType) {
    return lane;
  } else {
    Lane<T> packed;
    packed.index = lane.index;
    PLEAT_UNROLL
    for (unsigned r = 0; r < Lane<T>::kRegisters; ++r) {
      const float first = float_of(lane.words[2 * r]), second = float_of(lane.words[2 * r + 1]);
      packed.words[r] = kPatterns ? T::from_float(first) | uint32_t{T::from_float(second)} << 16
                                  : Packed<T>::pack(first, second);
    }
    return packed;
  }
}

// As encode_group(). Constant and two-valued groups are not rotated.
//   kScaled  groups that pass the gate are scaled ones
template <class T, unsigned kBits, bool kScaled, class Tile>
PLEAT_HD inline GroupKind encode_transformed_group(Tile& tile, const typename T::Word* source,
                                                   unsigned elements, bool aligned, uint64_t group,
                                                   uint64_t nonce, Metadata<Float32>* metadata,
                                                   uint8_t* slot, const PartsOfGroup& all) {
  constexpr unsigned kSlotBytes = Form<T, kBits, true>::kSlotBytes;
  tile.each([&](auto& lane) { load_floats<T>(source, elements, aligned, lane); });
  if (all.any()) raise_group<T, Float32>(tile, source, elements, all.parts(), true, false);
  Patterns kept{GroupKind::kRegular, 0, 0};
  // Three patterns in one lane: nearly every group is spared the search.
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
  ScaledPlan plan{};
  if constexpr (kScaled)
    plan = rotate_and_plan<kBits>(tile, nonce, group);
  else
    rotate_tile(tile, nonce, group);
  const Extremes extremes = find_extremes<Float32>(tile);
  const bool searched = !plainly_other(tile, extremes);
  if (kept.kind != GroupKind::kRegular) return kept.kind;
  if constexpr (kScaled)
    if (plan.scaled) return encode_scaled<kBits>(tile, plan, metadata, slot);
  const auto unable = [&] {
    if constexpr (kBits >= kFewestWideBits)
      return encode_wide<T, Float32, kBits>(tile, CodedElement<T>{source, all, tile.words()},
                                            elements, group, nonce, metadata, slot);
    else
      return encode_escape<Float32, kSlotBytes>(tile, metadata, slot);
  };
  // A group that came out constant or two-valued would be taken for one that was not rotated.
  const bool few = searched && find_patterns(tile).kind != GroupKind::kRegular;
  return encode_range<Float32, kBits>(tile, extremes, kGroupSize, group, nonce, metadata, slot, few,
                                      false, unable);
}

// As decode_group(); all tiles of a warp together.
template <class T, unsigned kBits, bool kScaled, class Tile>
PLEAT_HD inline bool decode_transformed_group(Tile& tile, const Metadata<Float32>& metadata,
                                              const uint8_t* slot, const EscapeTable& escapes,
                                              uint64_t group, uint64_t nonce,
                                              typename T::Word* target, unsigned elements,
                                              bool aligned, const PartsOfGroup& all) {
  const GroupKind kind = kind_of<Float32>(metadata);
  bool intact = true;
  if (kScaled && is_scaled(metadata)) {
    tile.each([&](auto& lane) { restore_scaled<kBits>(lane, float_of(metadata.second), slot); });
  } else if (kind == GroupKind::kRegular) {
    const Dequantiser how = read_group<Float32>(metadata, kBits);
    tile.each([&](auto& lane) { restore_regular<Float32, kBits>(lane, how, nonce, group, slot); });
  } else if (kind == GroupKind::kEscaped) {
    intact = false;
    if constexpr (!has_wide_groups(kBits)) {
      const auto* const whole = escapes.find<typename T::Word>(slot);
      intact = whole != nullptr;
      if (intact)
        tile.each([&](auto& lane) {
          Lane<T> copy;
          copy.index = lane.index;
          load_lane<T>(whole, kGroupSize, true, copy);
          store_lane<T>(copy, target, elements, aligned);
        });
    }
  } else if (kind == GroupKind::kWide) {
    intact = kBits >= kFewestWideBits;
    if constexpr (kBits >= kFewestWideBits)
      restore_wide<T, Float32, kBits>(tile, metadata, group, nonce, slot, target, elements);
  } else {
    tile.each([&](auto& lane) {
      restore_patterns<Float32>(lane, metadata, slot);
      store_lane<T>(packed_lane<T, true>(lane), target, elements, aligned);
    });
  }
  if (kind != GroupKind::kRegular)
    tile.each([](auto& lane) {
      PLEAT_UNROLL
      for (unsigned r = 0; r < kFloatRegisters; ++r) lane.words[r] = 0;
    });
  rotate_tile_back(tile, nonce, group);
  const Moves moves = all.any() ? find_moves<Lane<T>>(tile, all.parts()) : Moves::kNone;
  if (kind != GroupKind::kRegular) {
    if (moves != Moves::kNone && kind != GroupKind::kEscaped && intact)
      lower_elements<T>(tile, all.parts(), elements, target);
    return intact;
  }
  tile.each([&](auto& lane) {
    PLEAT_UNROLL
    for (unsigned r = 0; r < kFloatRegisters; ++r) {
      float value = float_of(lane.words[r]);
      value = value < T::kLargest ? value : T::kLargest;
      value = value > -T::kLargest ? value : -T::kLargest;
      lane.words[r] = bits_of(value);
    }
    Lane<T> packed = packed_lane<T, false>(lane);
    if (moves == Moves::kRuns) move_runs<false>(packed, all.parts(), elements);
    store_lane<T>(packed, target, elements, aligned);
  });
  if (moves == Moves::kElements) lower_elements<T>(tile, all.parts(), elements, target);
  return true;
}

// ---- by form ----

template <class F, class Tile>
PLEAT_HD inline GroupKind encode_form(Tile& tile, const typename F::Source::Word* source,
                                      unsigned elements, bool aligned, uint64_t group,
                                      uint64_t nonce, Metadata<typename F::Coded>* metadata,
                                      uint8_t* slot, const PartsOfGroup& all, bool zeros) {
  GroupKind kind;
  if constexpr (F::kTransformed)
    kind = encode_transformed_group<typename F::Source, F::kBits, F::kScaled>(
        tile, source, elements, aligned, group, nonce, metadata, slot, all);
  else
    kind = encode_group<typename F::Source, F::kBits>(tile, source, elements, aligned, group, nonce,
                                                      metadata, slot, all, zeros);
  // The escape table has the group's own elements.
  if (F::kBits != 0 && !has_wide_groups(F::kBits) && kind == GroupKind::kEscaped && all.any())
    clear_parts(tile, all.parts());
  return kind;
}
template <class F, class Tile>
PLEAT_HD inline bool decode_form(Tile& tile, const Metadata<typename F::Coded>& metadata,
                                 const uint8_t* slot, const EscapeTable& escapes, uint64_t group,
                                 uint64_t nonce, typename F::Source::Word* target,
                                 unsigned elements, bool aligned, const PartsOfGroup& all,
                                 bool zeros) {
  if constexpr (F::kTransformed)
    return decode_transformed_group<typename F::Source, F::kBits, F::kScaled>(
        tile, metadata, slot, escapes, group, nonce, target, elements, aligned, all);
  else
    return decode_group<typename F::Source, F::kBits>(tile, metadata, slot, escapes, group, nonce,
                                                      target, elements, aligned, all, zeros);
}

}  // namespace
}  // namespace pleat::compress
