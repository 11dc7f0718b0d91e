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

namespace pleat::compress {
namespace {

// The mean-square optimum for deviation 1 (Max 1960; Lloyd 1982), and the threshold between the
// outer two.
inline constexpr float kScaledThreshold = 0.981598822f;
inline constexpr float kOneBitLevel = 0.797884561f;
inline constexpr float kInnerLevel = 0.452780034f, kOuterLevel = 1.51041761f;
// The first metadata word of a scaled group, a NaN; the second is the scale.
inline constexpr uint32_t kScaledMark = 0x7FC0'0001u;
inline bool is_scaled(const Metadata<Float32>& metadata) {
  return metadata.first == kScaledMark && kind_of<Float32>(metadata) == GroupKind::kRegular;
}

// Of term(0..255), in one fixed order whatever the instruction set.
template <class Term>
double ordered_sum(Term&& term) {
  double part[8] = {};
  for (size_t e = 0; e < kRotated; e += 8)
    for (size_t j = 0; j < 8; ++j) part[j] += term(e + j);
  return ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
}

// The bias gate. Few elements with most of the energy make coefficients that take few values, which
// rounding moves all the same way: sum x^4 <= (sum x^2)^2 / 8 keeps out single spikes (of more than
// about 11 deviations in Gaussian data), (sum |x|)^2 >= 48 sum x^2 a few dozen spikes of one height
// with little between them. NaN and Inf pass neither. What is let in all the same: "Scaled" in
// docs/payload_format.md.
inline bool scaling_suits(const float* x) {
  const double energy = ordered_sum([&](size_t e) { return square(x[e]); });
  const double fourth = ordered_sum([&](size_t e) { return square(x[e]) * square(x[e]); });
  const double sum = ordered_sum([&](size_t e) { return static_cast<double>(magnitude(x[e])); });
  return energy < 1e77 && fourth * 8.0 <= energy * energy && sum * sum >= energy * 48.0;
}

// Of rotated values. False, and nothing written, if the scale is beyond what sums of 256 levels can
// take, or too close to the subnormals to be accurate.
inline bool encode_scaled(const float* z, unsigned bits, Metadata<Float32>* metadata, uint8_t* slot,
                          BlockResult* result) {
  const double energy = ordered_sum([&](size_t e) { return square(z[e]); });
  const float outer = static_cast<float>(__builtin_sqrt(energy / kRotated)) * kScaledThreshold;
  float c[kRotated];
  uint32_t codes[kRotated];
  if (bits == 1) {
    for (size_t e = 0; e < kRotated; ++e) {
      c[e] = z[e] >= 0.0f ? kOneBitLevel : -kOneBitLevel;
      codes[e] = z[e] >= 0.0f ? 1 : 0;
    }
  } else {
    for (size_t e = 0; e < kRotated; ++e) {
      const float above = z[e] >= outer ? kOuterLevel : kInnerLevel;
      const float below = z[e] >= -outer ? -kInnerLevel : -kOuterLevel;
      c[e] = z[e] >= 0.0f ? above : below;
      codes[e] = (z[e] >= -outer ? 1u : 0u) + (z[e] >= 0.0f ? 1u : 0u) + (z[e] >= outer ? 1u : 0u);
    }
  }
  const double product =
      ordered_sum([&](size_t e) { return static_cast<double>(z[e]) * static_cast<double>(c[e]); });
  const double levels = ordered_sum([&](size_t e) { return square(c[e]); });
  const float scale = float_of(bits_of(static_cast<float>(energy / product)) & ~1u);
  if (!(scale >= kSmallestStep && scale <= 1e35f)) return false;
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
