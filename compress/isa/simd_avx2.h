// 256-bit vectors, under the names that kernels_simd.h uses. A "chunk" is four vectors of floats
// and one vector of their bytes: 32 elements. Anonymous: see kernels.h.
#pragma once

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#include "compress/element_math.h"

namespace pleat::compress {
namespace {

struct Simd {
  using F = __m256;
  using I = __m256i;
  using Count = __m256i;
  static constexpr size_t kLanes = 8;
  static constexpr size_t kChunk = 32;

  static F splat(float value) { return _mm256_set1_ps(value); }
  static F load_floats(const float* p) { return _mm256_loadu_ps(p); }
  static void store_floats(float* p, F v) { _mm256_storeu_ps(p, v); }
  static F load(Float32, const uint32_t* p) { return load_floats((const float*)p); }
  static F load(BFloat16, const uint16_t* p) {
    return _mm256_castsi256_ps(
        _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i*)p)), 16));
  }
  static F load(Float16, const uint16_t* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p));
  }
  // Loads two vectors of consecutive elements; for bfloat16 the even and the odd ones.
  template <class T>
  static void load_pair(T, const typename T::Word* p, F* out) {
    if constexpr (T::kEvenFirst) {
      const I words = load_bytes(p);
      out[0] = _mm256_castsi256_ps(_mm256_slli_epi32(words, 16));
      out[1] = _mm256_castsi256_ps(_mm256_and_si256(words, _mm256_set1_epi32((int)0xFFFF0000)));
    } else {
      out[0] = load(T{}, p);
      out[1] = load(T{}, p + kLanes);
    }
  }
  static F add(F a, F b) { return _mm256_add_ps(a, b); }
  static F sub(F a, F b) { return _mm256_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }  // a b + c
  static F min(F a, F b) { return _mm256_min_ps(a, b); }
  static F max(F a, F b) { return _mm256_max_ps(a, b); }
  // a > b ? above : otherwise
  // `other` where a is not b.
  static F choose_other(F a, F b, F other, F otherwise) {
    return _mm256_blendv_ps(otherwise, other, _mm256_cmp_ps(a, b, _CMP_NEQ_UQ));
  }
  static F choose_above(F a, F b, F above, F otherwise) {
    return _mm256_blendv_ps(otherwise, above, _mm256_cmp_ps(a, b, _CMP_GT_OQ));
  }

  static float horizontal_min(F v) {
    __m128 r = _mm_min_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    r = _mm_min_ps(r, _mm_movehl_ps(r, r));
    return _mm_cvtss_f32(_mm_min_ss(r, _mm_movehdup_ps(r)));
  }
  static float horizontal_max(F v) {
    __m128 r = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    r = _mm_max_ps(r, _mm_movehl_ps(r, r));
    return _mm_cvtss_f32(_mm_max_ss(r, _mm_movehdup_ps(r)));
  }
  static Count no_count() { return _mm256_setzero_si256(); }
  static Count count_equal(Count count, F a, F b) {
    return _mm256_sub_epi32(count, _mm256_castps_si256(_mm256_cmp_ps(a, b, _CMP_EQ_OQ)));
  }
  static size_t total(Count count) {
    alignas(32) uint32_t lanes[8];
    _mm256_store_si256((__m256i*)lanes, count);
    size_t sum = 0;
    for (uint32_t lane : lanes) sum += lane;
    return sum;
  }

  // ---- bytes ----
  static I load_bytes(const void* p) { return _mm256_loadu_si256((const __m256i*)p); }
  static void store_bytes(void* p, I v) { _mm256_storeu_si256((__m256i*)p, v); }
  // Writes eight bytes: byte i is the byte of `from` that byte i of `lanes` names, zero for 0x80.
  static void move8(void* to, const void* from, const uint64_t* lanes) {
    _mm_storel_epi64((__m128i*)to, _mm_shuffle_epi8(_mm_loadl_epi64((const __m128i*)from),
                                                    _mm_loadl_epi64((const __m128i*)lanes)));
  }
  template <bool kStream>
  static void write(void* p, I v) {
    if constexpr (kStream)
      _mm256_stream_si256((__m256i*)p, v);
    else
      _mm256_storeu_si256((__m256i*)p, v);
  }
  static I splat8(uint8_t value) { return _mm256_set1_epi8((char)value); }
  static I bit_or(I a, I b) { return _mm256_or_si256(a, b); }
  static I bit_and(I a, I b) { return _mm256_and_si256(a, b); }
  static I bit_xor(I a, I b) { return _mm256_xor_si256(a, b); }
  // Of 16-bit lanes: bits move between the bytes of a lane.
  template <unsigned kBy>
  static I shift_left(I v) {
    return _mm256_slli_epi16(v, kBy);
  }
  template <unsigned kBy>
  static I shift_right(I v) {
    return _mm256_srli_epi16(v, kBy);
  }
  static bool any_set(I v) { return !_mm256_testz_si256(v, v); }
  // The lowest bit of each byte.
  using ByteMask = uint32_t;
  static ByteMask lowest_bits(I v) {
    return (uint32_t)_mm256_movemask_epi8(_mm256_slli_epi16(v, 7));
  }
  static ByteMask nonzero_bytes(I v) {
    return ~(uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(v, _mm256_setzero_si256()));
  }
  static I bytes_of_mask(ByteMask mask) {  // 0 or 1
    const I spread =
        _mm256_shuffle_epi8(_mm256_set1_epi32((int)mask),
                            _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2,
                                             2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3));
    const I bit = _mm256_set1_epi64x((long long)0x8040201008040201ull);
    const I hit = _mm256_cmpeq_epi8(_mm256_and_si256(spread, bit), bit);
    return _mm256_and_si256(hit, _mm256_set1_epi8(1));
  }

  // ---- patterns: one bit per element that equals `value`, for a vector of words ----
  using Mask = uint32_t;
  template <class Word>
  static constexpr size_t kWordsPerVector = 32 / sizeof(Word);
  static I splat_word(uint32_t value) { return _mm256_set1_epi32((int)value); }
  static I splat_word(uint16_t value) { return _mm256_set1_epi16((short)value); }
  static Mask equal(uint32_t, I v, I value) {
    return (Mask)_mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(v, value)));
  }
  static Mask equal(uint16_t, I v, I value) {
    const __m256i hit = _mm256_cmpeq_epi16(v, value);
    return (Mask)_mm_movemask_epi8(
        _mm_packs_epi16(_mm256_castsi256_si128(hit), _mm256_extracti128_si256(hit, 1)));
  }
  // Two patterns chosen by bits.
  static I choose(uint32_t, Mask mask, I zero, I one) {
    const I bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const I hit = _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32((int)mask), bit), bit);
    return _mm256_blendv_epi8(zero, one, hit);
  }
  static I choose(uint16_t, Mask mask, I zero, I one) {
    const I bit = _mm256_setr_epi16(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192,
                                    16384, (short)0x8000);
    const I hit = _mm256_cmpeq_epi16(_mm256_and_si256(_mm256_set1_epi16((short)mask), bit), bit);
    return _mm256_blendv_epi8(zero, one, hit);
  }

  // ---- sides: one bit per lane ----
  static Mask below(F v, F bound) {
    return (Mask)_mm256_movemask_ps(_mm256_cmp_ps(v, bound, _CMP_LT_OQ));
  }
  static Mask above(F v, F bound) {
    return (Mask)_mm256_movemask_ps(_mm256_cmp_ps(v, bound, _CMP_GT_OQ));
  }
  static Mask within(F v, F first, F last) {  // NaN is not
    return (Mask)_mm256_movemask_ps(
        _mm256_and_ps(_mm256_cmp_ps(v, first, _CMP_GE_OQ), _mm256_cmp_ps(v, last, _CMP_LE_OQ)));
  }

  // ---- from 32 bytes in element order to four vectors of floats, and back ----
  // Unpacking works within 128-bit lanes, so the 4-byte units are transposed first.
  static I transpose(I v) {
    return _mm256_permutevar8x32_epi32(v, _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7));
  }
  static I transpose_back(I v) {
    return _mm256_permutevar8x32_epi32(v, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  }
  static void unpack_words(I low, I high, F* out) {
    out[0] = _mm256_castsi256_ps(_mm256_unpacklo_epi16(low, high));
    out[1] = _mm256_castsi256_ps(_mm256_unpackhi_epi16(low, high));
  }
  // The low halves of two vectors, alternating.
  static I low_halves(F even, F odd) {
    const I low = _mm256_castps_si256(even), high = _mm256_castps_si256(odd);
    return _mm256_blend_epi16(low, _mm256_slli_epi32(high, 16), 0xAA);
  }
  // Codes as bytes in element order: (low half of the sum + noise) / 256.
  template <class T>
  static I codes(T, const F* sums, I noise) {
    I first = low_halves(sums[0], sums[1]), second = low_halves(sums[2], sums[3]);
    const I low_bytes = _mm256_set1_epi16(0x00FF);
    if constexpr (T::kEvenFirst) {  // the halves are in element order already
      noise = _mm256_permute4x64_epi64(noise, 0xD8);
      const I zero = _mm256_setzero_si256();
      first = _mm256_add_epi16(first, _mm256_unpacklo_epi8(noise, zero));
      second = _mm256_add_epi16(second, _mm256_unpackhi_epi8(noise, zero));
      const I packed =
          _mm256_packus_epi16(_mm256_srli_epi16(first, 8), _mm256_srli_epi16(second, 8));
      return _mm256_permute4x64_epi64(packed, 0xD8);
    }
    // Noise in the order of the halves: one of the first, one of the second.
    const I weave = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 8, 4, 12, 1, 9, 5, 13, 2, 10, 6, 14, 3, 11, 7, 15));
    const I unweave = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 4, 8, 12, 2, 6, 10, 14, 1, 5, 9, 13, 3, 7, 11, 15));
    noise = _mm256_shuffle_epi8(transpose(noise), weave);
    first = _mm256_add_epi16(first, _mm256_and_si256(noise, low_bytes));
    second = _mm256_add_epi16(second, _mm256_srli_epi16(noise, 8));
    const I all =
        _mm256_or_si256(_mm256_srli_epi16(first, 8), _mm256_andnot_si256(low_bytes, second));
    return transpose_back(_mm256_shuffle_epi8(all, unweave));
  }
  // level_base + q + (255 - noise) / 256, exact.
  template <unsigned kBits>
  static void dithered_levels(I codes, I noise, F* out) {
    noise = transpose(_mm256_xor_si256(noise, _mm256_set1_epi8((char)0xFF)));
    codes = transpose(codes);
    if constexpr (kBits == 8) {
      const I exponent = _mm256_set1_epi16(0x4380 >> 7);
      unpack_words(_mm256_unpacklo_epi8(noise, codes), exponent, out);
      unpack_words(_mm256_unpackhi_epi8(noise, codes), exponent, out + 2);
      for (int j = 0; j < 4; ++j)
        out[j] = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(out[j]), 7));
    } else {
      const I zero = _mm256_setzero_si256();
      const I exponent = _mm256_set1_epi8(0x43);
      unpack_words(_mm256_unpacklo_epi8(zero, noise), _mm256_unpacklo_epi8(codes, exponent), out);
      unpack_words(_mm256_unpackhi_epi8(zero, noise), _mm256_unpackhi_epi8(codes, exponent),
                   out + 2);
    }
  }
  static void levels(I codes, F* out) {
    const I zero = _mm256_setzero_si256();
    const I exponent = _mm256_set1_epi16(0x4B00);
    codes = transpose(codes);
    unpack_words(_mm256_unpacklo_epi8(codes, zero), exponent, out);
    unpack_words(_mm256_unpackhi_epi8(codes, zero), exponent, out + 2);
    for (int j = 0; j < 4; ++j) out[j] = _mm256_sub_ps(out[j], _mm256_set1_ps(8388608.0f));
  }

  // Four vectors of floats to a chunk of T.
  template <bool kStream>
  static void store_chunk(Float32, uint32_t* p, const F* v) {
    for (int j = 0; j < 4; ++j) write<kStream>(p + 8 * j, _mm256_castps_si256(v[j]));
  }
  static I to_bfloat(F v) {  // the result is the low half of each 32 bits
    const I bits = _mm256_castps_si256(v);
    const I odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    return _mm256_srli_epi32(
        _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd), 16);
  }
  template <bool kStream>
  static void store_chunk(BFloat16, uint16_t* p, const F* v) {
    for (int j = 0; j < 4; j += 2) {
      const I packed = _mm256_packus_epi32(to_bfloat(v[j]), to_bfloat(v[j + 1]));
      write<kStream>(p + 8 * j, _mm256_permute4x64_epi64(packed, 0xD8));
    }
  }
  template <bool kStream>
  static void store_chunk(Float16, uint16_t* p, const F* v) {
    for (int j = 0; j < 4; j += 2) {
      const __m128i a = _mm256_cvtps_ph(v[j], _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
      const __m128i b = _mm256_cvtps_ph(v[j + 1], _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
      write<kStream>(p + 8 * j, _mm256_set_m128i(b, a));
    }
  }

  // ---- codes: a chunk of bytes to 32 * kBits bits and back ----
  template <unsigned kBits>
  static void pack_chunk(I codes, uint8_t* out) {
    if constexpr (kBits == 8) {
      store_bytes(out, codes);
    } else if constexpr (kBits == 4) {
      const I words = _mm256_maddubs_epi16(codes, _mm256_set1_epi16(0x1001));
      _mm_storeu_si128((__m128i*)out, _mm_packus_epi16(_mm256_castsi256_si128(words),
                                                       _mm256_extracti128_si256(words, 1)));
    } else if constexpr (kBits == 2) {
      const I words = _mm256_maddubs_epi16(codes, _mm256_set1_epi16(0x0401));
      const I quads = _mm256_madd_epi16(words, _mm256_set1_epi32(0x00100001));
      const __m128i packed =
          _mm_packus_epi32(_mm256_castsi256_si128(quads), _mm256_extracti128_si256(quads, 1));
      _mm_storel_epi64((__m128i*)out, _mm_packus_epi16(packed, packed));
    } else {
      const uint32_t bits = lowest_bits(codes);
      memcpy(out, &bits, sizeof bits);
    }
  }
  template <unsigned kBits>
  static I unpack_chunk(const uint8_t* in) {
    if constexpr (kBits == 8) {
      return load_bytes(in);
    } else if constexpr (kBits == 4) {
      const I words = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i*)in));
      return _mm256_and_si256(_mm256_or_si256(words, _mm256_slli_epi16(words, 4)),
                              _mm256_set1_epi8(15));
    } else if constexpr (kBits == 2) {
      I quads = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i*)in));
      quads = _mm256_and_si256(_mm256_or_si256(quads, _mm256_slli_epi32(quads, 12)),
                               _mm256_set1_epi32(0x000F000F));
      return _mm256_and_si256(_mm256_or_si256(quads, _mm256_slli_epi32(quads, 6)),
                              _mm256_set1_epi8(3));
    } else {
      uint32_t bits;
      memcpy(&bits, in, sizeof bits);
      return bytes_of_mask(bits);
    }
  }

  // ---- Philox: a call per 64-bit lane, its words in the low halves (the high halves hold rubbish)
  // ----
  static constexpr size_t kCalls = 4;
  static I splat64(uint64_t value) { return _mm256_set1_epi64x((long long)value); }
  static I first_calls(uint64_t from) {
    return _mm256_add_epi64(splat64(from), _mm256_setr_epi64x(0, 1, 2, 3));
  }
  static I multiply(I a, I b) { return _mm256_mul_epu32(a, b); }
  static I high_word(I v) { return _mm256_srli_epi64(v, 32); }
  static I xor3(I a, I b, I c) { return _mm256_xor_si256(_mm256_xor_si256(a, b), c); }
  // a with the low word of b xored into its high word, per 64-bit lane.
  static I xor_high(I a, I b) { return _mm256_xor_si256(a, _mm256_slli_epi64(b, 32)); }

  static void fence() { _mm_sfence(); }
  static void prefetch(const void* p) { _mm_prefetch((const char*)p, _MM_HINT_T0); }
  static void prefetch_far(const void* p) { _mm_prefetch((const char*)p, _MM_HINT_T1); }
};

}  // namespace
}  // namespace pleat::compress
