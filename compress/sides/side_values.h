// From what a caller says of sides to what a payload holds of them: closed bounds, and an element
// for each side. Run by the CPU and by the CUDA kernels. Anonymous: see element_math.h.
#pragma once

#include "compress/format.h"
#include "compress/sides/side_math.h"
#include "compress/types.h"

namespace pleat::compress {
namespace {

struct SideValues {
  SideTest test;
  SideWords words;
  bool sound;  // the bounds are values of the type, and no element would need a NaN in its place
};

PLEAT_HD inline bool is_low_bound(float low) { return low != float_of(0xFF80'0000u); }
PLEAT_HD inline bool is_high_bound(float high) { return high != float_of(0x7F80'0000u); }
// Two bounds leave three intervals.
PLEAT_HD inline bool has_two_bounds(const Sides& sides) {
  return is_low_bound(sides.low) && is_high_bound(sides.high);
}

// Elements stand for a side by these rules ("next": the neighbour among values of the type).
//   inside two bounds    their mean
//   inside one bound     the bound + 1 or - 1, if 1 is not lost by rounding and the sum is inside;
//                        else the value of the side that is nearest to the bound
//   inside no bound      0
//   outside              high + 1, or low - 1 if there is no high bound; next to the bound where 1
//                        is lost. Of open sides: the bound itself where it is the only one or 1 is
//                        lost
//   a side without any   an element of the next side
template <class T>
PLEAT_HD inline SideValues side_values(const Sides& sides) {
  using Word = typename T::Word;
  const Word plus = kInfinity<T>, minus = static_cast<Word>(kInfinity<T> | kSignBit<T>);
  const bool three = sides.kind == Sides::Kind::kThree, open = sides.kind == Sides::Kind::kOpen;
  const float low = sides.low + 0.0f, high = sides.high + 0.0f;  // -0 becomes +0
  const bool has_low = is_low_bound(low), has_high = is_high_bound(high);
  SideValues all{};
  if (sides.kind == Sides::Kind::kNone || !(low <= high)) return all;
  const Word low_word = T::from_float(low), high_word = T::from_float(high);
  all.sound = T::to_float(low_word) == low && T::to_float(high_word) == high;
  Word first = has_low ? (open ? next_above<T>(low_word) : low_word) : minus;
  Word last = has_high ? (open ? next_below<T>(high_word) : high_word) : plus;
  const bool empty = T::to_float(first) > T::to_float(last) ||
                     (open && ((has_low && low_word == plus) || (has_high && high_word == minus)));
  if (empty) {
    first = plus;
    last = minus;
  }
  SideTest& test = all.test;
  test = {T::to_float(first), T::to_float(last), sides.nan_inside && !three, three};
  if (!three && !has_low && !has_high) test.nan_inside = true;
  const auto inside = [&test](Word word) {
    const float x = T::to_float(word);
    return x >= test.first && x <= test.last;
  };
  Word middle = 0;
  if (has_low && has_high)
    middle = T::from_float(low == high ? low : static_cast<float>(0.5 * (double{low} + high)));
  else if (has_low)
    middle = T::from_float(low + 1.0f);
  else if (has_high)
    middle = T::from_float(high - 1.0f);
  if (!inside(middle)) middle = has_low ? first : last;
  Word below = middle, above = middle;
  if (has_low) {
    below = T::from_float(low - 1.0f);
    if (open)
      below = low_word;
    else if (inside(below))
      below = next_below<T>(first);
  }
  if (has_high) {
    above = T::from_float(high + 1.0f);
    if (inside(above)) above = next_above<T>(last);
  }
  Word outside = has_high ? above : below;
  if (empty) {
    middle = outside = open && !has_high ? low_word : above;
    all.sound = all.sound && !test.nan_inside;
  }
  all.words = {{three ? below : outside, middle, three ? above : Word{0}}, first, last};
  return all;
}

// The sides from the words of a payload's header.
template <class T>
PLEAT_HD inline SideTest side_test(const SideWords& words, bool three) {
  using Word = typename T::Word;
  return {T::to_float(static_cast<Word>(words.first)), T::to_float(static_cast<Word>(words.last)),
          false, three};
}

// How elements move to the sides of a payload that stands beside values.
template <class T>
PLEAT_HD inline SideMoves side_moves(const SideWords& words, bool three) {
  using Word = typename T::Word;
  SideMoves moves{};
  moves.test = side_test<T>(words, three);
  moves.first = words.first;
  moves.last = words.last;
  moves.has_below = is_low_bound(moves.test.first);
  moves.has_above = is_high_bound(moves.test.last);
  moves.below = next_below<T>(static_cast<Word>(words.first));
  moves.above = next_above<T>(static_cast<Word>(words.last));
  if (!three && !moves.has_below) {  // the one bound is the upper one
    moves.below = moves.above;
    moves.has_below = moves.has_above;
  }
  return moves;
}

// The element, or the nearest value of its side if it is on another one. NaN stays.
template <class T>
PLEAT_HD inline typename T::Word moved_to_side(const SideMoves& moves, unsigned side,
                                               typename T::Word word) {
  using Word = typename T::Word;
  const float x = T::to_float(word);
  const bool low = x<moves.test.first, high = x> moves.test.last;
  const bool inside = x >= moves.test.first && !high;
  if (side == 1 && low) return static_cast<Word>(moves.first);
  if (side == 1 && high) return static_cast<Word>(moves.last);
  if (side == 0 && moves.has_below && (inside || (moves.test.three && high)))
    return static_cast<Word>(moves.below);
  if (side == 2 && moves.has_above && (inside || low)) return static_cast<Word>(moves.above);
  return word;
}

}  // namespace
}  // namespace pleat::compress
