// Divides the elements of a restored group by their powers of two, by a tile of eight lanes: the
// other half of raise_core.h. A payload may hold any bytes.
#pragma once

#include <stdint.h>

#include "compress/exponents/part_core.h"
#include "compress/grouped/group_math.h"

namespace pleat::compress {
namespace {

// For any group but an escaped one, in its place in the target; the tile has stored it there.
template <class T, class Tile>
PLEAT_HD inline void lower_elements(Tile& tile, const GroupParts& parts, unsigned elements,
                                    typename T::Word* target) {
  tile.sync_alone();
  tile.each([&](auto& lane) {
    each_in_parts(lane.index, parts, elements, [&](unsigned, unsigned e, unsigned part, int entry) {
      const int exponent = parts.bytes[part];
      if (exponent == kZeroPart)
        target[e] = 0;
      else if (exponent != 0)
        target[e] = moved<T>(target[e], -exponent_of_element(exponent, entry));
    });
  });
}

}  // namespace
}  // namespace pleat::compress
