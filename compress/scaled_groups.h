// Scaled groups: the form of rotated groups at 1 and 2 bits, and the gate before it.
//
// A rotated group is nearly Gaussian unless a few elements hold most of its energy. Rounded to the
// nearest of the levels c that suit a Gaussian of its deviation, and scaled by S = |z|^2 / <z, c>,
// it is unbiased over rotations, with the least error any levels have (EDEN). No noise is drawn.
// Anonymous: see kernels.h.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "compress/group_math.h"
#include "compress/kernels.h"
#include "compress/rotation.h"
#include "compress/scaled_math.h"

namespace pleat::compress {
namespace {

// Of term(0..255), in one fixed order whatever the instruction set.
template <class Term>
double ordered_sum(Term&& term) {
  double part[8] = {};
  for (size_t e = 0; e < kRotated; e += 8)
    for (size_t j = 0; j < 8; ++j) part[j] += term(e + j);
  return ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
}

// The gate, of a group before it is rotated.
inline bool scaling_suits(const float* x) {
  const double energy = ordered_sum([&](size_t e) { return square(x[e]); });
  const double fourth = ordered_sum([&](size_t e) { return square(x[e]) * square(x[e]); });
  const double sum = ordered_sum([&](size_t e) { return static_cast<double>(magnitude(x[e])); });
  return passes_gate(energy, fourth, sum);
}

// Of rotated values. False, and nothing written, if there is no good scale.
inline bool encode_scaled(const float* z, unsigned bits, Metadata<Float32>* metadata, uint8_t* slot,
                          BlockResult* result) {
  const double energy = ordered_sum([&](size_t e) { return square(z[e]); });
  const float outer = outer_threshold(energy);
  double c[kRotated];
  uint32_t codes[kRotated];
  for (size_t e = 0; e < kRotated; ++e) {
    c[e] = bits == 1 ? scaled_level<1>(z[e], outer) : scaled_level<2>(z[e], outer);
    codes[e] = bits == 1 ? scaled_code<1>(z[e], outer) : scaled_code<2>(z[e], outer);
  }
  const double product =
      ordered_sum([&](size_t e) { return static_cast<double>(magnitude(z[e])) * c[e]; });
  const double levels = ordered_sum([&](size_t e) { return c[e] * c[e]; });
  float scale;
  if (!find_scale(energy, product, &scale)) return false;
  *metadata = {kScaledMark, bits_of(scale)};
  const unsigned per_byte = 8 / bits;
  for (size_t b = 0; b < kRotated / per_byte; ++b) {
    uint32_t packed = 0;
    for (unsigned i = 0; i < per_byte; ++i) packed |= codes[b * per_byte + i] << (i * bits);
    slot[b] = static_cast<uint8_t>(packed);
  }
  // Entered as the range that would give the same error: SpanStatistics divides by 12 K^2.
  const double largest = static_cast<double>((1u << bits) - 1);
  const double error = square(scale) * levels - energy;
  result->sum_squared_range += 12.0 * largest * largest * (error > 0 ? error : 0);
  result->energy += energy;
  ++result->lossy_groups;
  return true;
}
inline void decode_scaled(const Metadata<Float32>& metadata, unsigned bits, const uint8_t* slot,
                          float* z) {
  const float scale = float_of(metadata.second);
  if (bits == 1) {
    const float level = scale * kOneBitLevel;
    for (size_t e = 0; e < kRotated; ++e) z[e] = (slot[e / 8] >> (e % 8) & 1) != 0 ? level : -level;
  } else {
    const float outer = scale * kOuterLevel, inner = scale * kInnerLevel;
    const float levels[] = {-outer, -inner, inner, outer};
    for (size_t e = 0; e < kRotated; ++e) z[e] = levels[slot[e / 4] >> (e % 4 * 2) & 3];
  }
}

}  // namespace
}  // namespace pleat::compress
