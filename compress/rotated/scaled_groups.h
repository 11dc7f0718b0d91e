// Scaled groups: the form of rotated groups at 1 and 2 bits, and the gate before it.
//
// A rotated group z is nearly Gaussian unless a few elements hold most of its energy. It is rounded
// to the nearest of the levels c that suit a Gaussian of its deviation, and scaled by
// S = |z|^2 / <z, c>. The result is unbiased over rotations, with the least error that any levels
// give (EDEN). No noise is drawn. Anonymous: see kernels.h.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "compress/grouped/group_math.h"
#include "compress/kernels.h"
#include "compress/rotated/rotation.h"
#include "compress/rotated/scaled_math.h"

namespace pleat::compress {
namespace {

typedef float FourFloats __attribute__((vector_size(16)));
typedef double FourDoubles __attribute__((vector_size(32)));
typedef uint64_t FourPatterns __attribute__((vector_size(32)));

inline void widen(const float* from, FourDoubles* to) {
  FourFloats four;
  memcpy(&four, from, sizeof four);
  *to = __builtin_convertvector(four, FourDoubles);
}
inline void drop_signs(FourDoubles* values) {
  FourPatterns bits;
  memcpy(&bits, values, sizeof bits);
  bits &= 0x7FFF'FFFF'FFFF'FFFFu;
  memcpy(values, &bits, sizeof bits);
}

// Takes several sums over a group at once, each in the fixed order: as eight partial sums, in two
// vectors. `add` adds the terms of elements e to e + 3 to one vector.
template <size_t kSums, class Add>
inline void ordered_sums(const Add& add, double* sums) {
  FourDoubles low[kSums] = {}, high[kSums] = {};
  for (size_t e = 0; e < kRotated; e += 8) {
    add(e, low);
    add(e + 4, high);
  }
  for (size_t n = 0; n < kSums; ++n) {
    const FourDoubles a = low[n], b = high[n];
    sums[n] = ((a[0] + a[1]) + (a[2] + a[3])) + ((b[0] + b[1]) + (b[2] + b[3]));
  }
}

// The gate, for a group before it is rotated.
inline bool scaling_suits(const float* x) {
  double sums[3];
  ordered_sums<3>(
      [&](size_t e, FourDoubles* sum) {
        FourDoubles value;
        widen(x + e, &value);
        const FourDoubles squared = value * value;
        sum[0] += squared;
        sum[1] += squared * squared;
        drop_signs(&value);
        sum[2] += value;
      },
      sums);
  return passes_gate(sums[0], sums[1], sums[2]);
}

// Encodes rotated values. False, with nothing written, if there is no good scale, or if the error
// is that of a step wider than the float whose bits are `widest_step`.
//   Planes::pack(bits, codes, count, out)  codes: one byte each
template <class Planes, unsigned kBits>
bool encode_scaled(const float* z, Metadata<Float32>* metadata, uint8_t* slot, BlockResult* result,
                   uint32_t widest_step) {
  double energy;
  ordered_sums<1>(
      [&](size_t e, FourDoubles* sum) {
        FourDoubles value;
        widen(z + e, &value);
        *sum += value * value;
      },
      &energy);
  const float outer = outer_threshold(energy);
  uint8_t codes[kRotated];
  float levels[kRotated];
  for (size_t e = 0; e < kRotated; ++e) {
    codes[e] = static_cast<uint8_t>(scaled_code<kBits>(z[e], outer));
    levels[e] = static_cast<float>(scaled_level<kBits>(z[e], outer));
  }
  double sums[2];  // of |z| times its level, and of its level squared
  ordered_sums<2>(
      [&](size_t e, FourDoubles* sum) {
        FourDoubles value, level;
        widen(z + e, &value);
        widen(levels + e, &level);
        drop_signs(&value);
        sum[0] += value * level;
        sum[1] += level * level;
      },
      sums);
  float scale;
  if (!find_scale(energy, sums[0], &scale)) return false;
  const double error = square(scale) * sums[1] - energy;
  if (12.0 * error > kRotated * square(float_of(widest_step))) return false;
  *metadata = {kScaledMark, bits_of(scale)};
  Planes::pack(kBits, codes, kRotated, slot);
  ++result->lossy_groups;
  return true;
}

template <class Planes, unsigned kBits>
void decode_scaled(const Metadata<Float32>& metadata, const uint8_t* slot, float* z) {
  const float scale = float_of(metadata.second);
  const uint32_t inner = bits_of(scale * kInnerLevel);
  const uint32_t outer = bits_of(scale * (kBits == 1 ? kOneBitLevel : kOuterLevel));
  uint8_t codes[kRotated];
  Planes::unpack(kBits, slot, kRotated, codes);
  for (size_t e = 0; e < kRotated; ++e) {
    const uint32_t code = codes[e], below = (code >> (kBits - 1)) ^ 1;
    const uint32_t level = kBits == 1 || (code & 1) != below ? outer : inner;
    z[e] = float_of(level ^ below << 31);
  }
}

}  // namespace
}  // namespace pleat::compress
