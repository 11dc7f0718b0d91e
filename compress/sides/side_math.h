// Which side of two bounds a float is on, and the element that represents each side. Included by
// the CPU paths and by the CUDA kernels; anonymous, for the reason given in element_math.h.
//
// The sides are numbered. Of two, 0 is outside and 1 inside; of three, 0 is below, 1 between the
// bounds, and 2 above. All kinds of sides become closed bounds: the least and the largest value of
// side 1.
#pragma once

#include "compress/element_math.h"
#include "compress/kernels.h"

namespace pleat::compress {
namespace {

PLEAT_HD inline unsigned side_of(const SideTest& test, float x) {
  if (test.three) return x < test.first ? 0 : x > test.last ? 2 : 1;
  const bool inside =
      test.nan_inside ? !(x < test.first || x > test.last) : x >= test.first && x <= test.last;
  return inside ? 1 : 0;
}

template <class T>
inline constexpr
    typename T::Word kInfinity = T::kType == 0   ? static_cast<typename T::Word>(0x7F80'0000u)
                                 : T::kType == 1 ? static_cast<typename T::Word>(0x7F80u)
                                                 : static_cast<typename T::Word>(0x7C00u);

// The neighbours of a value among those of its type, infinite ones too; an infinite value has none
// beyond. Zeros of both signs are one value.
template <class T>
PLEAT_HD inline typename T::Word next_above(typename T::Word word) {
  using Word = typename T::Word;
  if (static_cast<Word>(word & ~kSignBit<T>) == 0) return 1;
  if ((word & kSignBit<T>) != 0) return static_cast<Word>(word - 1);
  return word == kInfinity<T> ? word : static_cast<Word>(word + 1);
}
template <class T>
PLEAT_HD inline typename T::Word next_below(typename T::Word word) {
  using Word = typename T::Word;
  return static_cast<Word>(next_above<T>(static_cast<Word>(word ^ kSignBit<T>)) ^ kSignBit<T>);
}

}  // namespace
}  // namespace pleat::compress
