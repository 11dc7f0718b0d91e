// Decodes whole groups, one after the other. Included through kernels_simd.h. Anonymous: see
// kernels.h.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "compress/exponents/lowerer.h"
#include "compress/grouped/compacted_blocks.h"
#include "compress/grouped/encode_simd.h"

namespace pleat::compress {
namespace {

constexpr size_t kCodePrefetchBytes = 1024;  // how far ahead of decoding

template <unsigned kBits>
I unpack_codes(const uint8_t* slot, size_t e) {
  constexpr CodePlanes kPlanes = planes_of(kBits);
  const I low = Simd::unpack_chunk<kPlanes.low>(slot + kPlanes.low_bytes(e));
  if constexpr (kPlanes.high == 0) {
    return low;
  } else {
    const uint8_t* const high = slot + kPlanes.low_bytes(kGroup) + e * kPlanes.high / 8;
    return Simd::bit_or(low, Simd::shift_left<kPlanes.low>(Simd::unpack_chunk<kPlanes.high>(high)));
  }
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

// Group `g` of a job. Apart from the loop, so that this keeps its registers.
template <class T>
__attribute__((noinline, cold)) bool decode_wide_group(const DecodeGroups& job, size_t g,
                                                       const uint8_t* codes, void* target) {
  DecodeGroups one = job;
  one.metadata = static_cast<const Metadata<T>*>(job.metadata) + g;
  one.first_group = job.first_group + g;
  one.codes = codes;
  one.groups = 0;
  one.tail_elements = kGroup;
  one.target = target;
  one.exponents = {};
  return kScalarKernels.decode[T::kType](one);
}

template <class T, unsigned kBits, bool kStream>
bool decode_whole_groups(const DecodeGroups& job, const uint8_t** end) {
  using Word = typename T::Word;
  constexpr size_t kSlot = 32 * (kBits == 0 ? 1 : kBits);
  const uint8_t* codes = job.codes;
  const Philox philox(job.nonce, static_cast<uint32_t>(job.first_group >> 32));
  alignas(64) uint8_t noise[kGroup], expanded[kSlot];
  Lowerer<T, Conversions> lowerer(job);
  for (size_t g = 0; g < job.groups; ++g) {
    Metadata<T> metadata;
    memcpy(&metadata, static_cast<const uint8_t*>(job.metadata) + g * sizeof metadata,
           sizeof metadata);
    const GroupKind kind = kind_of<T>(metadata);
    size_t slot = job.compacted ? slot_bytes_of<T>(metadata, kSlot) : kSlot;
    const size_t left = static_cast<size_t>(job.codes_end - codes);
    const uint8_t* from = codes;
    if constexpr (kBits >= 2) {
      if (job.squeezed && is_zero_kept<T>(metadata)) {
        slot = expand_slot<Planes>(kBits, codes, left, expanded);
        if (slot == 0) return false;
        from = expanded;
      }
    }
    if (left < slot) return false;
    Word* const target = static_cast<Word*>(job.target) + g * kGroup;
    if (__builtin_expect(kind == GroupKind::kWide, 0)) {
      if (!decode_wide_group<T>(job, g, codes, target) ||
          !lowerer.next(kind, codes, kGroup, target))
        return false;
      codes += slot;
      continue;
    }
#pragma GCC unroll 4
    for (size_t line = 0; line < kSlot; line += 64)
      Simd::prefetch(codes + kCodePrefetchBytes + line);
    switch (kind) {
      case GroupKind::kRegular:
        if constexpr (kBits == 0) {
          return false;
        } else {
          const Dequantiser group = read_group<T>(metadata, kBits, job.zeros);
          if (group.dither) {
            philox.noise(static_cast<uint32_t>(job.first_group + g), noise);
            const auto decode = group.keep_zero ? decode_dithered<T, kBits, kStream, true>
                                                : decode_dithered<T, kBits, kStream, false>;
            decode(group, from, noise, target);
          } else {
            const auto decode = group.keep_zero ? decode_plain<T, kBits, kStream, true>
                                                : decode_plain<T, kBits, kStream, false>;
            decode(group, from, target);
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
      case GroupKind::kWide:  // see above
        break;
      case GroupKind::kEscaped: {
        uint64_t index;
        memcpy(&index, codes, sizeof index);
        if (index >= job.escape_count) return false;
        memcpy(target, job.escapes + index * (kGroup * sizeof(Word)), kGroup * sizeof(Word));
        break;
      }
    }
    if (!lowerer.next(kind, codes, kGroup, target)) return false;
    codes += slot;
  }
  if constexpr (kStream) Simd::fence();
  *end = codes;
  return true;
}

template <class T>
bool decode_plain_groups(const DecodeGroups& job) {
  const uint8_t* end = job.codes;
  bool intact = false;
  with_grouped_width(job.bits, [&]<unsigned kBits>() {
    intact = job.stream ? decode_whole_groups<T, kBits, true>(job, &end)
                        : decode_whole_groups<T, kBits, false>(job, &end);
  });
  if (!intact || job.tail_elements == 0) return intact;
  DecodeGroups tail = job;
  tail.metadata = static_cast<const Metadata<T>*>(job.metadata) + job.groups;
  tail.codes = end;
  tail.first_group = job.first_group + job.groups;
  tail.groups = 0;
  if (job.parts != nullptr)
    tail.parts += parts_before(job.exponents, tail.first_group) -
                  parts_before(job.exponents, job.first_group);
  tail.target = static_cast<typename T::Word*>(job.target) + job.groups * kGroup;
  return kScalarKernels.decode[T::kType](tail);
}

}  // namespace
}  // namespace pleat::compress
