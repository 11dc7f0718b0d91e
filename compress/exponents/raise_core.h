// Multiplies the elements of a group by their powers of two before the group is coded, by a tile of
// eight lanes (lane_core.h): compress/exponents/raiser.h for the device. measure_core.h has written
// the bytes of parts. Its other half is lower_core.h.
#pragma once

#include <stdint.h>

#include "compress/exponents/part_core.h"
#include "compress/grouped/group_math.h"

namespace pleat::compress {
namespace {

// An element as it is coded. One by one, for groups that are rare.
template <class T>
struct CodedElement {
  using Word = typename T::Word;
  const Word* source;
  PartsOfGroup all;
  const uint32_t* fill;  // float bits of what stands for elements of zero parts

  PLEAT_HD float operator()(unsigned e) const {
    return all.any() ? in_part(all.parts(), e) : T::to_float(source[e]);
  }

 private:
  PLEAT_HD float in_part(GroupParts parts, unsigned e) const {
    const int exponent = parts.bytes[parts.of_element(e)];
    if (exponent == kZeroPart) return float_of(*fill);
    const int entry = ChannelWalk(*parts.rows, parts.group * kGroupSize + e).entry();
    return T::to_float(moved<T>(source[e], exponent_of_element(exponent, entry)));
  }
};

// Elements of zero parts get the value that has code 0 in untransformed groups.
//   zeros  of CodecSpec
template <class T, class Tile>
PLEAT_HD inline typename T::Word fill_of(Tile& tile, const typename T::Word* source,
                                         unsigned elements, const GroupParts& parts, bool zeros) {
  const auto least_of = [&](float sign) {
    return tile.least_alone([&](auto& lane) {
      float least = float_of(0x7F80'0000u);
      each_in_parts(
          lane.index, parts, elements, [&](unsigned, unsigned e, unsigned part, int entry) {
            const int exponent = parts.bytes[part];
            if (exponent == kZeroPart) return;
            const float value =
                sign * T::to_float(moved<T>(source[e], exponent_of_element(exponent, entry)));
            least = is_finite_value(value) && value < least ? value : least;
          });
      return least;
    });
  };
  const float least = least_of(1), most = -least_of(-1);
  if (!(least <= most) || (zeros && keeps_zero_between(least, most))) return 0;
  return T::from_float((most <= 0.0f ? most : least) + 0.0f);  // -0 becomes +0
}

// Any group that moves.
template <class T, class Tile>
PLEAT_HD inline void raise_elements(Tile& tile, const typename T::Word* source, unsigned elements,
                                    const GroupParts& parts, bool transformed, bool zeros) {
  using Word = typename T::Word;
  Word fill = 0;
  if (!transformed && tile.any_alone([&](auto& lane) {
        bool found = false;
        for (unsigned part = lane.index; part < parts.count; part += kTileLanes)
          found |= parts.bytes[part] == kZeroPart;
        return found;
      }))
    fill = fill_of<T>(tile, source, elements, parts, zeros);
  typename Tile::template PerLane<Word[kRuns * kRunLength]> coded_of;
  tile.each([&](auto& lane) {
    if (lane.index == 0) *tile.words() = bits_of(T::to_float(fill));
    Word* const coded = coded_of(lane);
    each_in_parts(lane.index, parts, elements,
                  [&](unsigned n, unsigned e, unsigned part, int entry) {
                    const int exponent = parts.bytes[part];
                    coded[n] = exponent == kZeroPart
                                   ? fill
                                   : moved<T>(source[e], exponent_of_element(exponent, entry));
                  });
  });
  const Word padding =
      static_cast<Word>(tile.pick_alone([](auto& lane) { return lane.index == 0; },
                                        [&](auto& lane) { return uint32_t{coded_of(lane)[0]}; }));
  tile.each([&](auto& lane) {
    Word* const coded = coded_of(lane);
    PLEAT_ROLL
    for (unsigned n = 0; n < kRuns * kRunLength; ++n)
      if (lane.element(n / kRunLength) + n % kRunLength >= elements) coded[n] = padding;
    lane.template pack<T>(coded);
  });
  tile.sync_alone();
}

// Gives the lanes, which hold a group, its elements times their powers of two; all tiles of a warp
// together. The first of the tile's words is its own until the group is coded.
//   Coded  the type of the lanes' elements: T, or float32
template <class T, class Coded, class Tile>
PLEAT_HD inline void raise_group(Tile& tile, const typename T::Word* source, unsigned elements,
                                 const GroupParts& parts, bool transformed, bool zeros) {
  const Moves moves = find_moves<Lane<Coded>>(tile, parts);
  if (moves == Moves::kRuns && elements == kGroupSize)
    tile.each([&](auto& lane) { move_runs<true>(lane, parts, elements); });
  else if (moves != Moves::kNone)
    raise_elements<T>(tile, source, elements, parts, transformed, zeros);
}

}  // namespace
}  // namespace pleat::compress
