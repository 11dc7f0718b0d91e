// The arithmetic of single elements, and the random numbers of a payload. Every path does it in the
// same order. Included by each instruction set's file and by the CUDA kernels; anonymous, so that
// they share no copy.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "compress/host_device.h"

namespace pleat::compress {
namespace {

PLEAT_HD inline uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}
PLEAT_HD inline float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}
PLEAT_HD inline float magnitude(float value) { return float_of(bits_of(value) & 0x7FFF'FFFFu); }

inline constexpr uint32_t kLargestFinite = 0x7F7F'FFFFu;  // the bits of the largest float
PLEAT_HD inline bool is_finite_value(float value) {
  return magnitude(value) < float_of(0x7F80'0000u);
}

PLEAT_HD inline float power_of_two(int exponent) {
  return float_of(static_cast<uint32_t>(127 + exponent) << 23);
}

// a * b + c with one rounding, whatever the compiler's flags.
PLEAT_HD inline float fused(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
  return __fmaf_rn(a, b, c);
#else
  return __builtin_fmaf(a, b, c);
#endif
}

// IEEE binary16, round to nearest even; subnormals kept.
PLEAT_HD inline uint16_t half_of(float value) {
  const uint32_t bits = bits_of(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t rest = bits & 0x7FFF'FFFFu;
  if (rest > 0x7F80'0000u) return static_cast<uint16_t>(sign | 0x7E00u | ((rest >> 13) & 0x3FFu));
  if (rest >= 0x477F'F000u) return static_cast<uint16_t>(sign | 0x7C00u);
  if (rest < 0x3880'0000u) {                     // below the smallest normal half 2^-24 is the unit
    const float scaled = float_of(rest) + 0.5f;  // the addition rounds at 2^-24, to nearest even
    return static_cast<uint16_t>(sign | (bits_of(scaled) - 0x3F00'0000u));
  }
  const uint32_t rounded = rest + 0xFFFu + ((rest >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((rounded - 0x3800'0000u) >> 13));
}
PLEAT_HD inline float float_of_half(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 31u;
  const uint32_t mantissa = half & 0x3FFu;
  if (exponent == 31)
    return float_of(sign | 0x7F80'0000u | (mantissa << 13) | (mantissa != 0 ? 0x40'0000u : 0));
  if (exponent != 0) return float_of(sign | ((exponent + 112u) << 23) | (mantissa << 13));
  return float_of(sign | bits_of(static_cast<float>(mantissa) * 5.9604644775390625e-8f));  // 2^-24
}
PLEAT_HD inline uint16_t bfloat_of(
    float value) {  // round to nearest even; never given a NaN that matters
  const uint32_t bits = bits_of(value);
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

// The three source types. `Word` is both an element's storage and a metadata word.
//   kStepRounding    a step is rounded up to a multiple of this in the bits of a float
//   kTiny            one-signed groups closer to zero than this are not dithered
//   kEvenFirst       vectors hold the even, then the odd elements of 16 (AVX-512: 32)
//   kInfinity, kNan  bit patterns
//   kWideEnd, kWideShift, kWideBase  how a wide group's second word tells its step: step_bits_of()
//   kSmallestWide    the bits of a wide group's smallest step
struct Float32 {
  using Word = uint32_t;
  static constexpr unsigned kType = 0;
  static constexpr uint32_t kStepRounding = 1u;
  static constexpr unsigned kStepShift = 0;
  static constexpr float kLargest = 3.40282346638528859811704183484516925e+38f;
  static constexpr float kTiny = 1.17549435082228750796873653722224568e-38f;  // 2^-126
  static constexpr bool kEvenFirst = false;
  static constexpr Word kInfinity = 0x7F80'0000u, kNan = 0x7FC0'0000u;
  static constexpr Word kWideEnd = 1u << 27;
  static constexpr unsigned kWideShift = 4;
  static constexpr uint32_t kWideBase = 0;
  static constexpr uint32_t kSmallestWide = 17u << 23;  // 2^-110
  PLEAT_HD static float to_float(Word word) { return float_of(word); }
  PLEAT_HD static Word from_float(float value) { return bits_of(value); }
};
struct BFloat16 {
  using Word = uint16_t;
  static constexpr unsigned kType = 1;
  static constexpr uint32_t kStepRounding = 0x1'FFFFu;
  static constexpr unsigned kStepShift = 16;
  static constexpr float kLargest = 3.38953138925153547590470800371487867e+38f;
  static constexpr float kTiny = 1.17549435082228750796873653722224568e-38f;
  static constexpr bool kEvenFirst = true;
  static constexpr Word kInfinity = 0x7F80u, kNan = 0x7FC0u;
  static constexpr Word kWideEnd = 1u << 11;
  static constexpr unsigned kWideShift = 20;
  static constexpr uint32_t kWideBase = 0;
  static constexpr uint32_t kSmallestWide = 17u << 23;
  PLEAT_HD static float to_float(Word word) { return float_of(static_cast<uint32_t>(word) << 16); }
  PLEAT_HD static Word from_float(float value) { return bfloat_of(value); }
};
struct Float16 {
  using Word = uint16_t;
  static constexpr unsigned kType = 2;
  static constexpr uint32_t kStepRounding = 0x1'FFFFu;
  static constexpr unsigned kStepShift = 16;
  static constexpr float kLargest = 65504.0f;
  static constexpr float kTiny = 5.9604644775390625e-8f;  // 2^-24
  static constexpr bool kEvenFirst = false;
  static constexpr Word kInfinity = 0x7C00u, kNan = 0x7E00u;
  static constexpr Word kWideEnd = 1u << 11;
  static constexpr unsigned kWideShift = 18;
  static constexpr uint32_t kWideBase = 94u << 23;
  static constexpr uint32_t kSmallestWide = 95u << 23;  // 2^-32: no two halves are nearer per code
  PLEAT_HD static float to_float(Word word) { return float_of_half(word); }
  PLEAT_HD static Word from_float(float value) { return half_of(value); }
};

template <class T>
constexpr
    typename T::Word kSignBit = static_cast<typename T::Word>(1u << (8 * sizeof(typename T::Word) -
                                                                     1));

// The planes that codes of `bits` bits lie in: the low bits of all elements, then their high bits.
// Planes of 8, 4, 2 or 1 bits are all there is, so 3 is 2 and 1, and 6 is 4 and 2; other widths
// have one plane.
struct CodePlanes {
  unsigned low;
  unsigned high;  // 0: there is no second plane

  PLEAT_HD constexpr unsigned low_mask() const { return (1u << low) - 1; }
  PLEAT_HD constexpr unsigned high_mask() const { return (1u << high) - 1; }
  // Bytes of the first plane, in which the codes of every eight elements take whole bytes.
  PLEAT_HD constexpr size_t low_bytes(size_t elements) const { return elements / 8 * low; }
};
PLEAT_HD inline constexpr CodePlanes planes_of(unsigned bits) {
  const unsigned low = bits >= 8 ? 8 : bits >= 4 ? 4 : bits >= 2 ? 2 : bits;
  return {low, bits - low};
}

inline constexpr uint32_t kPhiloxM0 = 0xD251'1F53u;
inline constexpr uint32_t kPhiloxM1 = 0xCD9E'8D57u;
inline constexpr uint32_t kPhiloxW0 = 0x9E37'79B9u;
inline constexpr uint32_t kPhiloxW1 = 0xBB67'AE85u;

// The 64 bits of a product, as two words. (For one 64-bit value, ptxas adds an addition of zero.)
PLEAT_HD inline void multiply_wide(uint32_t a, uint32_t b, uint32_t* low, uint32_t* high) {
#if defined(__CUDA_ARCH__)
  asm("{.reg .b64 p; mul.wide.u32 p, %2, %3; mov.b64 {%0, %1}, p;}"
      : "=r"(*low), "=r"(*high)
      : "r"(a), "r"(b));
#else
  const uint64_t product = uint64_t{a} * b;
  *low = static_cast<uint32_t>(product);
  *high = static_cast<uint32_t>(product >> 32);
#endif
}

// Philox4x32-7 (Salmon et al., SC 2011): key = nonce, counter = (call, group low, group high, 0).
struct PhiloxWords {
  uint32_t word[4];
};
PLEAT_HD inline PhiloxWords philox(uint64_t nonce, uint64_t group, uint32_t call) {
  uint32_t c0 = call, c1 = static_cast<uint32_t>(group), c2 = static_cast<uint32_t>(group >> 32),
           c3 = 0;
  uint32_t k0 = static_cast<uint32_t>(nonce), k1 = static_cast<uint32_t>(nonce >> 32);
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
  for (int round = 0; round < 7; ++round) {
    uint32_t low0, high0, low1, high1;
    multiply_wide(kPhiloxM0, c0, &low0, &high0);
    multiply_wide(kPhiloxM1, c2, &low1, &high1);
    c0 = high1 ^ c1 ^ k0;
    c1 = low1;
    c2 = high0 ^ c3 ^ k1;
    c3 = low0;
    k0 += kPhiloxW0;
    k1 += kPhiloxW1;
  }
  return {{c0, c1, c2, c3}};
}
inline constexpr uint32_t kSignCall = 16;  // calls 0 to 15 of a group are its noise
// The 16 noise bytes of a call, in the payload's order.
PLEAT_HD inline PhiloxWords noise_words(uint64_t nonce, uint64_t group, uint32_t call) {
  const PhiloxWords words = philox(nonce, group, call);
  return {{words.word[1], words.word[0], words.word[3], words.word[2]}};
}

PLEAT_HD inline double square(float value) {
  return static_cast<double>(value) * static_cast<double>(value);
}

}  // namespace
}  // namespace pleat::compress
