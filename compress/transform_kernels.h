// The randomised Hadamard transform of a group before it is quantised: it spreads outliers over all
// 256 elements, so that the range is that of a Gaussian whatever the data were. Signs come from the
// payload's nonce; every sum is taken in one fixed order. Anonymous: see kernels.h.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "compress/group_math.h"
#include "compress/kernels.h"

namespace pleat::compress {
namespace {

constexpr size_t kRotated = 256;
constexpr uint32_t kSignCall = 16;  // calls 0 to 15 of a group are its noise

// Eight elements; the compiler makes of them what the instruction set has. A group is 32 of them.
typedef float Eight __attribute__((vector_size(32)));
typedef uint32_t EightBits __attribute__((vector_size(32)));
constexpr size_t kEights = kRotated / 8;

inline void load_eight(const float* from, Eight* to) {
  memcpy(to, from, sizeof *to);
}
inline void store_eight(float* to, const Eight& from) {
  memcpy(to, &from, sizeof from);
}

// Flips signs: element e by bit e mod 32 of word e / 32 of the group's two sign calls.
inline void flip_signs(uint64_t nonce, uint64_t group, float* values) {
  uint32_t words[8];
  for (uint32_t call = 0; call < 2; ++call) {
    const PhiloxWords four = philox(nonce, group, kSignCall + call);
    memcpy(words + 4 * call, four.word, sizeof four.word);
  }
  const EightBits to_sign = {7, 6, 5, 4, 3, 2, 1, 0};
  for (size_t i = 0; i < kEights; ++i) {
    const uint32_t byte = words[i / 4] >> (8 * (i % 4)) << 24;
    EightBits bits;
    memcpy(&bits, values + 8 * i, sizeof bits);
    bits ^= ((EightBits{} + byte) << to_sign) & 0x8000'0000u;
    memcpy(values + 8 * i, &bits, sizeof bits);
  }
}

// Butterflies of vectors kApart, 2 kApart, ... apart, kCount of them in all; their own inverse but
// for the scale.
template <size_t kCount, size_t kApart = 1>
inline void butterflies(Eight* v) {
  if constexpr (kApart < kCount) {
#pragma GCC unroll 8
    for (size_t from = 0; from < kCount; from += 2 * kApart) {
#pragma GCC unroll 8
      for (size_t i = from; i < from + kApart; ++i) {
        const Eight a = v[i], b = v[i + kApart];
        v[i] = a + b;
        v[i + kApart] = a - b;
      }
    }
    butterflies<kCount, 2 * kApart>(v);
  }
}
// The same, the widest first.
inline void butterflies_downwards(Eight* v) {
#pragma GCC unroll 3
  for (size_t apart = 4; apart != 0; apart /= 2) {
#pragma GCC unroll 8
    for (size_t i = 0; i < 8; ++i) {
      if ((i & apart) != 0) continue;
      const Eight a = v[i], b = v[i + apart];
      v[i] = a + b;
      v[i + apart] = a - b;
    }
  }
}

// Elements of the first (0..7) and second (8..15) vector, by clang's name or by older GCCs'.
#if defined(__has_builtin) && __has_builtin(__builtin_shufflevector)
#define PLEAT_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define PLEAT_SHUFFLE(a, b, ...) __builtin_shuffle(a, b, EightBits{__VA_ARGS__})
#endif

// Eight vectors as rows: rows become columns.
inline void transpose(Eight* v) {
  Eight pairs[8], fours[8];
#pragma GCC unroll 4
  for (size_t i = 0; i < 8; i += 2) {
    pairs[i] = PLEAT_SHUFFLE(v[i], v[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    pairs[i + 1] = PLEAT_SHUFFLE(v[i], v[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
#pragma GCC unroll 2
  for (size_t i = 0; i < 8; i += 4) {
#pragma GCC unroll 2
    for (size_t j = 0; j < 2; ++j) {
      const Eight a = pairs[i + j], b = pairs[i + j + 2];
      fours[i + 2 * j] = PLEAT_SHUFFLE(a, b, 0, 1, 8, 9, 4, 5, 12, 13);
      fours[i + 2 * j + 1] = PLEAT_SHUFFLE(a, b, 2, 3, 10, 11, 6, 7, 14, 15);
    }
  }
#pragma GCC unroll 4
  for (size_t i = 0; i < 4; ++i) {
    v[i] = PLEAT_SHUFFLE(fours[i], fours[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    v[i + 4] = PLEAT_SHUFFLE(fours[i], fours[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
}

#undef PLEAT_SHUFFLE

// Butterflies of elements 8, 16, 32, 64, 128 apart, then times `scale`.
inline void far_butterflies(float* values, float scale) {
  Eight v[8];
  for (size_t from = 0; from < kRotated; from += 64) {  // 8, 16, 32
#pragma GCC unroll 8
    for (size_t i = 0; i < 8; ++i) load_eight(values + from + 8 * i, &v[i]);
    butterflies<8>(v);
#pragma GCC unroll 8
    for (size_t i = 0; i < 8; ++i) store_eight(values + from + 8 * i, v[i]);
  }
  for (size_t from = 0; from < 64; from += 8) {  // 64, 128
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; ++i) load_eight(values + from + 64 * i, &v[i]);
    butterflies<4>(v);
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; ++i) store_eight(values + from + 64 * i, v[i] * scale);
  }
}

// The three that a vector of 8 would need shuffles for are taken between elements 128, 64 and 32
// apart instead, the results interleaved; so the coefficients come in an order of their own.
inline void rotate(uint64_t nonce, uint64_t group, float* values) {
  flip_signs(nonce, group, values);
  float other[kRotated];
  for (size_t from = 0; from < 32; from += 8) {
    Eight v[8];
#pragma GCC unroll 8
    for (size_t i = 0; i < 8; ++i) load_eight(values + from + 32 * i, &v[i]);
    butterflies_downwards(v);
    transpose(v);
#pragma GCC unroll 8
    for (size_t i = 0; i < 8; ++i) store_eight(other + 8 * (from + i), v[i]);
  }
  far_butterflies(other, 0.0625f);
  memcpy(values, other, sizeof other);
}
inline void rotate_back(uint64_t nonce, uint64_t group, float* values) {
  far_butterflies(values, 1.0f);
  float other[kRotated];
  for (size_t from = 0; from < 32; from += 8) {
    Eight v[8];
#pragma GCC unroll 8
    for (size_t i = 0; i < 8; ++i) load_eight(values + 8 * (from + i), &v[i]);
    transpose(v);
    butterflies<8>(v);
#pragma GCC unroll 8
    for (size_t i = 0; i < 8; ++i) store_eight(other + from + 32 * i, v[i] * 0.0625f);
  }
  memcpy(values, other, sizeof other);
  flip_signs(nonce, group, values);
}

inline double square(float value) {
  return static_cast<double>(value) * static_cast<double>(value);
}

// Constant and two-valued groups are not rotated but kept exact, as float32 patterns. Those of
// float16 NaNs have no such pattern.
template <class T>
bool keeps_patterns(const typename T::Word* words, size_t elements) {
  size_t other = 0;
  for (size_t e = 1; e < elements; ++e) {
    if (words[e] == words[0]) continue;
    if (other == 0)
      other = e;
    else if (words[e] != words[other])
      return false;
  }
  return T::kType != 2 || (T::to_float(words[0]) == T::to_float(words[0]) &&
                           T::to_float(words[other]) == T::to_float(words[other]));
}

// ---- scaled groups ----
//
// A rotated group is nearly Gaussian unless a few elements hold most of its energy. Rounded to the
// nearest of the levels c that suit a Gaussian of its deviation, and scaled by S = |z|^2 / <z, c>,
// it is unbiased over rotations, with the least error any levels have (EDEN). No noise is drawn.

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

// ---- whole groups ----

// `encode`: of float32 groups, by this instruction set. Metadata is that of float32 groups.
template <class T>
void encode_transformed(const EncodeGroups& job, void (*encode)(const EncodeGroups& job)) {
  constexpr size_t kAtOnce = 8;
  alignas(64) float values[kAtOnce * kRotated];
  const auto* const source = static_cast<const typename T::Word*>(job.source);
  auto* const metadata = static_cast<Metadata<Float32>*>(job.metadata);
  const size_t slot = 32 * job.bits;
  const size_t total = job.groups + (job.tail_elements != 0 ? 1 : 0);
  for (size_t base = 0; base < total; base += kAtOnce) {
    const size_t count = total - base < kAtOnce ? total - base : kAtOnce;
    unsigned rotated = 0, scaled = 0;
    for (size_t g = 0; g < count; ++g) {
      const auto* const words = source + (base + g) * kRotated;
      const size_t elements = base + g < job.groups ? kRotated : job.tail_elements;
      float* const group = values + g * kRotated;
      const bool keep = keeps_patterns<T>(words, elements);
      for (size_t e = 0; e < elements; ++e) group[e] = T::to_float(words[e]);
      for (size_t e = elements; e < kRotated; ++e) group[e] = keep ? group[0] : 0.0f;
      if (keep) continue;
      rotated |= 1u << g;
      const bool suits = job.scaled && scaling_suits(group);
      rotate(job.nonce, job.first_group + base + g, group);
      if (suits && encode_scaled(group, job.bits, metadata + base + g,
                                 job.codes + (base + g) * slot, job.result))
        scaled |= 1u << g;
    }
    for (size_t from = 0, to; from < count; from = to + 1) {  // runs of groups that are not scaled
      for (to = from; to < count && (scaled >> to & 1) == 0;) ++to;
      if (to == from) continue;
      EncodeGroups some = job;
      some.source = values + from * kRotated;
      some.first_group = job.first_group + base + from;
      some.groups = to - from;
      some.tail_elements = 0;
      some.metadata = metadata + base + from;
      some.codes = job.codes + (base + from) * slot;
      some.transformed = some.scaled = false;
      encode(some);
    }
    for (size_t g = 0; g < count; ++g) {  // decoders would not rotate these back
      if (((rotated & ~scaled) >> g & 1) == 0) continue;
      const GroupKind kind = kind_of<Float32>(metadata[base + g]);
      if (kind != GroupKind::kConstant && kind != GroupKind::kTwoValued) continue;
      --(kind == GroupKind::kConstant ? job.result->constant_groups
                                      : job.result->two_valued_groups);
      ++job.result->escaped_groups;
      metadata[base + g] = {kEscapeWord<Float32>, kEscapeWord<Float32>};
      memset(job.codes + (base + g) * slot, 0, slot);
    }
  }
}

template <class T>
size_t count_transformed_escapes(const EncodeGroups& job, void (*encode)(const EncodeGroups& job)) {
  Metadata<Float32> metadata;
  uint8_t codes[kRotated];  // of any width
  BlockResult result{};
  EncodeGroups one = job;
  one.metadata = &metadata;
  one.codes = codes;
  one.result = &result;
  for (size_t g = 0; g * kRotated < job.groups * kRotated + job.tail_elements; ++g) {
    one.source = static_cast<const typename T::Word*>(job.source) + g * kRotated;
    one.first_group = job.first_group + g;
    one.groups = g < job.groups ? 1 : 0;
    one.tail_elements = g < job.groups ? 0 : job.tail_elements;
    encode_transformed<T>(one, encode);
  }
  return result.escaped_groups;
}

// `decode`: of float32 groups, by this instruction set.
template <class T>
bool decode_transformed(const DecodeGroups& job, bool (*decode)(const DecodeGroups& job)) {
  using Word = typename T::Word;
  constexpr size_t kAtOnce = 8;
  alignas(64) float values[kAtOnce * kRotated];
  const auto* const metadata = static_cast<const Metadata<Float32>*>(job.metadata);
  const size_t regular = 32 * job.bits;
  const size_t total = job.groups + (job.tail_elements != 0 ? 1 : 0);
  const uint8_t* codes = job.codes;
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
    for (size_t from = 0, to; from < count; from = to + 1) {
      for (to = from; to < count && (decoded >> to & 1) != 0;) ++to;
      if (to == from) continue;
      DecodeGroups some = job;
      some.metadata = metadata + base + from;
      some.codes = slots[from];
      some.escape_count = 0;
      some.first_group = job.first_group + base + from;
      some.groups = to - from;
      some.tail_elements = 0;
      some.transformed = some.scaled = some.stream = false;
      some.target = values + from * kRotated;
      if (!decode(some)) return false;
    }
    for (size_t g = 0; g < count; ++g) {
      const size_t elements = base + g < job.groups ? kRotated : job.tail_elements;
      Word* const target = static_cast<Word*>(job.target) + (base + g) * kRotated;
      const GroupKind kind = kind_of<Float32>(words[g]);
      if (kind == GroupKind::kEscaped) {
        uint64_t index;
        memcpy(&index, slots[g], sizeof index);
        if (index >= job.escape_count) return false;
        memcpy(target, job.escapes + index * (kRotated * sizeof(Word)), elements * sizeof(Word));
        continue;
      }
      float* const group = values + g * kRotated;
      if ((decoded >> g & 1) == 0) decode_scaled(words[g], job.bits, slots[g], group);
      if (kind == GroupKind::kRegular) {
        rotate_back(job.nonce, job.first_group + base + g, group);
        for (size_t e = 0; e < kRotated; ++e) {
          const float low = group[e] < T::kLargest ? group[e] : T::kLargest;
          group[e] = low > -T::kLargest ? low : -T::kLargest;
        }
      }
      for (size_t e = 0; e < elements; ++e) target[e] = T::from_float(group[e]);
    }
  }
  return true;
}

}  // namespace
}  // namespace pleat::compress
