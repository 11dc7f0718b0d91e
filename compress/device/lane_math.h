// Register operations of a lane: picking bytes, packed minima and maxima, 16-bit float conversions.
// On a GPU each function is an instruction or two; elsewhere it is plain C++, so that the kernels'
// code also runs, and is tested, on a CPU. Anonymous, as element_math.h is.
#pragma once

#include <stdint.h>
#include <string.h>

#include "compress/element_math.h"
#include "compress/host_device.h"

#if !defined(__CUDA_ARCH__)
#endif

namespace pleat::compress {
namespace {

// Byte n of the result is byte (nibble n of `selector`) of the eight bytes b:a.
PLEAT_HD inline uint32_t pick_bytes(uint32_t a, uint32_t b, uint32_t selector) {
#if defined(__CUDA_ARCH__)
  return __byte_perm(a, b, selector);
#else
  const uint64_t bytes = uint64_t{b} << 32 | a;
  uint32_t picked = 0;
  for (unsigned n = 0; n < 4; ++n)
    picked |= static_cast<uint32_t>(bytes >> (8 * (selector >> (4 * n) & 7)) & 0xFF) << (8 * n);
  return picked;
#endif
}

// NaN if either is NaN, so a group with a NaN has a NaN minimum. The sign of a zero does not
// matter.
PLEAT_HD inline float lesser(float a, float b) {
#if defined(__CUDA_ARCH__)
  float least;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(least) : "f"(a), "f"(b));
  return least;
#else
  return a != a ? a : b != b ? b : b < a ? b : a;
#endif
}
PLEAT_HD inline float greater(float a, float b) {
#if defined(__CUDA_ARCH__)
  float most;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(most) : "f"(a), "f"(b));
  return most;
#else
  return a != a ? a : b != b ? b : b > a ? b : a;
#endif
}

// A lane's elements lie in 32-bit registers as they lie in memory. Per element type:
//   kPerRegister  elements in one
//   value         element `which` of a register as a float
//   lesser, greater  of both halves of two registers; like the float functions above
//   pack          kPerRegister floats, rounded to the type
//   magnitude_of  of the elements of a register
//   factor        2^exponent as times() takes it; the exponent is at most kFarthest, at least one
//                 less below zero
//   factors       of the elements of a register, the exponents being exponent(which)
//   times         the elements of a register times a factor, rounded to the type; not for NaN
template <class T>
struct Packed;

template <>
struct Packed<Float32> {
  static constexpr unsigned kPerRegister = 1;
  PLEAT_HD static float value(uint32_t bits, unsigned) { return float_of(bits); }
  PLEAT_HD static uint32_t pattern(uint32_t bits, unsigned) { return bits; }
  PLEAT_HD static uint32_t repeat(uint32_t pattern) { return pattern; }
  PLEAT_HD static uint32_t lesser_of(uint32_t a, uint32_t b) {
    return bits_of(lesser(float_of(a), float_of(b)));
  }
  PLEAT_HD static uint32_t greater_of(uint32_t a, uint32_t b) {
    return bits_of(greater(float_of(a), float_of(b)));
  }
  PLEAT_HD static uint32_t pack(float first, float) { return bits_of(first); }
  static constexpr unsigned kFarthest = 120;
  PLEAT_HD static uint32_t magnitude_of(uint32_t bits) {
#if defined(__CUDA_ARCH__)
    return bits_of(fabsf(float_of(bits)));  // costs nothing, as it becomes part of what follows
#else
    return bits_of(magnitude(float_of(bits)));
#endif
  }
  PLEAT_HD static uint32_t factor(int exponent) { return bits_of(power_of_two(exponent)); }
  template <class Exponent>
  PLEAT_HD static uint32_t factors(Exponent exponent) {
    return factor(exponent(0));
  }
  PLEAT_HD static uint32_t times(uint32_t bits, uint32_t factor) {
    return bits_of(float_of(bits) * float_of(factor));
  }
};

template <class T>
struct PackedPair {
  static constexpr unsigned kPerRegister = 2;
  PLEAT_HD static uint32_t pattern(uint32_t bits, unsigned which) {
    return which == 0 ? bits & 0xFFFFu : bits >> 16;
  }
  PLEAT_HD static uint32_t repeat(uint32_t pattern) { return pattern | pattern << 16; }
  static constexpr unsigned kFarthest = T::kType == BFloat16::kType ? 120 : 14;
  PLEAT_HD static uint32_t magnitude_of(uint32_t bits) {
#if defined(__CUDA_ARCH__)
    if constexpr (T::kType == BFloat16::kType)
      asm("abs.bf16x2 %0, %1;" : "=r"(bits) : "r"(bits));
    else
      asm("abs.f16x2 %0, %1;" : "=r"(bits) : "r"(bits));
    return bits;
#else
    return bits & 0x7FFF'7FFFu;
#endif
  }
  PLEAT_HD static uint32_t factor(int exponent) {
    constexpr int kBias = T::kType == BFloat16::kType ? 127 : 15;
    constexpr unsigned kMantissaBits = T::kType == BFloat16::kType ? 7 : 10;
    return repeat(static_cast<uint32_t>(kBias + exponent) << kMantissaBits & 0xFFFFu);
  }
  template <class Exponent>
  PLEAT_HD static uint32_t factors(Exponent exponent) {
    constexpr int kBias = T::kType == BFloat16::kType ? 127 : 15;
    constexpr unsigned kMantissaBits = T::kType == BFloat16::kType ? 7 : 10;
    return static_cast<uint32_t>(kBias + exponent(0)) << kMantissaBits |
           static_cast<uint32_t>(kBias + exponent(1)) << (16 + kMantissaBits);
  }
  PLEAT_HD static uint32_t times(uint32_t bits, uint32_t factor) {
#if defined(__CUDA_ARCH__)
    if constexpr (T::kType == BFloat16::kType)
      asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(bits) : "r"(bits), "r"(factor), "r"(0x8000'8000u));
    else
      asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(bits) : "r"(bits), "r"(factor));
    return bits;
#else
    uint32_t both = 0;
    for (unsigned which = 0; which < 2; ++which)
      both |= uint32_t{T::from_float(T::to_float(static_cast<uint16_t>(pattern(bits, which))) *
                                     T::to_float(static_cast<uint16_t>(pattern(factor, which))))}
              << (16 * which);
    return both;
#endif
  }
  PLEAT_HD static uint32_t lesser_of(uint32_t a, uint32_t b) {
#if defined(__CUDA_ARCH__)
    if constexpr (T::kType == BFloat16::kType)
      asm("min.NaN.bf16x2 %0, %1, %2;" : "=r"(a) : "r"(a), "r"(b));
    else
      asm("min.NaN.f16x2 %0, %1, %2;" : "=r"(a) : "r"(a), "r"(b));
    return a;
#else
    return of_halves(a, b, lesser);
#endif
  }
  PLEAT_HD static uint32_t greater_of(uint32_t a, uint32_t b) {
#if defined(__CUDA_ARCH__)
    if constexpr (T::kType == BFloat16::kType)
      asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(a) : "r"(a), "r"(b));
    else
      asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(a) : "r"(a), "r"(b));
    return a;
#else
    return of_halves(a, b, greater);
#endif
  }

 private:
#if !defined(__CUDA_ARCH__)
  static uint32_t of_halves(uint32_t a, uint32_t b, float (*chosen)(float, float)) {
    uint32_t both = 0;
    for (unsigned which = 0; which < 2; ++which) {
      const float one = chosen(T::to_float(static_cast<uint16_t>(pattern(a, which))),
                               T::to_float(static_cast<uint16_t>(pattern(b, which))));
      both |= (one != one ? 0x7FFFu : uint32_t{T::from_float(one)}) << (16 * which);
    }
    return both;
  }
#endif
};

template <>
struct Packed<BFloat16> : PackedPair<BFloat16> {
  PLEAT_HD static float value(uint32_t bits, unsigned which) {
    return float_of(which == 0 ? bits << 16 : bits & 0xFFFF'0000u);
  }
  PLEAT_HD static uint32_t pack(float first, float second) {
#if defined(__CUDA_ARCH__)
    uint32_t both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
    return both;
#else
    return BFloat16::from_float(first) | uint32_t{BFloat16::from_float(second)} << 16;
#endif
  }
};

template <>
struct Packed<Float16> : PackedPair<Float16> {
  PLEAT_HD static float value(uint32_t bits, unsigned which) {
#if defined(__CUDA_ARCH__)
    float wide;
    if (which == 0)
      asm("{.reg .b16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, l;}" : "=f"(wide) : "r"(bits));
    else
      asm("{.reg .b16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, h;}" : "=f"(wide) : "r"(bits));
    return wide;
#else
    return Float16::to_float(static_cast<uint16_t>(pattern(bits, which)));
#endif
  }
  PLEAT_HD static uint32_t pack(float first, float second) {
#if defined(__CUDA_ARCH__)
    uint32_t both;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
    return both;
#else
    return Float16::from_float(first) | uint32_t{Float16::from_float(second)} << 16;
#endif
  }
};

// Sixteen bytes to and from aligned memory.
PLEAT_HD inline void load16(const void* from, uint32_t* words) {
#if defined(__CUDA_ARCH__)
  const uint4 four = *static_cast<const uint4*>(from);
  words[0] = four.x, words[1] = four.y, words[2] = four.z, words[3] = four.w;
#else
  memcpy(words, from, 16);
#endif
}
PLEAT_HD inline void store16(void* to, const uint32_t* words) {
#if defined(__CUDA_ARCH__)
  *static_cast<uint4*>(to) = make_uint4(words[0], words[1], words[2], words[3]);
#else
  memcpy(to, words, 16);
#endif
}

PLEAT_HD inline unsigned count_bits(uint32_t word) {
#if defined(__CUDA_ARCH__)
  return static_cast<unsigned>(__popc(word));
#else
  return static_cast<unsigned>(__builtin_popcount(word));
#endif
}
PLEAT_HD inline unsigned lowest_bit(uint32_t word) {
#if defined(__CUDA_ARCH__)
  return static_cast<unsigned>(__ffs(static_cast<int>(word)) - 1);
#else
  return static_cast<unsigned>(__builtin_ctz(word));
#endif
}

PLEAT_HD constexpr uint64_t round_up_64(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

// The position of the highest set bit, counted from 1; 0 if none is set.
PLEAT_HD inline unsigned bits_needed(uint32_t value) {
#if defined(__CUDA_ARCH__)
  return 32 - static_cast<unsigned>(__clz(static_cast<int>(value)));
#else
  return value == 0 ? 0 : 32 - static_cast<unsigned>(__builtin_clz(value));
#endif
}
PLEAT_HD inline unsigned bits_needed(uint64_t value) {
#if defined(__CUDA_ARCH__)
  return 64 - static_cast<unsigned>(__clzll(static_cast<long long>(value)));
#else
  return value == 0 ? 0 : 64 - static_cast<unsigned>(__builtin_clzll(value));
#endif
}

}  // namespace
}  // namespace pleat::compress
