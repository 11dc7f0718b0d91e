// The vector kernels, written once for every width over the operations in simd_*.h. Work goes in
// batches of 8 groups: first a pass that finds patterns, ranges and energy, then the metadata (so
// that the divisions overlap), then the codes, from data that is by now in the first-level cache.
// Included by one file per instruction set, after its simd_*.h. Anonymous: see kernels.h.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "compress/frame_kernels.h"
#include "compress/group_math.h"
#include "compress/kernels.h"
#include "compress/transform_kernels.h"

namespace pleat::compress {
namespace {

using F = Simd::F;
using I = Simd::I;

constexpr size_t kGroup = 256;
constexpr size_t kBatch = 8;
constexpr size_t kPrefetchBytes = 4096;      // ahead of the first pass
constexpr size_t kCodePrefetchBytes = 1024;  // ahead of decoding

// ---- dither ----

// Philox4x32-7 of counters (call, group, 0 or a constant, 0): what rounds 1 to 3 compute from the
// call number alone is kept, so that a group costs about five rounds.
class Philox {
 public:
  static constexpr size_t kVectors = 16 / Simd::kCalls;

  Philox(uint64_t nonce, uint32_t group_high) {
    const auto key_low = static_cast<uint32_t>(nonce),
               key_high = static_cast<uint32_t>(nonce >> 32);
    for (unsigned r = 0; r < 7; ++r) {
      key0_[r] = Simd::splat64(static_cast<uint32_t>(key_low + r * kPhiloxW0));
      key1_[r] = Simd::splat64(static_cast<uint32_t>(key_high + r * kPhiloxW1));
    }
    const uint64_t high = uint64_t{kPhiloxM1} * group_high;
    scalar0_ = static_cast<uint32_t>(high >> 32) ^ key_low;
    const I m0 = Simd::splat64(kPhiloxM0), m1 = Simd::splat64(kPhiloxM1);
    for (size_t v = 0; v < kVectors; ++v) {
      const I p0 = Simd::multiply(Simd::first_calls(v * Simd::kCalls), m0);
      const I c2 = Simd::bit_xor(Simd::high_word(p0), key1_[0]);
      a_[v] = Simd::bit_xor(p0, key1_[1]);  // to be xored with high(M0 * c0)
      const I p1 = Simd::multiply(c2, m1);
      const I c0 =
          Simd::xor3(Simd::high_word(p1), Simd::splat64(static_cast<uint32_t>(high)), key0_[1]);
      b_[v] = Simd::bit_xor(p1, key0_[2]);
      const I q0 = Simd::multiply(c0, m0);
      c_[v] = Simd::bit_xor(Simd::high_word(q0), key1_[2]);
      d_[v] = q0;
    }
  }

  // The 256 noise bytes of a group, in element order.
  void noise(uint32_t group, uint8_t* out) const {
    const I m0 = Simd::splat64(kPhiloxM0), m1 = Simd::splat64(kPhiloxM1);
    const uint64_t p0 = uint64_t{kPhiloxM0} * (group ^ scalar0_);
    const I p0_high = Simd::splat64(p0 >> 32), p0_low = Simd::splat64(p0 & 0xFFFF'FFFFu);
#pragma GCC unroll 4
    for (size_t v = 0; v < kVectors; ++v) {
      const I p1 = Simd::multiply(Simd::bit_xor(a_[v], p0_high), m1);
      I c0 = Simd::bit_xor(Simd::high_word(p1), b_[v]);
      I c1 = p1;
      I c2 = Simd::bit_xor(c_[v], p0_low);
      I c3 = d_[v];
#pragma GCC unroll 3
      for (unsigned r = 3; r < 6; ++r) {
        const I q0 = Simd::multiply(c0, m0);
        const I q1 = Simd::multiply(c2, m1);
        c0 = Simd::xor3(Simd::high_word(q1), c1, key0_[r]);
        c1 = q1;
        c2 = Simd::xor3(Simd::high_word(q0), c3, key1_[r]);
        c3 = q0;
      }
      const size_t call = v * Simd::kCalls;
      uint8_t* const bytes = out + 128 * (call / 8) + 8 * (call % 8);
      // The last round's products are words 1 and 3 below what words 0 and 2 still lack.
      Simd::store_bytes(bytes, Simd::xor_high(Simd::multiply(c2, m1), Simd::bit_xor(c1, key0_[6])));
      Simd::store_bytes(bytes + 64,
                        Simd::xor_high(Simd::multiply(c0, m0), Simd::bit_xor(c3, key1_[6])));
    }
  }

 private:
  I a_[kVectors], b_[kVectors], c_[kVectors], d_[kVectors];
  I key0_[7], key1_[7];
  uint32_t scalar0_;
};

// ---- first pass ----

// At most two distinct bit patterns? Ends at the first vector for nearly all other data.
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
  float energy;  // outside [floor, ceiling]: to be taken again in double
};

template <class T>
Summary summarise(const typename T::Word* words) {
  constexpr size_t kVectors = 32 / Simd::kLanes;  // 32 lanes of partial sums
  F low[kVectors], high[kVectors], sums[kVectors];
#pragma GCC unroll 2
  for (size_t j = 0; j < kVectors; j += 2) Simd::load_pair(T{}, words + j * Simd::kLanes, low + j);
#pragma GCC unroll 4
  for (size_t j = 0; j < kVectors; ++j) {
    high[j] = low[j];
    sums[j] = Simd::mul(low[j], low[j]);
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
        sums[j + i] = Simd::fma(v[i], v[i], sums[j + i]);
      }
    }
  }
  F least = low[0], most = high[0];
#pragma GCC unroll 4
  for (size_t j = 1; j < kVectors; ++j) {
    least = Simd::min(least, low[j]);
    most = Simd::max(most, high[j]);
  }
  return {Simd::horizontal_min(least), Simd::horizontal_max(most), Simd::fold(T{}, sums)};
}

// The smallest element above zero of a group that has one, and none below.
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

template <class T>
void prefetch_group(const typename T::Word* words) {
  const char* const p = reinterpret_cast<const char*>(words) + kPrefetchBytes;
#pragma GCC unroll 16
  for (size_t line = 0; line < kGroup * sizeof(typename T::Word); line += 64)
    Simd::prefetch(p + line);
}

bool is_finite(float value) {
  return magnitude(value) < float_of(0x7F80'0000u);
}
double square(float value) {
  return static_cast<double>(value) * static_cast<double>(value);
}

// Constant and two-valued groups, in full; the words of the metadata are returned.
template <class T>
Metadata<T> encode_constant(const typename T::Word* words, BlockResult* result) {
  const float value = T::to_float(words[0]);
  if (is_finite(value)) result->energy += 256.0 * square(value);
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
  size_t ones = 0;
  for (size_t w = 0; w < kGroup; w += kWords) {
    const Simd::Mask hit = Simd::equal(Word{}, Simd::load_bytes(words + w), pattern);
    memcpy(slot + w / 8, &hit, kWords / 8);  // little endian
    ones += static_cast<size_t>(__builtin_popcountll(hit));
  }
  const float a = T::to_float(one);
  const float b = T::to_float(words[0] == one ? other : words[0]);
  if (is_finite(a) && is_finite(b))
    result->energy +=
        static_cast<double>(ones) * square(a) + static_cast<double>(kGroup - ones) * square(b);
  ++result->two_valued_groups;
  return metadata;
}

// ---- second pass ----

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
    F sums[4];
    Simd::load_pair(T{}, words + e, sums);
    Simd::load_pair(T{}, words + e + 2 * Simd::kLanes, sums + 2);
#pragma GCC unroll 4
    for (size_t j = 0; j < 4; ++j) {
      const F v = sums[j];
      sums[j] = Simd::fma(Simd::sub(v, anchor), inverse, base);
      if constexpr (kKeepZero) {  // all bits 0, and so the code, where the element is
        zeros = Simd::count_equal(zeros, v, zero);
        sums[j] = Simd::choose_above(v, zero, sums[j], zero);
      }
    }
    const I codes = Simd::codes(T{}, sums, Simd::load_bytes(noise + e));
    if constexpr (kBits == 3) {
      Simd::pack_chunk<2>(Simd::bit_and(codes, Simd::splat8(3)), slot + e / 4);
      Simd::pack_chunk<1>(Simd::shift_right2(codes), slot + 64 + e / 8);
    } else {
      Simd::pack_chunk<kBits>(codes, slot + e * kBits / 8);
    }
  }
  return kKeepZero ? Simd::total(zeros) : 0;
}

template <class T, unsigned kBits>
void encode_whole_groups(const EncodeGroups& job) {
  using Word = typename T::Word;
  constexpr size_t kSlot = 32 * (kBits == 0 ? 1 : kBits);
  const Word* const source = static_cast<const Word*>(job.source);
  BlockResult& result = *job.result;
  alignas(64) uint8_t noise[kGroup];
  const Philox philox(job.nonce, static_cast<uint32_t>(job.first_group >> 32));
  const Metadata<T> escape{kEscapeWord<T>, kEscapeWord<T>};

  for (size_t base = 0; base < job.groups; base += kBatch) {
    const size_t count = job.groups - base < kBatch ? job.groups - base : kBatch;
    Summary summaries[kBatch];
    Quantiser quantisers[kBatch];
    Metadata<T> metadata[kBatch];
    double energies[kBatch];
    unsigned regular = 0;  // one bit per group of the batch
    for (size_t g = 0; g < count; ++g) {
      const Word* const words = source + (base + g) * kGroup;
      prefetch_group<T>(words);
      Word other = 0;
      const Pattern pattern = find_pattern<T>(words, &other);
      if (pattern == Pattern::kOther) {
        if constexpr (kBits != 0) summaries[g] = summarise<T>(words);
        regular |= 1u << g;
        continue;
      }
      uint8_t* const slot = job.codes + (base + g) * kSlot;
      memset(slot, 0, kSlot);
      BlockResult one{};  // energies are added in group order below
      metadata[g] = pattern == Pattern::kConstant ? encode_constant<T>(words, &one)
                                                  : encode_two_valued<T>(words, other, slot, &one);
      energies[g] = one.energy;
      result.constant_groups += one.constant_groups;
      result.two_valued_groups += one.two_valued_groups;
    }
    if constexpr (kBits == 0) {
      for (size_t g = 0; g < count; ++g) {
        if ((regular >> g & 1) == 0) {
          result.energy += energies[g];
          continue;
        }
        metadata[g] = escape;
        memset(job.codes + (base + g) * kSlot, 0, kSlot);
        ++result.escaped_groups;
      }
    } else {
      constexpr float kLargestCode = static_cast<float>((1u << kBits) - 1);
      unsigned quantised = 0, zero_kept = 0;
      for (size_t g = 0; g < count; ++g) {
        if ((regular >> g & 1) == 0) {
          result.energy += energies[g];
          continue;
        }
        const Summary& summary = summaries[g];
        bool finite = true;
        double energy = summary.energy;
        if (__builtin_expect(!(summary.energy >= kEnergyFloor && summary.energy <= kEnergyCeiling),
                             0))
          finite = careful_energy(T::kType, source + (base + g) * kGroup, kGroup, &energy);
        if (finite) result.energy += energy;
        if (__builtin_expect(finite && plan_group<T>(summary.minimum, summary.maximum, kLargestCode,
                                                     &quantisers[g], &metadata[g]),
                             1)) {
          quantised |= 1u << g;
          if (keeps_zero(summary.minimum, kBits)) {
            zero_kept |= 1u << g;
            plan_zero_kept<T>(smallest_positive<T>(source + (base + g) * kGroup, summary.maximum),
                              summary.maximum, kLargestCode, &quantisers[g], &metadata[g]);
          }
          const double range =
              static_cast<double>(summary.maximum) - static_cast<double>(summary.minimum);
          result.sum_squared_range += 256.0 * (range * range);
          ++result.lossy_groups;
        } else {
          metadata[g] = escape;
          memset(job.codes + (base + g) * kSlot, 0, kSlot);
          ++result.escaped_groups;
        }
      }
      for (size_t g = 0; g < count; ++g) {
        if ((quantised >> g & 1) == 0) continue;
        philox.noise(static_cast<uint32_t>(job.first_group + base + g), noise);
        const auto encode = (zero_kept >> g & 1) != 0 ? encode_codes<T, kBits, (kBits >= 2)>
                                                      : encode_codes<T, kBits, false>;
        result.elements_at_minimum += encode(source + (base + g) * kGroup, quantisers[g], noise,
                                             job.codes + (base + g) * kSlot);
      }
    }
    memcpy(static_cast<Metadata<T>*>(job.metadata) + base, metadata, count * sizeof metadata[0]);
  }
}

template <class T>
void encode_groups(const EncodeGroups& job) {
  if (job.transformed) return encode_transformed<T>(job, encode_groups<Float32>);
  switch (job.bits) {
    case 0:
      encode_whole_groups<T, 0>(job);
      break;
    case 1:
      encode_whole_groups<T, 1>(job);
      break;
    case 2:
      encode_whole_groups<T, 2>(job);
      break;
    case 3:
      encode_whole_groups<T, 3>(job);
      break;
    case 4:
      encode_whole_groups<T, 4>(job);
      break;
    default:
      encode_whole_groups<T, 8>(job);
      break;
  }
  if (job.tail_elements != 0) {
    EncodeGroups tail = job;
    tail.source = static_cast<const typename T::Word*>(job.source) + job.groups * kGroup;
    tail.first_group = job.first_group + job.groups;
    tail.metadata = static_cast<Metadata<T>*>(job.metadata) + job.groups;
    tail.codes = job.codes + job.groups * 32 * (job.bits == 0 ? 1 : job.bits);
    encode_one_group(T::kType, tail, job.tail_elements);
  }
}

template <class T>
size_t count_escapes(const EncodeGroups& job) {
  using Word = typename T::Word;
  if (job.transformed) return count_transformed_escapes<T>(job, encode_groups<Float32>);
  if (job.bits == 0 || job.tail_elements != 0) {
    if (job.tail_elements != 0 && job.groups != 0) {  // the tail by the reference path
      EncodeGroups whole = job, tail = job;
      whole.tail_elements = 0;
      tail.groups = 0;
      tail.source = static_cast<const Word*>(job.source) + job.groups * kGroup;
      return count_escapes<T>(whole) + kScalarKernels.count_escapes[T::kType](tail);
    }
    if (job.tail_elements != 0) return kScalarKernels.count_escapes[T::kType](job);
  }
  const float largest_code = static_cast<float>((1u << job.bits) - 1);
  size_t escapes = 0;
  for (size_t g = 0; g < job.groups; ++g) {
    const Word* const words = static_cast<const Word*>(job.source) + g * kGroup;
    Word other = 0;
    if (find_pattern<T>(words, &other) != Pattern::kOther) continue;
    if (job.bits == 0) {
      ++escapes;
      continue;
    }
    prefetch_group<T>(words);
    const Summary summary = summarise<T>(words);
    Quantiser quantiser;
    Metadata<T> metadata;
    double energy;
    const bool finite = (summary.energy >= kEnergyFloor && summary.energy <= kEnergyCeiling) ||
                        careful_energy(T::kType, words, kGroup, &energy);
    if (!finite ||
        !plan_group<T>(summary.minimum, summary.maximum, largest_code, &quantiser, &metadata))
      ++escapes;
  }
  return escapes;
}

// ---- decoding ----

template <unsigned kBits>
I unpack_codes(const uint8_t* slot, size_t e) {
  if constexpr (kBits == 3)
    return Simd::bit_or(Simd::unpack_chunk<2>(slot + e / 4),
                        Simd::shift_left2(Simd::unpack_chunk<1>(slot + 64 + e / 8)));
  else
    return Simd::unpack_chunk<kBits>(slot + e * kBits / 8);
}

template <class T, unsigned kBits, bool kStream, bool kKeepZero>
void decode_dithered(const Dequantiser& group, const uint8_t* slot, const uint8_t* noise,
                     typename T::Word* target) {
  const F anchor = Simd::splat(group.anchor);
  const F step = Simd::splat(group.step);
  const F zero = Simd::splat(0.0f), half = Simd::splat(-0.5f);
  const F offset = Simd::splat(level_offset(kBits, kKeepZero));
#pragma GCC unroll 2
  for (size_t e = 0; e < kGroup; e += Simd::kChunk) {
    F out[4];
    Simd::dithered_levels<kBits>(unpack_codes<kBits>(slot, e), Simd::load_bytes(noise + e), out);
#pragma GCC unroll 4
    for (size_t j = 0; j < 4; ++j) {
      const F level = Simd::sub(out[j], offset);
      const F value = Simd::fma(step, level, anchor);
      out[j] = kKeepZero ? Simd::choose_above(level, half, value, zero) : value;  // code 0: below
    }
    Simd::store_chunk<kStream>(T{}, target + e, out);
  }
}

template <class T, unsigned kBits, bool kStream, bool kKeepZero>
void decode_plain(const Dequantiser& group, const uint8_t* slot, typename T::Word* target) {
  const F anchor = Simd::splat(group.anchor);
  const F step = Simd::splat(group.step);
  const F most = Simd::splat(T::kLargest), least = Simd::splat(-T::kLargest);
  const F zero = Simd::splat(0.0f), one = Simd::splat(1.0f);
#pragma GCC unroll 2
  for (size_t e = 0; e < kGroup; e += Simd::kChunk) {
    F out[4];
    Simd::levels(unpack_codes<kBits>(slot, e), out);
#pragma GCC unroll 4
    for (size_t j = 0; j < 4; ++j) {
      const F level = kKeepZero ? Simd::sub(out[j], one) : out[j];
      const F value = Simd::max(Simd::min(Simd::fma(step, level, anchor), most), least);
      out[j] = kKeepZero ? Simd::choose_above(out[j], zero, value, zero) : value;
    }
    Simd::store_chunk<kStream>(T{}, target + e, out);
  }
}

template <class T, bool kStream>
void decode_two_valued(const Metadata<T>& metadata, const uint8_t* slot, typename T::Word* target) {
  using Word = typename T::Word;
  constexpr size_t kWords = Simd::kWordsPerVector<Word>;
  Word zero, one;
  two_values<T>(metadata, &zero, &one);
  const I zeros = Simd::splat_word(zero), ones = Simd::splat_word(one);
  for (size_t w = 0; w < kGroup; w += kWords) {
    Simd::Mask mask = 0;
    memcpy(&mask, slot + w / 8, kWords / 8);
    Simd::write<kStream>(target + w, Simd::choose(Word{}, mask, zeros, ones));
  }
}

template <class T, unsigned kBits, bool kStream>
bool decode_whole_groups(const DecodeGroups& job, const uint8_t** end) {
  using Word = typename T::Word;
  constexpr size_t kSlot = 32 * (kBits == 0 ? 1 : kBits);
  const uint8_t* codes = job.codes;
  const Philox philox(job.nonce, static_cast<uint32_t>(job.first_group >> 32));
  alignas(64) uint8_t noise[kGroup];
  for (size_t g = 0; g < job.groups; ++g) {
    Metadata<T> metadata;
    memcpy(&metadata, static_cast<const uint8_t*>(job.metadata) + g * sizeof metadata,
           sizeof metadata);
    const GroupKind kind = kind_of<T>(metadata);
    const size_t slot = job.compacted ? slot_bytes_of<T>(metadata, kSlot) : kSlot;
    if (static_cast<size_t>(job.codes_end - codes) < slot) return false;
    Word* const target = static_cast<Word*>(job.target) + g * kGroup;
#pragma GCC unroll 4
    for (size_t line = 0; line < kSlot; line += 64)
      Simd::prefetch(codes + kCodePrefetchBytes + line);
    switch (kind) {
      case GroupKind::kRegular:
        if constexpr (kBits == 0) {
          return false;
        } else {
          const Dequantiser group = read_group<T>(metadata, kBits);
          if (group.dither) {
            philox.noise(static_cast<uint32_t>(job.first_group + g), noise);
            const auto decode = group.keep_zero ? decode_dithered<T, kBits, kStream, true>
                                                : decode_dithered<T, kBits, kStream, false>;
            decode(group, codes, noise, target);
          } else {
            const auto decode = group.keep_zero ? decode_plain<T, kBits, kStream, true>
                                                : decode_plain<T, kBits, kStream, false>;
            decode(group, codes, target);
          }
        }
        break;
      case GroupKind::kConstant: {
        const I pattern = Simd::splat_word(metadata.first);
        for (size_t w = 0; w < kGroup; w += Simd::kWordsPerVector<Word>)
          Simd::write<kStream>(target + w, pattern);
        break;
      }
      case GroupKind::kTwoValued:
        decode_two_valued<T, kStream>(metadata, codes, target);
        break;
      case GroupKind::kEscaped: {
        uint64_t index;
        memcpy(&index, codes, sizeof index);
        if (index >= job.escape_count) return false;
        memcpy(target, job.escapes + index * (kGroup * sizeof(Word)), kGroup * sizeof(Word));
        break;
      }
    }
    codes += slot;
  }
  if constexpr (kStream) Simd::fence();
  *end = codes;
  return true;
}

template <class T, unsigned kBits>
bool decode_with_bits(const DecodeGroups& job, const uint8_t** end) {
  return job.stream ? decode_whole_groups<T, kBits, true>(job, end)
                    : decode_whole_groups<T, kBits, false>(job, end);
}

template <class T>
bool decode_groups(const DecodeGroups& job) {
  if (job.transformed) return decode_transformed<T>(job, decode_groups<Float32>);
  const uint8_t* end = job.codes;
  bool intact = false;
  switch (job.bits) {
    case 0:
      intact = decode_with_bits<T, 0>(job, &end);
      break;
    case 1:
      intact = decode_with_bits<T, 1>(job, &end);
      break;
    case 2:
      intact = decode_with_bits<T, 2>(job, &end);
      break;
    case 3:
      intact = decode_with_bits<T, 3>(job, &end);
      break;
    case 4:
      intact = decode_with_bits<T, 4>(job, &end);
      break;
    default:
      intact = decode_with_bits<T, 8>(job, &end);
      break;
  }
  if (!intact || job.tail_elements == 0) return intact;
  DecodeGroups tail = job;
  tail.metadata = static_cast<const Metadata<T>*>(job.metadata) + job.groups;
  tail.codes = end;
  tail.first_group = job.first_group + job.groups;
  tail.groups = 0;
  tail.target = static_cast<typename T::Word*>(job.target) + job.groups * kGroup;
  return kScalarKernels.decode[T::kType](tail);
}

// ---- booleans ----

bool are_booleans(const uint8_t* source, size_t elements) {
  I seen = Simd::splat8(0);
  size_t e = 0;
  for (; e + sizeof(I) <= elements; e += sizeof(I)) {
    Simd::prefetch(source + e + kPrefetchBytes);
    seen = Simd::bit_or(seen, Simd::load_bytes(source + e));
  }
  return !Simd::any_set(Simd::bit_and(seen, Simd::splat8(0xFE))) &&
         kScalarKernels.are_booleans(source + e, elements - e);
}

bool pack_booleans(const uint8_t* source, size_t elements, uint8_t* bits) {
  I seen = Simd::splat8(0);
  size_t e = 0;
  for (; e + sizeof(I) <= elements; e += sizeof(I)) {
    Simd::prefetch(source + e + kPrefetchBytes);
    const I v = Simd::load_bytes(source + e);
    seen = Simd::bit_or(seen, v);
    const Simd::ByteMask mask = Simd::lowest_bits(v);
    memcpy(bits + e / 8, &mask, sizeof mask);
  }
  return !Simd::any_set(Simd::bit_and(seen, Simd::splat8(0xFE))) &&
         kScalarKernels.pack_booleans(source + e, elements - e, bits + e / 8);
}

template <bool kStream>
size_t unpack_whole_booleans(const uint8_t* bits, size_t elements, uint8_t* target) {
  size_t e = 0;
  for (; e + sizeof(I) <= elements; e += sizeof(I)) {
    Simd::ByteMask mask;
    memcpy(&mask, bits + e / 8, sizeof mask);
    Simd::write<kStream>(target + e, Simd::bytes_of_mask(mask));
  }
  if constexpr (kStream) Simd::fence();
  return e;
}
void unpack_booleans(const uint8_t* bits, size_t elements, uint8_t* target, bool stream) {
  const size_t e = stream ? unpack_whole_booleans<true>(bits, elements, target)
                          : unpack_whole_booleans<false>(bits, elements, target);
  kScalarKernels.unpack_booleans(bits + e / 8, elements - e, target + e, stream);
}

// ---- planes of lossless floats; counts are multiples of 64 ----

struct Planes {
  template <unsigned kBits>
  static void pack_all(const uint8_t* bytes, size_t count, uint8_t* out) {
    for (size_t e = 0; e < count; e += Simd::kChunk)
      Simd::pack_chunk<kBits>(Simd::load_bytes(bytes + e), out + e * kBits / 8);
  }
  template <unsigned kBits>
  static void unpack_all(const uint8_t* in, size_t count, uint8_t* bytes) {
    for (size_t e = 0; e < count; e += Simd::kChunk)
      Simd::store_bytes(bytes + e, Simd::unpack_chunk<kBits>(in + e * kBits / 8));
  }
  static void pack(unsigned bits, const uint8_t* bytes, size_t count, uint8_t* out) {
    switch (bits) {
      case 1:
        return pack_all<1>(bytes, count, out);
      case 2:
        return pack_all<2>(bytes, count, out);
      case 4:
        return pack_all<4>(bytes, count, out);
      default:
        return pack_all<8>(bytes, count, out);
    }
  }
  static void unpack(unsigned bits, const uint8_t* in, size_t count, uint8_t* bytes) {
    switch (bits) {
      case 1:
        return unpack_all<1>(in, count, bytes);
      case 2:
        return unpack_all<2>(in, count, bytes);
      case 4:
        return unpack_all<4>(in, count, bytes);
      default:
        return unpack_all<8>(in, count, bytes);
    }
  }
};

}  // namespace
}  // namespace pleat::compress

#include "compress/kernel_table.h"
