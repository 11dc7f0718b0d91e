// The meaning of the two metadata words of a group, and the arithmetic that every path must do in
// the same order. Anonymous: see element_math.h.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "compress/element_math.h"

namespace pleat::compress {
namespace {

template <class T>
constexpr typename T::Word kEscapeWord = kSignBit<T>;

template <class T>
struct Metadata {
  typename T::Word first;
  typename T::Word second;
};

// Calls function.operator()<kBits>() for the width of a grouped payload.
template <unsigned... kBits, class Function>
void with_width_of(unsigned bits, const Function& function) {
  ((bits == kBits ? function.template operator()<kBits>() : void()), ...);
}
template <class Function>
void with_grouped_width(unsigned bits, const Function& function) {
  with_width_of<0, 1, 2, 3, 4, 6, 8>(bits, function);
}

// How a regular group is quantised. Mirrored groups (all elements <= 0) count codes from the
// maximum downwards, with negative step and inverse, so that rounding never changes the sign of a
// one-signed group.
struct Quantiser {
  float anchor;   // code 0; code 1 where code 0 is kept for zero
  float step;     // value of one code; negative when mirrored
  float inverse;  // 256 / step: codes are found in units of the noise
};

inline constexpr float kSmallestStep = 7.70371977754894341222391177033970e-34f;  // 2^-110

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
// Where zeros are kept whatever the signs are, groups of both signs do the same.
PLEAT_HD inline bool keeps_zero_between(float minimum, float maximum) {
  return minimum < 0.0f && maximum > 0.0f;
}
// `smallest`: the smallest element above zero, or the smallest of a group of both signs.
template <class T>
PLEAT_HD inline void plan_zero_kept(float smallest, float maximum, float largest_code,
                                    Quantiser* quantiser, Metadata<T>* metadata) {
  const float range = (maximum - smallest) / (largest_code - 1.0f);
  uint32_t step_bits = (bits_of(range) + T::kStepRounding) & ~T::kStepRounding;
  if (step_bits < bits_of(kSmallestStep)) step_bits = bits_of(kSmallestStep);
  const float step = float_of(step_bits);
  *quantiser = {smallest, step, 256.0f / step};
  metadata->first = T::from_float(smallest);
  metadata->second =
      static_cast<typename T::Word>((step_bits >> T::kStepShift) | (smallest > 0.0f ? 1u : 0u));
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
// The code of an element of a wide group. `noise`: its noise byte.
PLEAT_HD inline unsigned wide_code(float value, const WidePlan& plan, unsigned bits,
                                   unsigned noise) {
  if (!is_finite_value(value)) return code_of_nonfinite(value, bits);
  if (plan.keep_zero && value == 0.0f) return 0;
  const float base = plan.keep_zero ? kMantissa + 256.0f : kMantissa;
  const float y = fused(value * 0.5f - plan.half_anchor, plan.inverse, base);
  return ((bits_of(y) & 0xFFFFu) + noise) >> 8;
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
// `zeros`: groups of both signs keep them, too.
template <class T>
PLEAT_HD inline Dequantiser dequantiser_of(const Metadata<T>& metadata, uint32_t step_bits,
                                           unsigned bits, bool zeros = false) {
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
  return {anchor, step, fits && clear_of_zero, keep_zero || (zeros && two_signed)};
}

// read_group() is for regular groups, read_lossy_group() for regular and wide ones.
template <class T>
PLEAT_HD inline Dequantiser read_group(const Metadata<T>& metadata, unsigned bits,
                                       bool zeros = false) {
  const uint32_t step_bits = metadata.second & ~uint32_t{1};
  return dequantiser_of<T>(metadata, step_bits << T::kStepShift, bits, zeros);
}
template <class T>
PLEAT_HD inline Dequantiser read_lossy_group(const Metadata<T>& metadata, unsigned bits) {
  return dequantiser_of<T>(metadata, step_bits_of<T>(metadata.second), bits);
}

// The value that a level of a wide group is restored to, within the largest value `most`.
PLEAT_HD inline float wide_value(const Dequantiser& group, unsigned code, unsigned noise,
                                 float most) {
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

}  // namespace
}  // namespace pleat::compress
