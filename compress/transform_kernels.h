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
    unsigned rotated = 0;
    for (size_t g = 0; g < count; ++g) {
      const auto* const words = source + (base + g) * kRotated;
      const size_t elements = base + g < job.groups ? kRotated : job.tail_elements;
      float* const group = values + g * kRotated;
      const bool keep = keeps_patterns<T>(words, elements);
      for (size_t e = 0; e < elements; ++e) group[e] = T::to_float(words[e]);
      for (size_t e = elements; e < kRotated; ++e) group[e] = keep ? group[0] : 0.0f;
      if (keep) continue;
      rotated |= 1u << g;
      rotate(job.nonce, job.first_group + base + g, group);
    }
    EncodeGroups some = job;
    some.source = values;
    some.first_group = job.first_group + base;
    some.groups = count;
    some.tail_elements = 0;
    some.metadata = metadata + base;
    some.codes = job.codes + base * slot;
    some.transformed = false;
    encode(some);
    for (size_t g = 0; g < count; ++g) {  // decoders would not rotate these back
      if ((rotated >> g & 1) == 0) continue;
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
  uint8_t codes[kRotated];
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
      one.transformed = false;
      one.stream = false;
      one.target = values;
      if (!decode(one)) return false;
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
