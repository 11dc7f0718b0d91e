// The arithmetic of scaled groups that every path shares: levels and mark, the gate, and the values
// computed from a group's sums. "Scaled" in docs/payload_format.md has the formulas. Anonymous, as
// element_math.h is.
#pragma once

#include <stdint.h>

#include "compress/grouped/group_math.h"
#include "compress/grouped/step_math.h"
#include "compress/host_device.h"

namespace pleat::compress {
namespace {

// The levels with the least mean square error for deviation 1 (Max 1960; Lloyd 1982), and the
// threshold between the outer two.
inline constexpr float kScaledThreshold = 0.981598822f;
inline constexpr float kOneBitLevel = 0.797884561f;
inline constexpr float kInnerLevel = 0.452780034f, kOuterLevel = 1.51041761f;
// The first metadata word of a scaled group, a NaN; the second is the scale.
inline constexpr uint32_t kScaledMark = 0x7FC0'0001u;
PLEAT_HD inline bool is_scaled(const Metadata<Float32>& metadata) {
  return metadata.first == kScaledMark && kind_of<Float32>(metadata) == GroupKind::kRegular;
}

// The bias gate, from sums of x^2, x^4 and |x|. If few elements hold most of the energy, the
// coefficients take few values, and rounding moves all of them the same way. sum x^4 <= (sum x^2)^2
// / 8 keeps out single spikes (of more than about 11 deviations in Gaussian data); (sum |x|)^2 >=
// 48 sum x^2 keeps out a few dozen spikes of one height with little between them. NaN and Inf pass
// neither. "Scaled" in docs/payload_format.md says what still gets through.
PLEAT_HD inline bool passes_gate(double energy, double fourth, double sum) {
  return energy < 1e77 && fourth * 8.0 <= energy * energy && sum * sum >= energy * 48.0;
}

// The |z| from which the outer levels are used, for rotated values z with this sum of squares.
PLEAT_HD inline float outer_threshold(double energy) {
#if defined(__CUDA_ARCH__)
  const double deviation = __dsqrt_rn(energy / 256.0);
#else
  const double deviation = __builtin_sqrt(energy / 256.0);
#endif
  return static_cast<float>(deviation) * kScaledThreshold;
}
template <unsigned kBits>
PLEAT_HD inline uint32_t scaled_code(float z, float outer) {
  const uint32_t upper = z >= 0.0f ? 1 : 0;
  if (kBits == 1) return upper;
  return (z >= -outer ? 1u : 0u) + upper + (z >= outer ? 1u : 0u);
}
// The magnitude of the nearest level; its sign is that of z.
template <unsigned kBits>
PLEAT_HD inline double scaled_level(float z, float outer) {
  if (kBits == 1) return kOneBitLevel;
  return z >= outer || !(z >= -outer) ? kOuterLevel : kInnerLevel;
}

// `product`: sum of |z| times its level. False if the scale is too large for sums of 256 levels, or
// too close to the subnormals to be accurate.
PLEAT_HD inline bool find_scale(double energy, double product, float* scale) {
  *scale = float_of(bits_of(static_cast<float>(energy / product)) & ~1u);
  return *scale >= kSmallestStep && *scale <= 1e35f;
}

// The step of a scaled group of Gaussian elements that has its error, in units of its scale. `part`
// of the energy is in the levels, 2 / pi at one bit and 0.8825 at two. Then
//   scale = deviation / part     mean squared error = deviation^2 (1 / part - 1) = step^2 / 12
PLEAT_HD inline constexpr float scaled_step(unsigned bits) { return bits == 1 ? 1.6661f : 1.1155f; }

// As step_of_group(), for groups of which some may be scaled ones if `scaled`.
template <class T>
PLEAT_HD inline float step_of_any_group(const Metadata<T>& metadata, unsigned bits, bool scaled) {
  if constexpr (sizeof(typename T::Word) == 4)
    if (scaled && is_scaled(metadata)) return float_of(metadata.second) * scaled_step(bits);
  return step_of_group<T>(metadata);
}

}  // namespace
}  // namespace pleat::compress
