// Replaces arguments that were just restored by their activation. A restored argument is x + u,
// with u uniform and as wide as its group's step. To second order E f(x + u) = f(x) + s f''(x) with
// s = step^2 / 24. So s f'' is subtracted, and the result is nearly unbiased, as a stored one is.
// Plain loops: each instruction set's file compiles them to its own vectors, with the same results.
// Anonymous: see kernels.h.
#pragma once

#include "compress/grouped/group_math.h"
#include "compress/kernels.h"

namespace pleat::compress {
namespace {

inline float clamped(float x, float limit) {
  x = x < limit ? x : limit;
  return x > -limit ? x : -limit;
}

// Exactly -1 and 1 beyond the limit, so that -inf times the zero left over is NaN, as in torch.
inline float saturated(float x, float limit, float near) {
  near = x < limit ? near : 1.0f;
  return x > -limit ? near : -1.0f;
}

// erf and tanh as x P(x^2) / Q(x^2), up to where the function is flat. Fitted by reweighted least
// squares; errors below 1e-6 (erf) and 7e-7 (tanh).
inline float erf_of(float value) {
  const float x = clamped(value, 4.0f);
  const float z = x * x;
  float p = -1.095050948e-06f;
  p = p * z + 1.901431388e-04f;
  p = p * z + 7.833316922e-03f;
  p = p * z + 6.572020799e-02f;
  p = p * z + 3.113179505e-01f;
  p = p * z + 1.128384709e+00f;
  float q = 1.776506775e-03f;
  q = q * z + 2.365147322e-02f;
  q = q * z + 1.612446457e-01f;
  q = q * z + 6.092721224e-01f;
  q = q * z + 1.0f;
  return saturated(value, 4.0f, x * p / q);
}
inline float tanh_of(float value) {
  const float x = clamped(value, 9.0f);
  const float z = x * x;
  float p = -4.933824904e-09f;
  p = p * z + 6.429313089e-06f;
  p = p * z + 2.592300531e-03f;
  p = p * z + 1.260681301e-01f;
  p = p * z + 9.999976158e-01f;
  float q = 1.837470336e-04f;
  q = q * z + 2.239822038e-02f;
  q = q * z + 4.593933821e-01f;
  q = q * z + 1.0f;
  return saturated(value, 9.0f, x * p / q);
}

// Both GELUs of noisy arguments, in a third of the time: x (1/2 + x P(x^2)), with an error of at
// most 1e-4 (1 + |x|), where 4-bit noise is 0.04. The second derivative is close to
// phi(x) (2 - x^2), and exp(-x^2/2) to (1 - x^2/16)^8: an error of 0.04, in a correction only.
inline float noisy_gelu(const float* p, float x, float spread) {
  const float near = clamped(x, 4.0f);
  const float z = near * near;
  const float z2 = z * z;  // Estrin's order: each step of a chain would wait for the one before
  const float low = (p[0] + p[1] * z) + (p[2] + p[3] * z) * z2;
  const float high = (p[4] + p[5] * z) + (p[6] + p[7] * z) * z2;
  const float r = low + high * (z2 * z2);
  float w = 1.0f - z * 0.0625f;
  w *= w;
  w *= w;
  w *= w;
  return x * (0.5f + near * r) - spread * 0.398942280f * (w * (2.0f - z));
}

struct Gelu {
  static float exact(float x) { return 0.5f * x * (1.0f + erf_of(x * 0.707106781f)); }
  static float noisy(float x, float spread) {
    constexpr float kP[] = {3.986733854e-01f,  -6.588784605e-02f, 9.505400434e-03f,
                            -1.006491017e-03f, 7.485512469e-05f,  -3.657138905e-06f,
                            1.041962889e-07f,  -1.301298402e-09f};
    return noisy_gelu(kP, x, spread);
  }
};
struct GeluTanh {
  static float exact(float x) {
    return 0.5f * x * (1.0f + tanh_of(0.797884561f * x * (1.0f + 0.044715f * x * x)));
  }
  static float noisy(float x, float spread) {
    constexpr float kP[] = {3.986169994e-01f,  -6.609841436e-02f, 9.654333815e-03f,
                            -1.043324941e-03f, 7.942598313e-05f,  -3.966083113e-06f,
                            1.150931865e-07f,  -1.458691834e-09f};
    return noisy_gelu(kP, x, spread);
  }
};
struct Silu {
  static float exact(float x) { return 0.5f * x * (1.0f + tanh_of(0.5f * x)); }
  static float noisy(float x, float spread) {
    const float t = tanh_of(0.5f * x);
    return 0.5f * x * (1.0f + t) -
           spread * (0.25f * (1.0f - t * t) * (2.0f - clamped(x, 16.0f) * t));
  }
};

template <class Function>
void apply_to_floats(float* values, size_t count, float spread) {
  if (spread == 0.0f) {
    for (size_t e = 0; e < count; ++e) values[e] = Function::exact(values[e]);
  } else {
    for (size_t e = 0; e < count; ++e) values[e] = Function::noisy(values[e], spread);
  }
}

// Half the variance of a group's noise. 0 for exact groups, and for groups that keep zero, so that
// zero stays zero. Where a step is so wide that the derivative changes within it, the correction
// would be too large: steps count as at most 2.
template <class T>
float spread_of(const ApplyFunction& job, size_t group) {
  if (job.metadata == nullptr) return 0.0f;
  Metadata<T> metadata;
  memcpy(&metadata, static_cast<const uint8_t*>(job.metadata) + group * sizeof metadata,
         sizeof metadata);
  if (kind_of<T>(metadata) != GroupKind::kRegular) return 0.0f;
  const Dequantiser known = read_group<T>(metadata, job.bits, job.zeros);
  if (known.keep_zero) return 0.0f;
  float step = magnitude(known.step) / job.divided_by;
  step = step < 2.0f ? step : 2.0f;
  return step * step * (known.dither ? 1.0f / 24.0f : 1.0f / 12.0f);  // else stochastic rounding
}

template <class T, class Function>
void apply_to_groups(const ApplyFunction& job) {
  using Word = typename T::Word;
  constexpr size_t kGroup = 256;
  const size_t groups = job.groups + (job.tail_elements != 0 ? 1 : 0);
  for (size_t g = 0; g < groups; ++g) {
    Word* const words = static_cast<Word*>(job.data) + g * kGroup;
    const size_t count = g < job.groups ? kGroup : job.tail_elements;
    const float spread = spread_of<T>(job, g);
    if constexpr (sizeof(Word) == sizeof(float)) {
      apply_to_floats<Function>(static_cast<float*>(job.data) + g * kGroup, count, spread);
    } else {
      float values[kGroup];
      for (size_t e = 0; e < count; ++e) values[e] = T::to_float(words[e]);
      apply_to_floats<Function>(values, count, spread);
      for (size_t e = 0; e < count; ++e) words[e] = T::from_float(values[e]);
    }
  }
}

template <class T>
void apply_function(const ApplyFunction& job) {
  switch (job.function) {
    case ApplyFunction::kGelu:
      return apply_to_groups<T, Gelu>(job);
    case ApplyFunction::kGeluTanh:
      return apply_to_groups<T, GeluTanh>(job);
    case ApplyFunction::kSilu:
      return apply_to_groups<T, Silu>(job);
  }
}

}  // namespace
}  // namespace pleat::compress
