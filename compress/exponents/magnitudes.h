// Largest magnitudes and ranges of runs of elements, in vectors of the compiler. Anonymous: see
// kernels.h.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "compress/element_math.h"
#include "compress/exponents/exponents.h"

namespace pleat::compress {
namespace {

template <class Word>
struct SignedWord {
  using Type = int32_t;
};
template <>
struct SignedWord<uint16_t> {
  using Type = int16_t;
};
// Elements of a vector, by clang's name or by older GCCs'.
#if defined(__has_builtin) && __has_builtin(__builtin_shufflevector)
#define PLEAT_SHUFFLE(v, ...) __builtin_shufflevector(v, v, __VA_ARGS__)
#else
#define PLEAT_SHUFFLE(v, ...) __builtin_shuffle(v, Vector{__VA_ARGS__})
#endif
template <class Signed, class Vector>
inline Signed largest_lane(const Vector& all) {
  if constexpr (sizeof all > 16) {
    typedef Signed Half __attribute__((vector_size(sizeof all / 2)));
    Half halves[2];
    memcpy(halves, &all, sizeof all);
    return largest_lane<Signed>(halves[0] > halves[1] ? halves[0] : halves[1]);
  } else {
    const auto larger = [](const Vector& a, const Vector& b) { return a > b ? a : b; };
    if constexpr (sizeof(Signed) == 4) {
      const Vector two = larger(all, PLEAT_SHUFFLE(all, 2, 3, 0, 1));
      return larger(two, PLEAT_SHUFFLE(two, 1, 0, 3, 2))[0];
    } else {
      const Vector four = larger(all, PLEAT_SHUFFLE(all, 4, 5, 6, 7, 0, 1, 2, 3));
      const Vector two = larger(four, PLEAT_SHUFFLE(four, 2, 3, 0, 1, 6, 7, 4, 5));
      return larger(two, PLEAT_SHUFFLE(two, 1, 0, 3, 2, 5, 4, 7, 6))[0];
    }
  }
}
#undef PLEAT_SHUFFLE

// The largest of `count` words without their signs, as the compiler's vectors of `kBytes`.
template <size_t kBytes, class Word>
inline Word largest_magnitude(const Word* words, size_t count) {
  using Signed = typename SignedWord<Word>::Type;
  typedef Signed Vector __attribute__((vector_size(kBytes)));
  constexpr size_t kLanes = kBytes / sizeof(Word);
  constexpr auto kMagnitude = static_cast<Signed>(~(Word{1} << (8 * sizeof(Word) - 1)));
  if (count < kLanes) {
    if constexpr (kBytes > 16) return largest_magnitude<kBytes / 2>(words, count);
    Word most = 0;
    for (size_t e = 0; e < count; ++e) {
      const Word size = words[e] & static_cast<Word>(kMagnitude);
      most = size > most ? size : most;
    }
    return most;
  }
  Vector all = {};
  const auto fold = [&](const Word* from) {
    Vector size;
    memcpy(&size, from, sizeof size);
    size &= kMagnitude;
    all = size > all ? size : all;
  };
  for (size_t e = 0; e + kLanes <= count; e += kLanes) fold(words + e);
  if (count % kLanes != 0) fold(words + count - kLanes);
  return static_cast<Word>(largest_lane<Signed>(all));
}

// The finite ones among 256 values. NaN where there are none.
struct FiniteRange {
  float least, most;

  explicit FiniteRange(const float* values) {
    typedef float Vector __attribute__((vector_size(32)));
    const float infinity = float_of(0x7F80'0000u);
    Vector low = Vector{} + infinity, high = -low;
    for (size_t e = 0; e < kElementsOfGroup; e += 8) {
      Vector value;
      memcpy(&value, values + e, sizeof value);
      value += value - value;  // NaN where it is not finite; then no comparison is true
      low = value < low ? value : low;
      high = value > high ? value : high;
    }
    least = infinity, most = -infinity;
    for (size_t lane = 0; lane < 8; ++lane) {
      least = low[lane] < least ? low[lane] : least;
      most = high[lane] > most ? high[lane] : most;
    }
  }
};

}  // namespace
}  // namespace pleat::compress
