// The meaning of the two metadata words of a group, and the arithmetic that every path must do in
// the same order. Included by each instruction set's file and by the CUDA kernels; anonymous, so
// that they share no copy.
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
//   kStepStepping    a step is rounded up to a multiple of this in the bits of a float
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
template <class T>
constexpr typename T::Word kEscapeWord = kSignBit<T>;

template <class T>
struct Metadata {
  typename T::Word first;
  typename T::Word second;
};

// How a regular group is quantised. Mirrored groups (all elements <= 0) count codes from the
// maximum downwards, with negative step and inverse, so that rounding never changes the sign of a
// one-signed group.
struct Quantiser {
  float anchor;   // code 0; code 1 where code 0 is kept for zero
  float step;     // value of one code; negative when mirrored
  float inverse;  // 256 / step: codes are found in units of the noise
};

inline constexpr float kSmallestStep = 7.70371977754894341222391177033970e-34f;  // 2^-110

inline constexpr uint32_t kLargestFinite = 0x7F7F'FFFFu;  // the bits of the largest float

// False if the range overflows, or the step is wider than the float whose bits are `widest_step`. A
// step closer to the subnormals than is accurate becomes the smallest there is.
template <class T>
PLEAT_HD inline bool plan_group(float minimum, float maximum, float largest_code,
                                Quantiser* quantiser, Metadata<T>* metadata,
                                uint32_t widest_step = kLargestFinite) {
  const float range = maximum - minimum;
  uint32_t step_bits = (bits_of(range / largest_code) + T::kStepRounding) & ~T::kStepRounding;
  step_bits = step_bits < bits_of(kSmallestStep) ? bits_of(kSmallestStep) : step_bits;
  if (step_bits > widest_step) return false;
  const bool mirrored = maximum <= 0.0f;
  const float step = float_of(step_bits);
  const float inverse = 256.0f / step;
  quantiser->anchor = (mirrored ? maximum : minimum) + 0.0f;  // -0 becomes +0
  quantiser->step = mirrored ? -step : step;
  quantiser->inverse = mirrored ? -inverse : inverse;
  metadata->first = T::from_float(quantiser->anchor);
  metadata->second =
      static_cast<typename T::Word>((step_bits >> T::kStepShift) | (mirrored ? 1u : 0u));
  return true;
}

// Groups of zeros and positive values. Readers of such data (a ReLU's backward) ask which elements
// are above zero, so code 0 is kept for zero itself and codes 1..K cover the others. Only for
// groups that plan_group() accepted: it alone decides which groups are escaped.
PLEAT_HD inline bool keeps_zero(float minimum, unsigned bits) {
  return bits >= 2 && minimum == 0.0f;  // such a group, unless two-valued, reaches above zero
}
// `smallest`: the smallest element above zero.
template <class T>
PLEAT_HD inline void plan_zero_kept(float smallest, float maximum, float largest_code,
                                    Quantiser* quantiser, Metadata<T>* metadata) {
  const float range = (maximum - smallest) / (largest_code - 1.0f);
  uint32_t step_bits = (bits_of(range) + T::kStepRounding) & ~T::kStepRounding;
  if (step_bits < bits_of(kSmallestStep)) step_bits = bits_of(kSmallestStep);
  const float step = float_of(step_bits);
  *quantiser = {smallest, step, 256.0f / step};
  metadata->first = T::from_float(smallest);
  metadata->second = static_cast<typename T::Word>((step_bits >> T::kStepShift) | 1u);
}

// Puts two distinct bit patterns into two words. The sign bit of the second word marks the group;
// if both patterns have the same sign, the order of the words tells it. *one is the pattern that a
// set bit stands for.
template <class T>
PLEAT_HD inline Metadata<T> two_valued_metadata(typename T::Word a, typename T::Word b,
                                                typename T::Word* one) {
  using Word = typename T::Word;
  const Word sign = kSignBit<T>;
  const Word low = a < b ? a : b;
  const Word high = a < b ? b : a;
  if (((a ^ b) & sign) != 0) {
    *one = high;
    return {low, high};
  }
  if ((a & sign) == 0) {
    *one = high;
    return {static_cast<Word>(low | sign), static_cast<Word>(high | sign)};
  }
  *one = low;
  return {high, low};
}

// kWide: a group that holds NaN or Inf, or whose range overflows, or that a rotation cannot bear,
// at 3 bits and more: three codes are kept for -Inf, +Inf and NaN. It is never rotated.
enum class GroupKind : uint8_t { kRegular, kConstant, kTwoValued, kEscaped, kWide };

template <class T>
PLEAT_HD inline GroupKind kind_of(const Metadata<T>& metadata) {
  using Word = typename T::Word;
  if ((metadata.second & kSignBit<T>) != 0)
    return metadata.first == metadata.second ? GroupKind::kEscaped : GroupKind::kTwoValued;
  if (metadata.second >= T::kWideEnd) return GroupKind::kRegular;
  return static_cast<Word>(metadata.second & ~Word{1}) == 0 ? GroupKind::kConstant
                                                            : GroupKind::kWide;
}

// The bits of the step that a second word tells, 0 for a constant group. No step of a regular group
// is below 2^-110, so the words below are free for wide groups, whose steps have fewer bits.
template <class T>
PLEAT_HD inline uint32_t step_bits_of(typename T::Word second) {
  const uint32_t rest = second & ~uint32_t{1};
  if (second >= T::kWideEnd) return rest << T::kStepShift;
  return rest == 0 ? 0 : T::kWideBase + (rest << T::kWideShift);
}

// The codes of a wide group, from 0: levels, then those of -Inf, +Inf and NaN.
inline constexpr unsigned kFewestWideBits = 3;  // fewer bits have no codes to spare
PLEAT_HD inline constexpr unsigned wide_levels(unsigned bits) { return (1u << bits) - 3; }
PLEAT_HD inline constexpr unsigned code_of_nonfinite(float value, unsigned bits) {
  const unsigned first = wide_levels(bits);
  return value < 0.0f ? first : value > 0.0f ? first + 1 : first + 2;
}
// `which`: 0, 1 and 2 for -Inf, +Inf and NaN.
template <class T>
PLEAT_HD inline typename T::Word nonfinite_word(unsigned which) {
  return which == 0   ? static_cast<typename T::Word>(T::kInfinity | kSignBit<T>)
         : which == 1 ? T::kInfinity
                      : T::kNan;
}

// The part of a wide group's finite elements that decides its levels.
struct WideRange {
  float minimum = float_of(0x7F80'0000u), maximum = float_of(0xFF80'0000u);
  float smallest = float_of(0x7F80'0000u);  // above zero
};
PLEAT_HD inline bool is_finite_value(float value) {
  return magnitude(value) < float_of(0x7F80'0000u);
}
PLEAT_HD inline void widen_range(float value, WideRange* range) {
  if (!is_finite_value(value)) return;
  range->minimum = value < range->minimum ? value : range->minimum;
  range->maximum = value > range->maximum ? value : range->maximum;
  range->smallest = value > 0.0f && value < range->smallest ? value : range->smallest;
}

// How a wide group is quantised. Differences are taken between halves, because those of the
// elements may overflow: `inverse` is 512 / step, and wide_code() halves. False if the step is
// wider than the float whose bits are `widest_step`.
struct WidePlan {
  float half_anchor;
  float inverse;
  bool keep_zero;
};
template <class T>
PLEAT_HD inline bool plan_wide(WideRange range, unsigned bits, WidePlan* plan,
                               Metadata<T>* metadata, uint32_t widest_step = kLargestFinite) {
  if (!(range.minimum <= range.maximum)) range.minimum = range.maximum = 0.0f;
  plan->keep_zero = range.minimum == 0.0f && range.maximum > 0.0f;
  const bool mirrored = range.maximum <= 0.0f;
  const float low = plan->keep_zero ? range.smallest : range.minimum;
  const float intervals = static_cast<float>(wide_levels(bits) - (plan->keep_zero ? 2 : 1));
  const float step_of_halves = (range.maximum * 0.5f - low * 0.5f) / (intervals * 0.5f);
  constexpr uint32_t kRounding = (2u << T::kWideShift) - 1;  // the mark is below the step
  uint32_t step_bits = (bits_of(step_of_halves) + kRounding) & ~kRounding;
  step_bits = step_bits < T::kSmallestWide ? T::kSmallestWide : step_bits;
  const float anchor = (mirrored ? range.maximum : low) + 0.0f;  // -0 becomes +0
  const float inverse = 512.0f / float_of(step_bits);
  plan->half_anchor = anchor * 0.5f;
  plan->inverse = mirrored ? -inverse : inverse;
  metadata->first = T::from_float(anchor);
  metadata->second = static_cast<typename T::Word>(((step_bits - T::kWideBase) >> T::kWideShift) |
                                                   (mirrored || plan->keep_zero ? 1u : 0u));
  return step_bits <= widest_step;
}

// The patterns of a two-valued group: clear bit, set bit.
template <class T>
PLEAT_HD inline void two_values(const Metadata<T>& metadata, typename T::Word* zero,
                                typename T::Word* one) {
  using Word = typename T::Word;
  const bool nonnegative = (metadata.first & kSignBit<T>) != 0 && metadata.first < metadata.second;
  const Word keep = nonnegative ? static_cast<Word>(~kSignBit<T>) : static_cast<Word>(~Word{0});
  *zero = metadata.first & keep;
  *one = metadata.second & keep;
}

// The encoder's fused multiply-add leaves its sum in the mantissa's low 16 bits.
inline constexpr float kMantissa = 8388608.0f;  // 2^23
// The code of an element of a wide group. `fused`: a * b + c, rounded once. `noise`: its noise
// byte.
template <class Fused>
PLEAT_HD inline unsigned wide_code(float value, const WidePlan& plan, unsigned bits, unsigned noise,
                                   Fused fused) {
  if (!is_finite_value(value)) return code_of_nonfinite(value, bits);
  if (plan.keep_zero && value == 0.0f) return 0;
  const float base = plan.keep_zero ? kMantissa + 256.0f : kMantissa;
  const float y = fused(value * 0.5f - plan.half_anchor, plan.inverse, base);
  return ((bits_of(y) & 0xFFFFu) + noise) >> 8;
}

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

// A dithered level is first base + code + (255 - noise) / 256, where base is a power of two whose
// mantissa takes code and noise. Subtracting level_offset() then gives exactly code + 1/2 - u.
PLEAT_HD inline constexpr float level_base(unsigned bits) { return bits == 8 ? 256.0f : 128.0f; }
PLEAT_HD inline constexpr float level_offset(unsigned bits, bool keep_zero) {
  return level_base(bits) + (keep_zero ? 1.0f : 0.0f) + 127.5f / 256.0f;
}

// True for a group that plan_zero_kept() described; mirrored groups have no anchor above zero.
template <class T>
PLEAT_HD inline bool is_zero_kept(const Metadata<T>& metadata) {
  return kind_of<T>(metadata) == GroupKind::kRegular && (metadata.second & 1) != 0 &&
         T::to_float(metadata.first) > 0.0f;
}

// How a regular or wide group is restored. Codes of a wide group from wide_levels() on stand for
// nonfinite_word().
struct Dequantiser {
  float anchor;
  float step;      // signed
  bool dither;     // subtract the noise again; else the codes were rounded stochastically
  bool keep_zero;  // code 0 is zero, the anchor belongs to code 1
};
template <class T>
PLEAT_HD inline Dequantiser dequantiser_of(const Metadata<T>& metadata, uint32_t step_bits,
                                           unsigned bits) {
  const float codes = static_cast<float>(1u << bits);
  const float anchor = T::to_float(metadata.first);
  const float size = float_of(step_bits);
  const bool marked = (metadata.second & 1) != 0;
  const bool keep_zero = marked && anchor > 0.0f;  // mirrored groups have none above zero
  const bool mirrored = marked && !keep_zero;
  const float step = mirrored ? -size : size;
  const float near_end = magnitude(anchor) + size;
  const float far_end = magnitude(anchor + step * codes);
  const bool fits = near_end <= T::kLargest && far_end <= T::kLargest;
  const bool two_signed = anchor < 0.0f && !mirrored;
  const bool clear_of_zero = two_signed || magnitude(anchor) > size * 0.5f + T::kTiny;
  return {anchor, step, fits && clear_of_zero, keep_zero};
}
template <class T>
PLEAT_HD inline Dequantiser read_group(const Metadata<T>& metadata,
                                       unsigned bits) {  // regular ones
  const uint32_t step_bits = metadata.second & ~uint32_t{1};
  return dequantiser_of<T>(metadata, step_bits << T::kStepShift, bits);
}
template <class T>
PLEAT_HD inline Dequantiser read_wide_group(const Metadata<T>& metadata, unsigned bits) {
  return dequantiser_of<T>(metadata, step_bits_of<T>(metadata.second), bits);
}

// The value that a level of a wide group is restored to, within the largest value `most`.
template <class Fused>
PLEAT_HD inline float wide_value(const Dequantiser& group, unsigned code, unsigned noise,
                                 float most, Fused fused) {
  if (group.keep_zero && code == 0) return 0.0f;
  const unsigned level = code - (group.keep_zero ? 1 : 0);
  const unsigned sum = level << 8 | (noise ^ 0xFFu);
  const float value = fused(group.step,
                            group.dither ? (static_cast<float>(sum) - 127.5f) * (1.0f / 256.0f)
                                         : static_cast<float>(level),
                            group.anchor);
  const float below = value < most ? value : most;
  return below > -most ? below : -most;
}

template <class T>
PLEAT_HD inline size_t slot_bytes_of(const Metadata<T>& metadata, size_t regular) {
  switch (kind_of<T>(metadata)) {
    case GroupKind::kRegular:
    case GroupKind::kWide:
      return regular;
    case GroupKind::kConstant:
      return 0;
    default:
      return 32;
  }
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

// Squared sums in float outside this window are taken again in double.
inline constexpr float kEnergyFloor = 1e-20f;
inline constexpr float kEnergyCeiling = 1e37f;

}  // namespace
}  // namespace pleat::compress
