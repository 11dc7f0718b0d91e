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

// Flips signs: element e by bit e mod 32 of word e / 32 of the group's two sign calls.
inline void flip_signs(uint64_t nonce, uint64_t group, float* values) {
  uint32_t words[8];
  for (uint32_t call = 0; call < 2; ++call) {
    const PhiloxWords four = philox(nonce, group, kSignCall + call);
    memcpy(words + 4 * call, four.word, sizeof four.word);
  }
  for (size_t w = 0; w < 8; ++w) {
    uint32_t bits[32];
    memcpy(bits, values + 32 * w, sizeof bits);
    for (uint32_t e = 0; e < 32; ++e) bits[e] ^= (words[w] >> e) << 31;
    memcpy(values + 32 * w, bits, sizeof bits);
  }
}

// Butterflies of elements 8, 16, 32, 64, 128 apart: their own inverse but for the scale.
inline void far_butterflies(float* values) {
  for (size_t apart = 8; apart < kRotated; apart *= 2) {
    for (size_t from = 0; from < kRotated; from += 2 * apart) {
      float* const low = values + from;
      float* const high = low + apart;
#pragma GCC ivdep
      for (size_t i = 0; i < apart; ++i) {
        const float a = low[i], b = high[i];
        low[i] = a + b;
        high[i] = a - b;
      }
    }
  }
}

// The three that a vector of 8 would need shuffles for are taken between the halves instead, the
// results interleaved; so the coefficients come in an order of their own.
inline void rotate(uint64_t nonce, uint64_t group, float* values) {
  flip_signs(nonce, group, values);
  float other[kRotated];
  for (int stage = 0; stage < 3; ++stage) {
    for (size_t i = 0; i < kRotated / 2; ++i) {
      other[2 * i] = values[i] + values[i + kRotated / 2];
      other[2 * i + 1] = values[i] - values[i + kRotated / 2];
    }
    memcpy(values, other, sizeof other);
  }
  far_butterflies(values);
  for (size_t e = 0; e < kRotated; ++e) values[e] *= 0.0625f;
}
inline void rotate_back(uint64_t nonce, uint64_t group, float* values) {
  far_butterflies(values);
  float other[kRotated];
  for (int stage = 0; stage < 3; ++stage) {
    for (size_t i = 0; i < kRotated / 2; ++i) {
      other[i] = values[2 * i] + values[2 * i + 1];
      other[i + kRotated / 2] = values[2 * i] - values[2 * i + 1];
    }
    memcpy(values, other, sizeof other);
  }
  for (size_t e = 0; e < kRotated; ++e) values[e] *= 0.0625f;
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
// nearest of the levels c that suit a Gaussian of its deviation, and scaled by S = |z|^2 / <z, c>, it is
// unbiased over rotations, with the least error any levels have (EDEN). No noise is drawn.

// The mean-square optimum for deviation 1 (Max 1960; Lloyd 1982), and the threshold between the
// outer two.
inline constexpr float kScaledThreshold = 0.981598822f;
inline float scaled_level(unsigned bits, unsigned code) {
  constexpr float kOne[] = {-0.797884561f, 0.797884561f};
  constexpr float kTwo[] = {-1.51041761f, -0.452780034f, 0.452780034f, 1.51041761f};
  return bits == 1 ? kOne[code & 1] : kTwo[code & 3];
}
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

// The bias gate: few elements with most of the energy make coefficients that take few values, which
// rounding moves all the same way. sum x^4 <= (sum x^2)^2 / 8 keeps out fewer than 8 equal spikes, a
// spike beyond 11 deviations in Gaussian data, NaN and Inf. What it costs is in tests/compress.
inline bool scaling_suits(const float* x) {
  const double energy = ordered_sum([&](size_t e) { return square(x[e]); });
  const double fourth = ordered_sum([&](size_t e) { return square(x[e]) * square(x[e]); });
  return energy < 1e77 && fourth * 8.0 <= energy * energy;
}

// Of rotated values. False, and nothing written, if the scale is beyond what sums of 256 levels can
// take, or too close to the subnormals to be accurate.
inline bool encode_scaled(const float* z, unsigned bits, Metadata<Float32>* metadata, uint8_t* slot,
                          BlockResult* result) {
  const double energy = ordered_sum([&](size_t e) { return square(z[e]); });
  const float outer = static_cast<float>(__builtin_sqrt(energy / kRotated)) * kScaledThreshold;
  uint8_t codes[kRotated];
  for (size_t e = 0; e < kRotated; ++e) {
    const unsigned positive = z[e] >= 0.0f ? 1 : 0;
    codes[e] = static_cast<uint8_t>(
        bits == 1 ? positive : positive + (z[e] >= -outer ? 1 : 0) + (z[e] >= outer ? 1 : 0));
  }
  const double product = ordered_sum([&](size_t e) {
    return static_cast<double>(z[e]) * static_cast<double>(scaled_level(bits, codes[e]));
  });
  const double levels =
      ordered_sum([&](size_t e) { return square(scaled_level(bits, codes[e])); });
  const float scale = float_of(bits_of(static_cast<float>(energy / product)) & ~1u);
  if (!(scale >= kSmallestStep && scale <= 1e35f)) return false;
  *metadata = {kScaledMark, bits_of(scale)};
  const unsigned per_byte = 8 / bits;
  for (size_t b = 0; b < kRotated / per_byte; ++b) {
    unsigned packed = 0;
    for (unsigned i = 0; i < per_byte; ++i)
      packed |= static_cast<unsigned>(codes[b * per_byte + i]) << (i * bits);
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
  for (size_t e = 0; e < kRotated; ++e)
    z[e] = scale * scaled_level(bits, slot[e * bits / 8] >> (e * bits % 8));
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
      if (suits && encode_scaled(group, job.bits, metadata + base + g, job.codes + (base + g) * slot,
                                 job.result))
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

template <class T>
bool decode_transformed(const DecodeGroups& job, bool (*decode)(const DecodeGroups& job)) {
  using Word = typename T::Word;
  alignas(64) float values[kRotated];
  const auto* const metadata = static_cast<const uint8_t*>(job.metadata);
  const size_t regular = 32 * job.bits;
  const size_t total = job.groups + (job.tail_elements != 0 ? 1 : 0);
  const uint8_t* codes = job.codes;
  for (size_t g = 0; g < total; ++g) {
    Metadata<Float32> words;
    memcpy(&words, metadata + g * sizeof words, sizeof words);
    const GroupKind kind = kind_of<Float32>(words);
    const size_t slot = job.compacted ? slot_bytes_of<Float32>(words, regular) : regular;
    if (static_cast<size_t>(job.codes_end - codes) < slot) return false;
    const size_t elements = g < job.groups ? kRotated : job.tail_elements;
    Word* const target = static_cast<Word*>(job.target) + g * kRotated;
    if (kind == GroupKind::kEscaped) {
      uint64_t index;
      memcpy(&index, codes, sizeof index);
      if (index >= job.escape_count) return false;
      memcpy(target, job.escapes + index * (kRotated * sizeof(Word)), elements * sizeof(Word));
    } else {
      DecodeGroups one = job;
      one.metadata = metadata + g * sizeof words;
      one.codes = codes;
      one.escape_count = 0;
      one.first_group = job.first_group + g;
      one.groups = 1;
      one.tail_elements = 0;
      one.transformed = one.scaled = false;
      one.stream = false;
      one.target = values;
      if (job.scaled && is_scaled(words))
        decode_scaled(words, job.bits, codes, values);
      else if (!decode(one))
        return false;
      if (kind == GroupKind::kRegular) {
        rotate_back(job.nonce, job.first_group + g, values);
        for (float& value : values) {
          value = value < T::kLargest ? value : T::kLargest;
          value = value > -T::kLargest ? value : -T::kLargest;
        }
      }
      for (size_t e = 0; e < elements; ++e) target[e] = T::from_float(values[e]);
    }
    codes += slot;
  }
  return true;
}

}  // namespace
}  // namespace pleat::compress
