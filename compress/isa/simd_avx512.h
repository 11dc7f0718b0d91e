// 512-bit vectors, under the names that kernels_simd.h uses. A "chunk" is four vectors of floats
// and one vector of their bytes: 64 elements. Needs F, BW, VL, DQ. Anonymous: see kernels.h.
#pragma once

#ifdef PLEAT_AVX512_INTRINSICS  // tests run this file on CPUs without AVX-512
#include PLEAT_AVX512_INTRINSICS
#else
#include <immintrin.h>
#endif
#include <stddef.h>
#include <stdint.h>

#include "compress/element_math.h"

namespace pleat::compress {
namespace {

struct Simd {
  using F = __m512;
  using I = __m512i;
  using Count = __m512i;
  static constexpr size_t kLanes = 16;
  static constexpr size_t kChunk = 64;

  static F splat(float value) { return _mm512_set1_ps(value); }
  static F load_floats(const float* p) { return _mm512_loadu_ps(p); }
  static void store_floats(float* p, F v) { _mm512_storeu_ps(p, v); }
  static F load(Float32, const uint32_t* p) { return load_floats((const float*)p); }
  static F load(BFloat16, const uint16_t* p) {
    return _mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)p)), 16));
  }
  static F load(Float16, const uint16_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p));
  }
  // Loads two vectors of consecutive elements; for bfloat16 the even and the odd ones.
  template <class T>
  static void load_pair(T, const typename T::Word* p, F* out) {
    if constexpr (T::kEvenFirst) {
      const I words = load_bytes(p);
      out[0] = _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
      out[1] = _mm512_castsi512_ps(_mm512_and_si512(words, _mm512_set1_epi32((int)0xFFFF0000)));
    } else {
      out[0] = load(T{}, p);
      out[1] = load(T{}, p + kLanes);
    }
  }
  static F add(F a, F b) { return _mm512_add_ps(a, b); }
  static F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }  // a b + c
  static F min(F a, F b) { return _mm512_min_ps(a, b); }
  static F max(F a, F b) { return _mm512_max_ps(a, b); }
  // a > b ? above : otherwise
  // `other` where a is not b.
  static F choose_other(F a, F b, F other, F otherwise) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_NEQ_UQ), otherwise, other);
  }
  static F choose_above(F a, F b, F above, F otherwise) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_GT_OQ), otherwise, above);
  }

  static __m256 upper(F v) { return _mm512_extractf32x8_ps(v, 1); }
  static float horizontal_min(F v) {
    const __m256 w = _mm256_min_ps(_mm512_castps512_ps256(v), upper(v));
    __m128 r = _mm_min_ps(_mm256_castps256_ps128(w), _mm256_extractf128_ps(w, 1));
    r = _mm_min_ps(r, _mm_movehl_ps(r, r));
    return _mm_cvtss_f32(_mm_min_ss(r, _mm_movehdup_ps(r)));
  }
  static float horizontal_max(F v) {
    const __m256 w = _mm256_max_ps(_mm512_castps512_ps256(v), upper(v));
    __m128 r = _mm_max_ps(_mm256_castps256_ps128(w), _mm256_extractf128_ps(w, 1));
    r = _mm_max_ps(r, _mm_movehl_ps(r, r));
    return _mm_cvtss_f32(_mm_max_ss(r, _mm_movehdup_ps(r)));
  }
  static Count no_count() { return _mm512_setzero_si512(); }
  static Count count_equal(Count count, F a, F b) {
    return _mm512_mask_add_epi32(count, _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ), count,
                                 _mm512_set1_epi32(1));
  }
  static size_t total(Count count) {
    alignas(64) uint32_t lanes[16];
    _mm512_store_si512((void*)lanes, count);
    size_t sum = 0;
    for (uint32_t lane : lanes) sum += lane;
    return sum;
  }

  // ---- bytes ----
  static I load_bytes(const void* p) { return _mm512_loadu_si512(p); }
  static void store_bytes(void* p, I v) { _mm512_storeu_si512(p, v); }
  // Writes eight bytes: byte i is the byte of `from` that byte i of `lanes` names, zero for 0x80.
  static void move8(void* to, const void* from, const uint64_t* lanes) {
    _mm_storel_epi64((__m128i*)to, _mm_shuffle_epi8(_mm_loadl_epi64((const __m128i*)from),
                                                    _mm_loadl_epi64((const __m128i*)lanes)));
  }
  template <bool kStream>
  static void write(void* p, I v) {
    if constexpr (kStream)
      _mm512_stream_si512((__m512i*)p, v);
    else
      _mm512_storeu_si512(p, v);
  }
  static I splat8(uint8_t value) { return _mm512_set1_epi8((char)value); }
  static I bit_or(I a, I b) { return _mm512_or_si512(a, b); }
  static I bit_and(I a, I b) { return _mm512_and_si512(a, b); }
  static I bit_xor(I a, I b) { return _mm512_xor_si512(a, b); }
  // Of 16-bit lanes: bits move between the bytes of a lane.
  template <unsigned kBy>
  static I shift_left(I v) {
    return _mm512_slli_epi16(v, kBy);
  }
  template <unsigned kBy>
  static I shift_right(I v) {
    return _mm512_srli_epi16(v, kBy);
  }
  static bool any_set(I v) { return _mm512_test_epi8_mask(v, v) != 0; }
  // The lowest bit of each byte.
  using ByteMask = uint64_t;
  static ByteMask lowest_bits(I v) { return _mm512_test_epi8_mask(v, _mm512_set1_epi8(1)); }
  static ByteMask nonzero_bytes(I v) { return _mm512_test_epi8_mask(v, v); }
  static I bytes_of_mask(ByteMask mask) {  // 0 or 1
    return _mm512_maskz_mov_epi8(mask, _mm512_set1_epi8(1));
  }

  // ---- patterns: one bit per element that equals `value`, for a vector of words ----
  using Mask = uint32_t;
  template <class Word>
  static constexpr size_t kWordsPerVector = 64 / sizeof(Word);
  static I splat_word(uint32_t value) { return _mm512_set1_epi32((int)value); }
  static I splat_word(uint16_t value) { return _mm512_set1_epi16((short)value); }
  static Mask equal(uint32_t, I v, I value) { return _mm512_cmpeq_epi32_mask(v, value); }
  static Mask equal(uint16_t, I v, I value) { return _mm512_cmpeq_epi16_mask(v, value); }
  // Two patterns chosen by bits.
  static I choose(uint32_t, Mask mask, I zero, I one) {
    return _mm512_mask_blend_epi32((__mmask16)mask, zero, one);
  }
  static I choose(uint16_t, Mask mask, I zero, I one) {
    return _mm512_mask_blend_epi16((__mmask32)mask, zero, one);
  }

  // ---- sides: one bit per lane ----
  static Mask below(F v, F bound) { return _mm512_cmp_ps_mask(v, bound, _CMP_LT_OQ); }
  static Mask above(F v, F bound) { return _mm512_cmp_ps_mask(v, bound, _CMP_GT_OQ); }
  static Mask within(F v, F first, F last) {  // NaN is not
    return (Mask)(_mm512_cmp_ps_mask(v, first, _CMP_GE_OQ) &
                  _mm512_cmp_ps_mask(v, last, _CMP_LE_OQ));
  }

  // ---- from 64 bytes in element order to four vectors of floats, and back ----
  // Unpacking works within 128-bit lanes, so the 4-byte units are transposed first (4 x 4).
  static I transpose(I v) {
    return _mm512_permutexvar_epi32(
        _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), v);
  }
  static void unpack_words(I low, I high, F* out) {
    out[0] = _mm512_castsi512_ps(_mm512_unpacklo_epi16(low, high));
    out[1] = _mm512_castsi512_ps(_mm512_unpackhi_epi16(low, high));
  }
  // The low halves of two vectors, alternating.
  static I low_halves(F even, F odd) {
    const I low = _mm512_castps_si512(even), high = _mm512_castps_si512(odd);
    return _mm512_mask_blend_epi16(0xAAAAAAAAu, low, _mm512_slli_epi32(high, 16));
  }
  // Codes as bytes in element order: (low half of the sum + noise) / 256.
  template <class T>
  static I codes(T, const F* sums, I noise) {
    I first = low_halves(sums[0], sums[1]), second = low_halves(sums[2], sums[3]);
    const I low_bytes = _mm512_set1_epi16(0x00FF);
    if constexpr (T::kEvenFirst) {  // the halves are in element order already
      noise = _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7), noise);
      const I zero = _mm512_setzero_si512();
      first = _mm512_add_epi16(first, _mm512_unpacklo_epi8(noise, zero));
      second = _mm512_add_epi16(second, _mm512_unpackhi_epi8(noise, zero));
      const I packed =
          _mm512_packus_epi16(_mm512_srli_epi16(first, 8), _mm512_srli_epi16(second, 8));
      return _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), packed);
    }
    // Noise in the order of the halves: one of the first, one of the second.
    const I weave = _mm512_set4_epi32(0x0F070B03, 0x0E060A02, 0x0D050901, 0x0C040800);
    const I unweave = _mm512_set4_epi32(0x0F0B0703, 0x0D090501, 0x0E0A0602, 0x0C080400);
    noise = _mm512_shuffle_epi8(transpose(noise), weave);
    first = _mm512_add_epi16(first, _mm512_and_si512(noise, low_bytes));
    second = _mm512_add_epi16(second, _mm512_srli_epi16(noise, 8));
    const I all =
        _mm512_or_si512(_mm512_srli_epi16(first, 8), _mm512_andnot_si512(low_bytes, second));
    return transpose(_mm512_shuffle_epi8(all, unweave));
  }
  // level_base + q + (255 - noise) / 256, exact.
  template <unsigned kBits>
  static void dithered_levels(I codes, I noise, F* out) {
    noise = transpose(_mm512_xor_si512(noise, _mm512_set1_epi8((char)0xFF)));
    codes = transpose(codes);
    if constexpr (kBits == 8) {
      const I exponent = _mm512_set1_epi16(0x4380 >> 7);
      unpack_words(_mm512_unpacklo_epi8(noise, codes), exponent, out);
      unpack_words(_mm512_unpackhi_epi8(noise, codes), exponent, out + 2);
      for (int j = 0; j < 4; ++j)
        out[j] = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(out[j]), 7));
    } else {
      const I zero = _mm512_setzero_si512();
      const I exponent = _mm512_set1_epi8(0x43);
      unpack_words(_mm512_unpacklo_epi8(zero, noise), _mm512_unpacklo_epi8(codes, exponent), out);
      unpack_words(_mm512_unpackhi_epi8(zero, noise), _mm512_unpackhi_epi8(codes, exponent),
                   out + 2);
    }
  }
  static void levels(I codes, F* out) {
    const I zero = _mm512_setzero_si512();
    const I exponent = _mm512_set1_epi16(0x4B00);
    codes = transpose(codes);
    unpack_words(_mm512_unpacklo_epi8(codes, zero), exponent, out);
    unpack_words(_mm512_unpackhi_epi8(codes, zero), exponent, out + 2);
    for (int j = 0; j < 4; ++j) out[j] = _mm512_sub_ps(out[j], _mm512_set1_ps(8388608.0f));
  }

  // Four vectors of floats to a chunk of T.
  template <bool kStream>
  static void store_chunk(Float32, uint32_t* p, const F* v) {
    for (int j = 0; j < 4; ++j) write<kStream>(p + 16 * j, _mm512_castps_si512(v[j]));
  }
  // Rounds to nearest, ties to even. The result is the high half of each 32 bits; the low half is
  // undefined.
  static I round_to_bfloat(F v) {
    const I bits = _mm512_castps_si512(v);
    const I odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    return _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF)), odd);
  }
  static I high_halves(I low, I high) {
    const I packed = _mm512_packus_epi32(_mm512_srli_epi32(low, 16), _mm512_srli_epi32(high, 16));
    return _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), packed);
  }
  static I join_halves(__m256i low, __m256i high) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
  }
  template <bool kStream>
  static void store_chunk(BFloat16, uint16_t* p, const F* v) {
    for (int j = 0; j < 4; j += 2)
      write<kStream>(p + 16 * j, high_halves(round_to_bfloat(v[j]), round_to_bfloat(v[j + 1])));
  }
  template <bool kStream>
  static void store_chunk(Float16, uint16_t* p, const F* v) {
    constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    for (int j = 0; j < 4; j += 2)
      write<kStream>(p + 16 * j, join_halves(_mm512_cvtps_ph(v[j], kNearest),
                                             _mm512_cvtps_ph(v[j + 1], kNearest)));
  }

  // ---- codes: a chunk of bytes to 64 * kBits bits and back ----
  template <unsigned kBits>
  static void pack_chunk(I codes, uint8_t* out) {
    if constexpr (kBits == 8) {
      store_bytes(out, codes);
    } else if constexpr (kBits == 4) {
      const I words = _mm512_maddubs_epi16(codes, _mm512_set1_epi16(0x1001));
      _mm256_storeu_si256((__m256i*)out, _mm512_cvtepi16_epi8(words));
    } else if constexpr (kBits == 2) {
      const I words = _mm512_maddubs_epi16(codes, _mm512_set1_epi16(0x0401));
      const I quads = _mm512_madd_epi16(words, _mm512_set1_epi32(0x00100001));
      _mm_storeu_si128((__m128i*)out, _mm512_cvtepi32_epi8(quads));
    } else {
      const uint64_t bits = lowest_bits(codes);
      memcpy(out, &bits, sizeof bits);
    }
  }
  template <unsigned kBits>
  static I unpack_chunk(const uint8_t* in) {
    if constexpr (kBits == 8) {
      return load_bytes(in);
    } else if constexpr (kBits == 4) {
      const I words = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i*)in));
      return _mm512_and_si512(_mm512_or_si512(words, _mm512_slli_epi16(words, 4)),
                              _mm512_set1_epi8(15));
    } else if constexpr (kBits == 2) {
      I quads = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i*)in));
      quads = _mm512_and_si512(_mm512_or_si512(quads, _mm512_slli_epi32(quads, 12)),
                               _mm512_set1_epi32(0x000F000F));
      return _mm512_and_si512(_mm512_or_si512(quads, _mm512_slli_epi32(quads, 6)),
                              _mm512_set1_epi8(3));
    } else {
      uint64_t bits;
      memcpy(&bits, in, sizeof bits);
      return bytes_of_mask(bits);
    }
  }

  // ---- Philox: a call per 64-bit lane, its words in the low halves (the high halves hold rubbish)
  // ----
  static constexpr size_t kCalls = 8;
  static I splat64(uint64_t value) { return _mm512_set1_epi64((long long)value); }
  static I first_calls(uint64_t from) {
    return _mm512_add_epi64(splat64(from), _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static I multiply(I a, I b) { return _mm512_mul_epu32(a, b); }
  static I high_word(I v) { return _mm512_srli_epi64(v, 32); }
  static I xor3(I a, I b, I c) { return _mm512_ternarylogic_epi64(a, b, c, 0x96); }
  // a with the low word of b xored into its high word, per 64-bit lane.
  static I xor_high(I a, I b) { return _mm512_xor_si512(a, _mm512_slli_epi64(b, 32)); }

  static void fence() { _mm_sfence(); }
  static void prefetch(const void* p) { _mm_prefetch((const char*)p, _MM_HINT_T0); }
  static void prefetch_far(const void* p) { _mm_prefetch((const char*)p, _MM_HINT_T1); }
};

}  // namespace
}  // namespace pleat::compress
