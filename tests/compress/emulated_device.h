// A device in plain C++: the tiles and blocks that the CUDA kernels' code is written against, with
// the lanes as an array.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "compress/booleans/booleans_core.h"
#include "compress/cuda/watch_core.h"
#include "compress/float_types.h"
#include "compress/framed/integers_core.h"
#include "compress/grouped/span_core.h"
#include "compress/in_place/in_place_core.h"
#include "compress/rotated/transform_core.h"
#include "compress/sides/side_core.h"

namespace pleat::compress::test {

template <class T, class L = Lane<T>>
class EmulatedTile {
 public:
  EmulatedTile() {
    for (unsigned l = 0; l < kTileLanes; ++l) lanes_[l].index = l;
  }
  template <class F>
  void each(F f) {
    for (unsigned l = 0; l < kTileLanes; ++l) f(lanes_[backwards_ ? kTileLanes - 1 - l : l]);
  }
  // Lanes last to first: none may depend on another before they are synchronised.
  void turn_round() { backwards_ = !backwards_; }
  template <class U, class F>
  float lesser(F f) {
    return of_halves(combine(f, Packed<T>::lesser_of), compress::lesser);
  }
  template <class U, class F>
  float greater(F f) {
    return of_halves(combine(f, Packed<T>::greater_of), compress::greater);
  }
  template <class F>
  bool any(F f) {
    bool found = false;
    for (Lane<T>& lane : lanes_) found |= f(lane);
    return found;
  }
  template <class F>
  bool any_alone(F f) {
    return any(f);
  }
  template <class F>
  float least_alone(F f) {
    float least = f(lanes_[0]);
    for (Lane<T>& lane : lanes_) least = f(lane) < least ? f(lane) : least;
    return least;
  }
  template <class Has, class F>
  std::uint32_t pick_alone(Has has, F f) {
    for (Lane<T>& lane : lanes_)
      if (has(lane)) return f(lane);
    return 0;
  }

  template <class F>
  auto sum(F f) {
    decltype(f(lanes_[0])) sums[kTileLanes];
    for (Lane<T>& lane : lanes_) sums[lane.index] = f(lane);
    for (unsigned step = 1; step < kTileLanes; step *= 2)
      for (unsigned l = 0; l < kTileLanes; l += 2 * step)
        for (std::size_t n = 0; n < std::size(sums[l].of); ++n)
          sums[l].of[n] += sums[l + step].of[n];
    return sums[0];
  }
  template <class Give, class Take>
  void across(unsigned step, Give give, Take take) {
    std::uint32_t words[kTileLanes];
    for (Lane<T>& lane : lanes_) words[lane.index] = give(lane);
    for (Lane<T>& lane : lanes_) take(lane, words[lane.index ^ step]);
  }
  bool all_of_warp(bool mine) { return mine; }
  template <class F, class G>
  std::uint32_t combine(F f, G g) {
    std::uint32_t word = f(lanes_[0]);
    for (unsigned l = 1; l < kTileLanes; ++l) word = g(word, f(lanes_[l]));
    return word;
  }
  template <class F, class Take>
  std::uint32_t add_up_alone(F f, Take take) {
    std::uint32_t all = 0;
    for (L& lane : lanes_) {
      const std::uint32_t own = f(lane);
      take(lane, all);
      all += own;
    }
    return all;
  }
  void sync_alone() {}
  void sync() {}
  template <class X>
  class PerLane {
   public:
    template <class AnyLane>
    X& operator()(const AnyLane& lane) {
      return of_[lane.index];
    }

   private:
    X of_[kTileLanes];
  };
  std::uint32_t* words() { return words_; }
  static void raise(std::uint32_t* word, std::uint32_t value) { *word = std::max(*word, value); }

 private:
  static float of_halves(std::uint32_t word, float (*choose)(float, float)) {
    return choose(Packed<T>::value(word, 0), Packed<T>::value(word, Packed<T>::kPerRegister - 1));
  }
  L lanes_[kTileLanes]{};
  alignas(16) std::uint32_t words_[36]{};
  bool backwards_ = false;
};

class EmulatedBlock {
 public:
  template <class F>
  void each(std::uint64_t n, F f) {
    for (std::uint64_t i = n; i-- > 0;) f(i);
  }
  template <class G, class F>
  void by_warps(std::uint64_t n, G g, F f) {
    for (std::uint64_t i = n; i-- > 0;) {
      const auto read = g(i);
      for (unsigned lane = 0; lane < 32; ++lane) f(i, read, lane);
    }
  }
  template <class Marked, class F>
  void ranked(std::uint64_t n, Marked marked, F f) {
    std::uint64_t rank = 0;
    for (std::uint64_t i = 0; i < n; ++i)
      if (marked(i)) f(i, rank++);
  }
  template <class Count, class F>
  std::uint32_t numbered(std::uint32_t n, Count count, F f) {
    std::uint32_t rank = 0;
    for (std::uint32_t i = 0; i < n; ++i) {
      const std::uint32_t mine = count(i);
      if (mine != 0) f(i, rank);
      rank += mine;
    }
    return rank;
  }
  template <class F>
  void once(F f) {
    f();
  }
  void sync() {}
  void publish(cuda::Verdict* verdict, cuda::Outcome outcome) { verdict->outcome = outcome; }
};

inline constexpr std::uint64_t kEmulatedStep = 5;  // groups from a tile to the block's next
inline Rows emulated_rows(const Exponents& exponents, const std::int8_t* table, const void* parts) {
  Rows rows;
  rows.set(exponents, table, static_cast<std::int8_t*>(const_cast<void*>(parts)), kEmulatedStep);
  for (unsigned first = 0; first < 8; ++first) rows.set_starts(first);
  return rows;
}

class EmulatedWarp {
 public:
  template <class F>
  std::uint32_t ballot(F f) {
    std::uint32_t votes = 0;
    for (unsigned lane = 0; lane < 32; ++lane) votes |= std::uint32_t{f(lane)} << lane;
    return votes;
  }
  template <class F>
  auto fold(F f) {
    auto all = f(0u);
    for (unsigned lane = 1; lane < 32; ++lane) {
      const auto one = f(lane);
      all.join(one);
      all.other |= one.other;
    }
    return all;
  }
  template <class F>
  void once(F f) {
    f();
  }
};

// The parts of a group. Those of the last group are found at once, as in the last tile of a kernel;
// others by steps, as in its tiles before.
inline PartsOfGroup emulated_parts(Rows* rows, std::uint64_t group, std::uint64_t elements) {
  const std::uint64_t left = elements - group * kGroupSize;
  PartCursor& cursor = rows->place[0];
  cursor = rows->at(left <= kGroupSize ? group : group % kEmulatedStep);
  for (std::uint64_t g = group % kEmulatedStep; left > kGroupSize && g < group; g += kEmulatedStep)
    rows->advance(&cursor);
  return {rows, 0, group, static_cast<unsigned>(std::min<std::uint64_t>(left, kGroupSize))};
}

// Booleans, integers and sides; runs last to first.
template <class Run>
bool emulate_runs(std::uint64_t elements, unsigned length, Run run) {
  bool good = true;
  for (std::uint64_t r = (elements + length - 1) / length; r-- > 0;) good &= run(r);
  return good;
}

// A kernel of grouped floats by its type, width and transform.
template <class Body>
void with_form(ElementType type, unsigned bits, Transform transform, Body body) {
  const auto f = [&]<class T, unsigned kBits>() {
    if constexpr (has_scaled_groups(kBits))
      if (transform == Transform::kHadamardScaled)
        return body.template operator()<Form<T, kBits, true, true>>();
    if constexpr (kBits != 0)
      if (transform != Transform::kNone) return body.template operator()<Form<T, kBits, true>>();
    return body.template operator()<Form<T, kBits>>();
  };
  with_type(type, [&]<class T>() {
    switch (bits) {
      case 0:
        return f.template operator()<T, 0>();
      case 1:
        return f.template operator()<T, 1>();
      case 2:
        return f.template operator()<T, 2>();
      case 3:
        return f.template operator()<T, 3>();
      case 4:
        return f.template operator()<T, 4>();
      case 6:
        return f.template operator()<T, 6>();
      default:
        return f.template operator()<T, 8>();
    }
  });
}

}  // namespace pleat::compress::test
