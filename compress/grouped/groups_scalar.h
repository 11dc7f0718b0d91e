// Encodes and decodes groups one element after the other, as docs/payload_format.md describes it.
// Anonymous: see kernels.h.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "compress/exponents/lowerer.h"
#include "compress/exponents/raiser.h"
#include "compress/grouped/compacted_blocks.h"
#include "compress/grouped/group_math.h"
#include "compress/kernels.h"
#include "compress/planes_scalar.h"

namespace pleat::compress {
namespace {

constexpr size_t kGroup = 256;

// The 256 noise bytes of one group: element e = i*64 + lane*8 + j takes byte (i&1)*8 + j of call
// (i>>1)*8 + lane.
void philox_noise(uint64_t nonce, uint64_t group, uint8_t* noise) {
  for (uint32_t call = 0; call < 16; ++call) {
    const PhiloxWords words = noise_words(nonce, group, call);
    for (unsigned byte = 0; byte < 16; ++byte) {
      const unsigned i = 2 * (call >> 3) + (byte >> 3);
      noise[i * 64 + (call & 7) * 8 + (byte & 7)] =
          static_cast<uint8_t>(words.word[byte >> 2] >> (8 * (byte & 3)));
    }
  }
}

void pack_codes(const uint8_t* codes, unsigned bits, uint8_t* slot) {
  pack_slot<Planes>(bits, codes, slot, slot + second_plane(bits));
}
unsigned code_at(const uint8_t* slot, unsigned bits, size_t e) {
  const CodePlanes planes = planes_of(bits);
  const unsigned low = Planes::at(slot, planes.low, e);
  if (planes.high == 0) return low;
  return low | static_cast<unsigned>(Planes::at(slot + second_plane(bits), planes.high, e))
                   << planes.low;
}

enum class Pattern : uint8_t { kConstant, kTwoValued, kOther };

template <class Word>
Pattern find_pattern(const Word* words, size_t elements, Word* other) {
  size_t e = 1;
  while (e < elements && words[e] == words[0]) ++e;
  if (e == elements) return Pattern::kConstant;
  *other = words[e];
  for (; e < elements; ++e)
    if (words[e] != words[0] && words[e] != *other) return Pattern::kOther;
  return Pattern::kTwoValued;
}

// Codes floats of element type T as a wide group, or marks them if the step is too wide.
template <class T>
Metadata<T> encode_wide(const EncodeGroups& job, const float* values, size_t elements) {
  BlockResult& result = *job.result;
  WideRange range;
  for (size_t e = 0; e < elements; ++e) widen_range(values[e], &range);
  WidePlan plan;
  Metadata<T> metadata;
  if (!plan_wide<T>(range, job.bits, &plan, &metadata, job.widest_step)) {
    ++result.escaped_groups;
    return {kEscapeWord<T>, kEscapeWord<T>};
  }
  uint8_t noise[kGroup];
  uint8_t codes[kGroup] = {};
  philox_noise(job.nonce, job.first_group, noise);
  for (size_t e = 0; e < elements; ++e)
    codes[e] = static_cast<uint8_t>(wide_code(values[e], plan, job.bits, noise[e]));
  pack_codes(codes, job.bits, job.codes);
  ++result.lossy_groups;
  return metadata;
}

// Quantises a group of more than two values, or marks it if it has to be kept as it is.
template <class T>
Metadata<T> encode_quantised(const EncodeGroups& job, const typename T::Word* words,
                             size_t elements) {
  constexpr Metadata<T> kEscape{kEscapeWord<T>, kEscapeWord<T>};
  BlockResult& result = *job.result;
  if (job.bits == 0) {
    ++result.escaped_groups;
    return kEscape;
  }
  float values[kGroup] = {};
  for (size_t e = 0; e < elements; ++e) values[e] = T::to_float(words[e]);
  float minimum = values[0], maximum = values[0];
  bool finite = true;
  for (size_t e = 0; e < elements; ++e) {
    finite = finite && is_finite_value(values[e]);
    minimum = values[e] < minimum ? values[e] : minimum;
    maximum = values[e] > maximum ? values[e] : maximum;
  }
  const unsigned largest_code = (1u << job.bits) - 1;
  Quantiser quantiser;
  Metadata<T> metadata;
  const bool spans = finite && is_finite_value(maximum - minimum);
  if (!spans && job.bits >= kFewestWideBits && !job.never_wide)
    return encode_wide<T>(job, values, elements);
  if (!spans || !plan_group<T>(minimum, maximum, static_cast<float>(largest_code), &quantiser,
                               &metadata, job.widest_step)) {
    ++result.escaped_groups;
    return kEscape;
  }
  const bool between = job.zeros && keeps_zero_between(minimum, maximum);
  const bool keep_zero = between || keeps_zero(minimum, job.bits);
  if (between) {
    plan_zero_kept<T>(minimum, maximum, static_cast<float>(largest_code), &quantiser, &metadata);
  } else if (keep_zero) {
    float smallest = maximum;
    for (size_t e = 0; e < elements; ++e)
      smallest = values[e] > 0.0f && values[e] < smallest ? values[e] : smallest;
    plan_zero_kept<T>(smallest, maximum, static_cast<float>(largest_code), &quantiser, &metadata);
  }
  uint8_t noise[kGroup];
  uint8_t codes[kGroup] = {};
  philox_noise(job.nonce, job.first_group, noise);
  const float base = keep_zero ? kMantissa + 256.0f : kMantissa;
  for (size_t e = 0; e < elements; ++e) {
    if (keep_zero && values[e] == 0.0f) {
      ++result.elements_at_minimum;
      continue;
    }
    const float y = fused(values[e] - quantiser.anchor, quantiser.inverse, base);
    codes[e] = static_cast<uint8_t>(((bits_of(y) & 0xFFFFu) + noise[e]) >> 8);
  }
  pack_codes(codes, job.bits, job.codes);
  ++result.lossy_groups;
  return metadata;
}

// Loads single elements: the source need not be aligned further.
template <class T>
void encode_group(const EncodeGroups& job, size_t elements) {
  using Word = typename T::Word;
  const Word* const words = static_cast<const Word*>(job.source);
  BlockResult& result = *job.result;
  const unsigned slot_bytes = 32 * (job.bits == 0 ? 1 : job.bits);
  Metadata<T> metadata;
  memset(job.codes, 0, slot_bytes);

  Word other = 0;
  const Pattern pattern = find_pattern(words, elements, &other);
  if (pattern == Pattern::kConstant) {
    metadata = {words[0], 0};
    ++result.constant_groups;
  } else if (pattern == Pattern::kTwoValued) {
    Word one = 0;
    metadata = two_valued_metadata<T>(words[0], other, &one);
    for (size_t e = 0; e < elements; ++e) {
      if (words[e] != one) continue;
      job.codes[e / 8] |= static_cast<uint8_t>(1u << (e % 8));
    }
    ++result.two_valued_groups;
  } else {
    metadata = encode_quantised<T>(job, words, elements);
  }
  memcpy(job.metadata, &metadata, sizeof metadata);
}

template <class T>
void decode_wide(const DecodeGroups& job, const Metadata<T>& metadata, size_t elements,
                 const uint8_t* codes, typename T::Word* words) {
  const Dequantiser group = read_lossy_group<T>(metadata, job.bits);
  const unsigned levels = wide_levels(job.bits);
  uint8_t noise[kGroup];
  philox_noise(job.nonce, job.first_group, noise);
  for (size_t e = 0; e < elements; ++e) {
    const unsigned code = code_at(codes, job.bits, e);
    words[e] = code >= levels ? nonfinite_word<T>(code - levels)
                              : T::from_float(wide_value(group, code, noise[e], T::kLargest));
  }
}

template <class T>
bool decode_group(const DecodeGroups& job, size_t elements, const uint8_t* codes, void* target) {
  using Word = typename T::Word;
  Word* const words = static_cast<Word*>(target);
  Metadata<T> metadata;
  memcpy(&metadata, job.metadata, sizeof metadata);
  switch (kind_of<T>(metadata)) {
    case GroupKind::kConstant:
      for (size_t e = 0; e < elements; ++e) words[e] = metadata.first;
      return true;
    case GroupKind::kTwoValued: {
      Word zero, one;
      two_values<T>(metadata, &zero, &one);
      for (size_t e = 0; e < elements; ++e) words[e] = (codes[e / 8] >> (e % 8)) & 1 ? one : zero;
      return true;
    }
    case GroupKind::kEscaped: {
      uint64_t index;
      memcpy(&index, codes, sizeof index);
      if (index >= job.escape_count) return false;
      memcpy(words, job.escapes + index * (kGroup * sizeof(Word)), elements * sizeof(Word));
      return true;
    }
    case GroupKind::kWide:
      if (job.bits < kFewestWideBits) return false;
      decode_wide<T>(job, metadata, elements, codes, words);
      return true;
    case GroupKind::kRegular:
      break;
  }
  if (job.bits == 0) return false;
  const Dequantiser group = read_group<T>(metadata, job.bits, job.zeros);
  const unsigned first_code = group.keep_zero ? 1 : 0;
  if (group.dither) {
    uint8_t noise[kGroup];
    philox_noise(job.nonce, job.first_group, noise);
    for (size_t e = 0; e < elements; ++e) {
      const unsigned code = code_at(codes, job.bits, e);
      if (code < first_code) {
        words[e] = 0;
        continue;
      }
      const unsigned sum = (code - first_code) << 8 | (noise[e] ^ 0xFFu);
      const float level = (static_cast<float>(sum) - 127.5f) * (1.0f / 256.0f);  // exact
      words[e] = T::from_float(fused(group.step, level, group.anchor));
    }
  } else {
    for (size_t e = 0; e < elements; ++e) {
      const unsigned code = code_at(codes, job.bits, e);
      if (code < first_code) {
        words[e] = 0;
        continue;
      }
      float value = fused(group.step, static_cast<float>(code - first_code), group.anchor);
      value = value < T::kLargest ? value : T::kLargest;
      value = value > -T::kLargest ? value : -T::kLargest;
      words[e] = T::from_float(value);
    }
  }
  return true;
}

template <class T>
void encode_plain_groups(const EncodeGroups& job) {
  Raiser<T, Conversions> raiser(job);
  typename T::Word raised[kGroup];
  const auto* words = static_cast<const typename T::Word*>(job.source);
  for (size_t g = 0; g < job.groups + (job.tail_elements != 0 ? 1 : 0); ++g, words += kGroup) {
    const size_t elements = g < job.groups ? kGroup : job.tail_elements;
    EncodeGroups one = group_of<T>(job, g, elements);
    one.source = raiser.next(words, elements, raised);
    encode_group<T>(one, elements);
  }
}

template <class T>
bool decode_plain_groups(const DecodeGroups& job) {
  using Word = typename T::Word;
  const size_t total = job.groups + (job.tail_elements != 0 ? 1 : 0);
  const uint8_t* codes = job.codes;
  const size_t regular = 32 * (job.bits == 0 ? 1 : job.bits);
  DecodeGroups one = job;
  Lowerer<T, Conversions> lowerer(job);
  for (size_t g = 0; g < total; ++g) {
    Metadata<T> metadata;
    one.metadata = static_cast<const uint8_t*>(job.metadata) + g * sizeof metadata;
    one.first_group = job.first_group + g;
    memcpy(&metadata, one.metadata, sizeof metadata);
    size_t slot = job.compacted ? slot_bytes_of<T>(metadata, regular) : regular;
    const size_t left = static_cast<size_t>(job.codes_end - codes);
    const uint8_t* from = codes;
    uint8_t expanded[kGroup];
    if (job.squeezed && is_zero_kept<T>(metadata)) {
      slot = expand_slot<Planes>(job.bits, codes, left, expanded);
      if (slot == 0) return false;
      from = expanded;
    }
    if (left < slot) return false;
    const size_t elements = g < job.groups ? kGroup : job.tail_elements;
    Word* const target = static_cast<Word*>(job.target) + g * kGroup;
    if (!decode_group<T>(one, elements, from, target) ||
        !lowerer.next(kind_of<T>(metadata), codes, elements, target))
      return false;
    codes += slot;
  }
  return true;
}

template <class T>
size_t count_plain_escapes(const EncodeGroups& job) {
  using Word = typename T::Word;
  size_t count = 0;
  const size_t total = job.groups + (job.tail_elements != 0 ? 1 : 0);
  const bool wide = job.bits >= kFewestWideBits;
  if (wide && job.widest_step == kLargestFinite) return 0;
  for (size_t g = 0; g < total; ++g) {
    const size_t elements = g < job.groups ? kGroup : job.tail_elements;
    const Word* const words = static_cast<const Word*>(job.source) + g * kGroup;
    Word other = 0;
    if (find_pattern(words, elements, &other) != Pattern::kOther) continue;
    if (job.bits == 0) {
      ++count;
      continue;
    }
    float minimum = T::to_float(words[0]), maximum = minimum;
    bool finite = true;
    WideRange range;
    for (size_t e = 0; e < elements; ++e) {
      const float value = T::to_float(words[e]);
      finite = finite && is_finite_value(value);
      minimum = value < minimum ? value : minimum;
      maximum = value > maximum ? value : maximum;
      widen_range(value, &range);
    }
    Quantiser quantiser;
    WidePlan plan;
    Metadata<T> metadata;
    const bool spans = finite && is_finite_value(maximum - minimum);
    const bool coded =
        spans ? plan_group<T>(minimum, maximum, static_cast<float>((1u << job.bits) - 1),
                              &quantiser, &metadata, job.widest_step)
              : wide && plan_wide<T>(range, job.bits, &plan, &metadata, job.widest_step);
    count += coded ? 0 : 1;
  }
  return count;
}

}  // namespace
}  // namespace pleat::compress
