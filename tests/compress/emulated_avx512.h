// The AVX-512 intrinsics of compress/isa/simd_avx512.h on CPUs that lack them, through SIMDe. Only
// so that tests can run kernels_avx512.cpp everywhere; never part of the product.
#pragma once

#pragma GCC diagnostic ignored "-Wignored-attributes"
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>
#include <simde/x86/f16c.h>

#undef _mm512_madd_epi16  // 0.7.4 aliases it to the masked form
#define _mm512_madd_epi16(a, b) simde_mm512_madd_epi16(a, b)

// What 0.7.4 lacks, in terms of arrays: plain definitions from Intel's pseudocode.
namespace pleat_emulated {

template <class To, class From>
inline To cast(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}
template <class T, unsigned kCount>
struct Lanes {
  T lane[kCount];
};
// Element-wise conversion of every lane (widening or truncating).
template <class ToLane, class FromLane, unsigned kCount, class To, class From>
inline To convert(const From& from) {
  const auto in = cast<Lanes<FromLane, kCount>>(from);
  Lanes<ToLane, kCount> out;
  for (unsigned i = 0; i < kCount; ++i) out.lane[i] = static_cast<ToLane>(in.lane[i]);
  return cast<To>(out);
}

inline __m512i cvtepu16_epi32(__m256i v) { return convert<uint32_t, uint16_t, 16, __m512i>(v); }
inline __m512i cvtepu8_epi16(__m256i v) { return convert<uint16_t, uint8_t, 32, __m512i>(v); }
inline __m512i cvtepu8_epi32(__m128i v) { return convert<uint32_t, uint8_t, 16, __m512i>(v); }
inline __m128i cvtepi32_epi8(__m512i v) { return convert<uint8_t, uint32_t, 16, __m128i>(v); }

inline simde__mmask32 cmpeq_epi16_mask(__m512i a, __m512i b) {
  const auto x = cast<Lanes<uint16_t, 32>>(a), y = cast<Lanes<uint16_t, 32>>(b);
  simde__mmask32 mask = 0;
  for (unsigned i = 0; i < 32; ++i)
    mask |= static_cast<simde__mmask32>(x.lane[i] == y.lane[i]) << i;
  return mask;
}
inline __m256 extractf32x8_ps(__m512 v, int which) { return cast<Lanes<__m256, 2>>(v).lane[which]; }
inline __m512 cvtph_ps(__m256i v) {
  const auto halves = cast<Lanes<__m128i, 2>>(v);
  return cast<__m512>(
      Lanes<__m256, 2>{{_mm256_cvtph_ps(halves.lane[0]), _mm256_cvtph_ps(halves.lane[1])}});
}
inline __m256i cvtps_ph(__m512 v) {
  const auto halves = cast<Lanes<__m256, 2>>(v);
  return cast<__m256i>(
      Lanes<__m128i, 2>{{_mm256_cvtps_ph(halves.lane[0], 0), _mm256_cvtps_ph(halves.lane[1], 0)}});
}

}  // namespace pleat_emulated

#define _mm512_cvtepu16_epi32(v) pleat_emulated::cvtepu16_epi32(v)
#define _mm512_cvtepu8_epi16(v) pleat_emulated::cvtepu8_epi16(v)
#define _mm512_cvtepu8_epi32(v) pleat_emulated::cvtepu8_epi32(v)
#define _mm512_cvtepi32_epi8(v) pleat_emulated::cvtepi32_epi8(v)
#define _mm512_cmpeq_epi16_mask(a, b) pleat_emulated::cmpeq_epi16_mask(a, b)
#define _mm512_extractf32x8_ps(v, which) pleat_emulated::extractf32x8_ps(v, which)
#define _mm512_cvtph_ps(v) pleat_emulated::cvtph_ps(v)
#define _mm512_cvtps_ph(v, mode) (static_cast<void>(mode), pleat_emulated::cvtps_ph(v))
#define _mm512_stream_si512(p, v) _mm512_storeu_si512(p, v)
