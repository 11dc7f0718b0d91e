// Rotates groups before they are quantised, and back after they are restored, in whole blocks.
// Anonymous: see kernels.h.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "compress/exponents/lowerer.h"
#include "compress/exponents/raiser.h"
#include "compress/grouped/group_math.h"
#include "compress/kernels.h"
#include "compress/rotated/rotation.h"
#include "compress/rotated/scaled_groups.h"

namespace pleat::compress {
namespace {

constexpr size_t kAtOnce = 8;  // groups rotated together

// Calls body(from, to) for each run of set bits among the lowest `count`, until one is false.
template <class Body>
bool for_each_run(unsigned bits, size_t count, Body&& body) {
  for (size_t from = 0, to; from < count; from = to + 1) {
    for (to = from; to < count && (bits >> to & 1) != 0;) ++to;
    if (to != from && !body(from, to)) return false;
  }
  return true;
}

// Constant and two-valued groups are not rotated but kept exact, as float32 patterns. Groups with
// float16 NaNs have no such pattern.
template <class T>
bool keeps_patterns(const typename T::Word* words, size_t elements) {
  size_t other;
  if (!has_few_patterns(words, elements, &other)) return false;
  return T::kType != 2 || (T::to_float(words[0]) == T::to_float(words[0]) &&
                           T::to_float(words[other]) == T::to_float(words[other]));
}

// Whether rotated values can be coded as they are, but for the width of their step.
inline bool spans_finite_range(const float* values) {
  float minimum = values[0], maximum = values[0];
  bool finite = true;
  for (size_t e = 0; e < kRotated; ++e) {
    finite = finite && is_finite_value(values[e]);
    minimum = values[e] < minimum ? values[e] : minimum;
    maximum = values[e] > maximum ? values[e] : maximum;
  }
  return finite && is_finite_value(maximum - minimum);
}

// Codes a group that cannot be rotated as a wide one of its own elements.
//   elements, words  of the group before it was rotated
template <class T, class Conversions>
void encode_unrotated(const EncodeGroups& job, const typename T::Word* words, size_t elements) {
  float values[kRotated];
  Conversions::template to_floats<T>(words, elements, values);
  encode_wide_group(job, values, elements);
}

// `Planes`, `Conversions` and `encode` (of float32 groups) are those of the instruction set. The
// metadata are those of float32 groups.
template <class T, class Planes, class Conversions>
void encode_transformed(const EncodeGroups& job, void (*encode)(const EncodeGroups& job)) {
  using Word = typename T::Word;
  alignas(64) float values[kAtOnce * kRotated];
  alignas(64) Word raised[kAtOnce * kRotated];
  const Word* words[kAtOnce];
  Raiser<T, Conversions> raiser(job);
  const auto* const source = static_cast<const Word*>(job.source);
  auto* const metadata = static_cast<Metadata<Float32>*>(job.metadata);
  const size_t slot = 32 * job.bits;
  const size_t total = job.groups + (job.tail_elements != 0 ? 1 : 0);
  for (size_t base = 0; base < total; base += kAtOnce) {
    const size_t count = total - base < kAtOnce ? total - base : kAtOnce;
    unsigned rotated = 0, scaled = 0;
    for (size_t g = 0; g < count; ++g) {
      const size_t elements = base + g < job.groups ? kRotated : job.tail_elements;
      words[g] = raiser.next(source + (base + g) * kRotated, elements, raised + g * kRotated);
      float* const group = values + g * kRotated;
      const bool keep = keeps_patterns<T>(words[g], elements);
      Conversions::template to_floats<T>(words[g], elements, group);
      for (size_t e = elements; e < kRotated; ++e) group[e] = keep ? group[0] : 0.0f;
      if (keep) continue;
      rotated |= 1u << g;
      const bool suits = job.scaled && scaling_suits(group);
      rotate(job.nonce, job.first_group + base + g, group);
      if (!suits) continue;
      const auto encode_as = job.bits == 1 ? encode_scaled<Planes, 1> : encode_scaled<Planes, 2>;
      if (encode_as(group, metadata + base + g, job.codes + (base + g) * slot, job.result,
                    job.widest_step))
        scaled |= 1u << g;
    }
    for_each_run(~scaled, count, [&](size_t from, size_t to) {
      EncodeGroups some = job;
      some.source = values + from * kRotated;
      some.first_group = job.first_group + base + from;
      some.groups = to - from;
      some.tail_elements = 0;
      some.metadata = metadata + base + from;
      some.codes = job.codes + (base + from) * slot;
      some.transformed = some.scaled = false;
      some.never_wide = true;
      some.exponents = {};
      encode(some);
      return true;
    });
    for (size_t g = 0; g < count; ++g) {  // a decoder would not rotate these groups back
      if (((rotated & ~scaled) >> g & 1) == 0) continue;
      const GroupKind kind = kind_of<Float32>(metadata[base + g]);
      if (kind == GroupKind::kRegular) continue;
      const float* const group = values + g * kRotated;
      if (kind == GroupKind::kEscaped) {
        // With a range, only its step is too wide.
        if (job.bits < kFewestWideBits || spans_finite_range(group)) continue;
        --job.result->escaped_groups;
      } else {
        --(kind == GroupKind::kConstant ? job.result->constant_groups
                                        : job.result->two_valued_groups);
      }
      memset(job.codes + (base + g) * slot, 0, slot);
      if (job.bits < kFewestWideBits) {
        ++job.result->escaped_groups;
        metadata[base + g] = {kEscapeWord<Float32>, kEscapeWord<Float32>};
        continue;
      }
      EncodeGroups one = job;
      one.first_group = job.first_group + base + g;
      one.metadata = metadata + base + g;
      one.codes = job.codes + (base + g) * slot;
      encode_unrotated<T, Conversions>(one, words[g],
                                       base + g < job.groups ? kRotated : job.tail_elements);
    }
  }
}

// As encode_transformed().
template <class T, class Planes, class Conversions>
bool decode_transformed(const DecodeGroups& job, bool (*decode)(const DecodeGroups& job)) {
  using Word = typename T::Word;
  alignas(64) float values[kAtOnce * kRotated];
  const auto* const metadata = static_cast<const Metadata<Float32>*>(job.metadata);
  const size_t regular = 32 * job.bits;
  const size_t total = job.groups + (job.tail_elements != 0 ? 1 : 0);
  const uint8_t* codes = job.codes;
  Lowerer<T, Conversions> lowerer(job);
  for (size_t base = 0; base < total; base += kAtOnce) {
    const size_t count = total - base < kAtOnce ? total - base : kAtOnce;
    Metadata<Float32> words[kAtOnce];
    memcpy(words, metadata + base, count * sizeof words[0]);
    const uint8_t* slots[kAtOnce];
    unsigned decoded = 0;  // by `decode`
    for (size_t g = 0; g < count; ++g) {
      slots[g] = codes;
      const size_t slot = job.compacted ? slot_bytes_of<Float32>(words[g], regular) : regular;
      if (static_cast<size_t>(job.codes_end - codes) < slot) return false;
      codes += slot;
      if (kind_of<Float32>(words[g]) != GroupKind::kEscaped && !(job.scaled && is_scaled(words[g])))
        decoded |= 1u << g;
    }
    const bool intact = for_each_run(decoded, count, [&](size_t from, size_t to) {
      DecodeGroups some = job;
      some.metadata = metadata + base + from;
      some.codes = slots[from];
      some.escape_count = 0;
      some.first_group = job.first_group + base + from;
      some.groups = to - from;
      some.tail_elements = 0;
      some.transformed = some.scaled = some.stream = false;
      some.exponents = {};
      some.target = values + from * kRotated;
      return decode(some);
    });
    if (!intact) return false;
    for (size_t g = 0; g < count; ++g) {
      const size_t elements = base + g < job.groups ? kRotated : job.tail_elements;
      Word* const target = static_cast<Word*>(job.target) + (base + g) * kRotated;
      const GroupKind kind = kind_of<Float32>(words[g]);
      if (kind == GroupKind::kEscaped) {
        uint64_t index;
        memcpy(&index, slots[g], sizeof index);
        if (index >= job.escape_count) return false;
        memcpy(target, job.escapes + index * (kRotated * sizeof(Word)), elements * sizeof(Word));
        lowerer.next(kind, nullptr, elements, target);
        continue;
      }
      float* const group = values + g * kRotated;
      if ((decoded >> g & 1) == 0) {
        const auto decode_as = job.bits == 1 ? decode_scaled<Planes, 1> : decode_scaled<Planes, 2>;
        decode_as(words[g], slots[g], group);
      }
      if (kind == GroupKind::kRegular) rotate_back(job.nonce, job.first_group + base + g, group);
      if (kind == GroupKind::kRegular || kind == GroupKind::kWide) {
        for (size_t e = 0; e < kRotated; ++e) {
          if (kind == GroupKind::kWide && !is_finite_value(group[e])) continue;
          const float low = group[e] < T::kLargest ? group[e] : T::kLargest;
          group[e] = low > -T::kLargest ? low : -T::kLargest;
        }
      }
      Conversions::template from_floats<T>(group, elements, target);
      lowerer.next(kind, nullptr, elements, target);
    }
  }
  return true;
}

}  // namespace
}  // namespace pleat::compress
