// Encodes whole groups in batches of 8. A first pass finds patterns and ranges; then come
// the metadata (so that the divisions overlap), then the codes, from data that are now in the
// first-level cache. Included through kernels_simd.h. Anonymous: see kernels.h.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "compress/exponents/raiser.h"
#include "compress/grouped/compacted_blocks.h"
#include "compress/grouped/group_math.h"
#include "compress/kernels.h"
#include "compress/philox_simd.h"
#include "compress/planes_simd.h"

namespace pleat::compress {
namespace {

constexpr size_t kGroup = 256;
constexpr size_t kBatch = 8;
constexpr size_t kFetchBytes = 16 * 1024;  // measured: 16 to 32 KiB differ little

// ---- first pass ----

// Whether a group has at most two distinct bit patterns. For nearly all other data the search ends
// at the first vector.
enum class Pattern : uint8_t { kConstant, kTwoValued, kOther };

template <class T>
Pattern find_pattern(const typename T::Word* words, typename T::Word* other) {
  using Word = typename T::Word;
  constexpr size_t kWords = Simd::kWordsPerVector<Word>;
  constexpr Simd::Mask kAll = static_cast<Simd::Mask>(~uint64_t{0} >> (64 - kWords));
  const I first = Simd::splat_word(words[0]);
  size_t w = 0;
  Simd::Mask same = kAll;
  for (; w < kGroup; w += kWords) {
    same = Simd::equal(Word{}, Simd::load_bytes(words + w), first);
    if (same != kAll) break;
  }
  if (same == kAll) return Pattern::kConstant;
  *other = words[w + static_cast<size_t>(__builtin_ctzll(static_cast<uint64_t>(~same & kAll)))];
  const I second = Simd::splat_word(*other);
  for (; w < kGroup; w += kWords) {
    const I v = Simd::load_bytes(words + w);
    if ((Simd::equal(Word{}, v, first) | Simd::equal(Word{}, v, second)) != kAll)
      return Pattern::kOther;
  }
  return Pattern::kTwoValued;
}

struct Summary {
  float minimum;
  float maximum;
  bool finite;  // true if all elements are finite
};

template <class T>
Summary summarise(const typename T::Word* words) {
  constexpr size_t kVectors = 32 / Simd::kLanes;
  const F zero = Simd::splat(0.0f);
  F low[kVectors], high[kVectors],
      zeros[kVectors];  // zero times an element that is not finite is NaN
#pragma GCC unroll 2
  for (size_t j = 0; j < kVectors; j += 2) Simd::load_pair(T{}, words + j * Simd::kLanes, low + j);
#pragma GCC unroll 4
  for (size_t j = 0; j < kVectors; ++j) {
    high[j] = low[j];
    zeros[j] = Simd::mul(low[j], zero);
  }
#pragma GCC unroll 7
  for (size_t r = 1; r < 8; ++r) {
#pragma GCC unroll 2
    for (size_t j = 0; j < kVectors; j += 2) {
      F v[2];
      Simd::load_pair(T{}, words + 32 * r + j * Simd::kLanes, v);
#pragma GCC unroll 2
      for (size_t i = 0; i < 2; ++i) {
        low[j + i] = Simd::min(low[j + i], v[i]);
        high[j + i] = Simd::max(high[j + i], v[i]);
        zeros[j + i] = Simd::fma(v[i], zero, zeros[j + i]);
      }
    }
  }
  F least = low[0], most = high[0], all = zeros[0];
#pragma GCC unroll 4
  for (size_t j = 1; j < kVectors; ++j) {
    least = Simd::min(least, low[j]);
    most = Simd::max(most, high[j]);
    all = Simd::add(all, zeros[j]);
  }
  constexpr Simd::Mask kAll = static_cast<Simd::Mask>(~uint64_t{0} >> (64 - Simd::kLanes));
  return {Simd::horizontal_min(least), Simd::horizontal_max(most),
          Simd::within(all, zero, zero) == kAll};
}

// The smallest element above zero of a group that has such elements and none below zero.
template <class T>
float smallest_positive(const typename T::Word* words, float maximum) {
  constexpr size_t kVectors = 4;
  const F zero = Simd::splat(0.0f), none = Simd::splat(maximum);
  F low[kVectors] = {none, none, none, none};
  for (size_t e = 0; e < kGroup; e += kVectors * Simd::kLanes) {
#pragma GCC unroll 4
    for (size_t j = 0; j < kVectors; ++j) {
      const F v = Simd::load(T{}, words + e + j * Simd::kLanes);
      low[j] = Simd::min(low[j], Simd::choose_above(v, zero, v, none));
    }
  }
  return Simd::horizontal_min(Simd::min(Simd::min(low[0], low[1]), Simd::min(low[2], low[3])));
}

// Prefetches the bytes of `count` words that come a batch or two later, into the second-level
// cache. The first level allows too few requests at a time for memory to keep up with two threads.
template <class Word>
void fetch_ahead(const Word* words, size_t count) {
  const char* const p = reinterpret_cast<const char*>(words) + kFetchBytes;
#pragma GCC unroll 16
  for (size_t line = 0; line < count * sizeof(Word); line += 64) Simd::prefetch_far(p + line);
}

// Encodes constant and two-valued groups; returns the words of the metadata.
template <class T>
Metadata<T> encode_constant(const typename T::Word* words, BlockResult* result) {
  ++result->constant_groups;
  return {words[0], 0};
}

template <class T>
Metadata<T> encode_two_valued(const typename T::Word* words, typename T::Word other, uint8_t* slot,
                              BlockResult* result) {
  using Word = typename T::Word;
  constexpr size_t kWords = Simd::kWordsPerVector<Word>;
  Word one = 0;
  const Metadata<T> metadata = two_valued_metadata<T>(words[0], other, &one);
  const I pattern = Simd::splat_word(one);
  for (size_t w = 0; w < kGroup; w += kWords) {
    const Simd::Mask hit = Simd::equal(Word{}, Simd::load_bytes(words + w), pattern);
    memcpy(slot + w / 8, &hit, kWords / 8);  // little endian
  }
  ++result->two_valued_groups;
  return metadata;
}

// ---- second pass ----

// Elements `e` to `e` + Simd::kChunk of a slot.
template <unsigned kBits>
void pack_codes(I codes, uint8_t* slot, size_t e) {
  constexpr CodePlanes kPlanes = planes_of(kBits);
  uint8_t* const low = slot + kPlanes.low_bytes(e);
  if constexpr (kPlanes.high == 0) {
    Simd::pack_chunk<kPlanes.low>(codes, low);
  } else {
    uint8_t* const high = slot + kPlanes.low_bytes(kGroup) + e * kPlanes.high / 8;
    Simd::pack_chunk<kPlanes.low>(Simd::bit_and(codes, Simd::splat8(kPlanes.low_mask())), low);
    // The shift moves bits of a byte into its neighbour. One bit is taken from there as it is.
    I rest = Simd::shift_right<kPlanes.low>(codes);
    if constexpr (kPlanes.high > 1) rest = Simd::bit_and(rest, Simd::splat8(kPlanes.high_mask()));
    Simd::pack_chunk<kPlanes.high>(rest, high);
  }
}

template <class T, unsigned kBits, bool kKeepZero>
size_t encode_codes(const typename T::Word* words, const Quantiser& quantiser, const uint8_t* noise,
                    uint8_t* slot) {
  const F anchor = Simd::splat(quantiser.anchor);
  const F inverse = Simd::splat(quantiser.inverse);
  const F base = Simd::splat(kKeepZero ? kMantissa + 256.0f : kMantissa);
  const F zero = Simd::splat(0.0f);
  Simd::Count zeros = Simd::no_count();
#pragma GCC unroll 2
  for (size_t e = 0; e < kGroup; e += Simd::kChunk) {
    // Asking for a group's lines all at once would delay its own loads (64 MiB, Zen 3: 3 to 16 %).
    fetch_ahead(words + e, Simd::kChunk);
    F sums[4];
    Simd::load_pair(T{}, words + e, sums);
    Simd::load_pair(T{}, words + e + 2 * Simd::kLanes, sums + 2);
#pragma GCC unroll 4
    for (size_t j = 0; j < 4; ++j) {
      const F v = sums[j];
      sums[j] = Simd::fma(Simd::sub(v, anchor), inverse, base);
      if constexpr (kKeepZero) {  // where the element is 0, all bits and so the code are 0
        zeros = Simd::count_equal(zeros, v, zero);
        sums[j] = Simd::choose_other(v, zero, sums[j], zero);
      }
    }
    const I codes = Simd::codes(T{}, sums, Simd::load_bytes(noise + e));
    pack_codes<kBits>(codes, slot, e);
  }
  return kKeepZero ? Simd::total(zeros) : 0;
}

// Group `g` of a job, from `words`. Apart from the loop, so that this keeps its registers.
template <class T>
__attribute__((noinline, cold)) Metadata<T> encode_wide_group(const EncodeGroups& job, size_t g,
                                                              const typename T::Word* words) {
  Metadata<T> metadata;
  EncodeGroups one = group_of<T>(job, g, kGroup);
  one.source = words;
  one.exponents = {};
  one.metadata = &metadata;
  kScalarKernels.encode[T::kType](one);
  return metadata;
}

template <class T, unsigned kBits>
void encode_whole_groups(const EncodeGroups& job) {
  using Word = typename T::Word;
  constexpr size_t kSlot = 32 * (kBits == 0 ? 1 : kBits);
  const Word* const source = static_cast<const Word*>(job.source);
  BlockResult& result = *job.result;
  alignas(64) uint8_t noise[kGroup];
  alignas(64) Word raised[kBatch * kGroup];
  Raiser<T, Conversions> raiser(job);
  const Philox philox(job.nonce, static_cast<uint32_t>(job.first_group >> 32));
  const Metadata<T> escape{kEscapeWord<T>, kEscapeWord<T>};
  [[maybe_unused]] const uint32_t widest = job.widest_step;

  for (size_t base = 0; base < job.groups; base += kBatch) {
    const size_t count = job.groups - base < kBatch ? job.groups - base : kBatch;
    const Word* from[kBatch];
    Summary summaries[kBatch];
    Quantiser quantisers[kBatch];
    Metadata<T> metadata[kBatch];
    unsigned regular = 0;  // one bit per group of the batch
    for (size_t g = 0; g < count; ++g) {
      const Word* const words =
          raiser.next(source + (base + g) * kGroup, kGroup, raised + g * kGroup);
      from[g] = words;
      Word other = 0;
      const Pattern pattern = find_pattern<T>(words, &other);
      if (pattern == Pattern::kOther) {
        if constexpr (kBits != 0) summaries[g] = summarise<T>(words);
        regular |= 1u << g;
        continue;
      }
      uint8_t* const slot = job.codes + (base + g) * kSlot;
      memset(slot, 0, kSlot);
      metadata[g] = pattern == Pattern::kConstant
                        ? encode_constant<T>(words, &result)
                        : encode_two_valued<T>(words, other, slot, &result);
    }
    if constexpr (kBits == 0) {
      for (size_t g = 0; g < count; ++g) {
        if ((regular >> g & 1) == 0) continue;
        metadata[g] = escape;
        memset(job.codes + (base + g) * kSlot, 0, kSlot);
        ++result.escaped_groups;
      }
    } else {
      constexpr float kLargestCode = static_cast<float>((1u << kBits) - 1);
      unsigned quantised = 0, zero_kept = 0;
      for (size_t g = 0; g < count; ++g) {
        if ((regular >> g & 1) == 0) continue;
        const Summary& summary = summaries[g];
        const bool spans = summary.finite && is_finite_value(summary.maximum - summary.minimum);
        if constexpr (kBits >= kFewestWideBits) {
          if (__builtin_expect(!spans && !job.never_wide, 0)) {
            metadata[g] = encode_wide_group<T>(job, base + g, from[g]);
            continue;
          }
        }
        if (__builtin_expect(spans && plan_group<T>(summary.minimum, summary.maximum, kLargestCode,
                                                    &quantisers[g], &metadata[g], widest),
                             1)) {
          quantised |= 1u << g;
          const bool between = job.zeros && keeps_zero_between(summary.minimum, summary.maximum);
          if (between || keeps_zero(summary.minimum, kBits)) {
            zero_kept |= 1u << g;
            const float smallest =
                between ? summary.minimum : smallest_positive<T>(from[g], summary.maximum);
            plan_zero_kept<T>(smallest, summary.maximum, kLargestCode, &quantisers[g],
                              &metadata[g]);
          }
          ++result.lossy_groups;
        } else {
          metadata[g] = escape;
          memset(job.codes + (base + g) * kSlot, 0, kSlot);
          ++result.escaped_groups;
        }
      }
      for (size_t g = 0; g < count; ++g) {
        if ((quantised >> g & 1) == 0) {
          fetch_ahead(source + (base + g) * kGroup, kGroup);
          continue;
        }
        philox.noise(static_cast<uint32_t>(job.first_group + base + g), noise);
        const auto encode = (zero_kept >> g & 1) != 0 ? encode_codes<T, kBits, (kBits >= 2)>
                                                      : encode_codes<T, kBits, false>;
        result.elements_at_minimum +=
            encode(from[g], quantisers[g], noise, job.codes + (base + g) * kSlot);
      }
    }
    memcpy(static_cast<Metadata<T>*>(job.metadata) + base, metadata, count * sizeof metadata[0]);
  }
}

template <class T>
void encode_plain_groups(const EncodeGroups& job) {
  with_grouped_width(job.bits, [&]<unsigned kBits>() { encode_whole_groups<T, kBits>(job); });
  if (job.tail_elements != 0)
    kScalarKernels.encode[T::kType](group_of<T>(job, job.groups, job.tail_elements));
}

template <class T>
size_t count_plain_escapes(const EncodeGroups& job) {
  using Word = typename T::Word;
  const bool wide = job.bits >= kFewestWideBits;
  if (wide && job.widest_step == kLargestFinite) return 0;
  const float largest_code = static_cast<float>((1u << job.bits) - 1);
  size_t escapes = 0;  // the reference path counts the tail
  if (job.tail_elements != 0)
    escapes =
        kScalarKernels.count_escapes[T::kType](group_of<T>(job, job.groups, job.tail_elements));
  for (size_t g = 0; g < job.groups; ++g) {
    const Word* const words = static_cast<const Word*>(job.source) + g * kGroup;
    Word other = 0;
    if (find_pattern<T>(words, &other) != Pattern::kOther) continue;
    if (job.bits == 0) {
      ++escapes;
      continue;
    }
    fetch_ahead(words, kGroup);
    const Summary summary = summarise<T>(words);
    Quantiser quantiser;
    Metadata<T> metadata;
    const bool spans = summary.finite && is_finite_value(summary.maximum - summary.minimum);
    if (wide && !spans) {
      escapes += kScalarKernels.count_escapes[T::kType](group_of<T>(job, g, kGroup));
    } else if (!spans || !plan_group<T>(summary.minimum, summary.maximum, largest_code, &quantiser,
                                        &metadata, job.widest_step)) {
      ++escapes;
    }
  }
  return escapes;
}

}  // namespace
}  // namespace pleat::compress
