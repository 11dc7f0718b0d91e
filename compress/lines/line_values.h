// The values of a span by type, four at a time. Internal to compress/lines/.
#pragma once

#include <emmintrin.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "compress/element_math.h"
#include "compress/types.h"

namespace pleat::compress::block {
namespace {

constexpr std::size_t kGroup = kGroupElements;
constexpr std::size_t kGrainElements = 32 * 1024;

struct Float32 {
  const float* data;
  float operator[](std::size_t i) const noexcept { return data[i]; }
};
struct BFloat16 {
  const std::uint16_t* data;
  float operator[](std::size_t i) const noexcept {
    return std::bit_cast<float>(static_cast<std::uint32_t>(data[i]) << 16);
  }
};
struct Float16 {
  const std::uint16_t* data;
  float operator[](std::size_t i) const noexcept { return compress::float_of_half(data[i]); }
};

// Loads four values. A minimum or maximum with them as first operand skips NaN.
__m128 four(const Float32& values, std::size_t i) noexcept { return _mm_loadu_ps(values.data + i); }
__m128 four(const BFloat16& values, std::size_t i) noexcept {
  const __m128i words = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(values.data + i));
  return _mm_castsi128_ps(_mm_unpacklo_epi16(_mm_setzero_si128(), words));
}
// Infinities and NaN become numbers of 2^16 and more.
__m128 four(const Float16& values, std::size_t i) noexcept {
  const __m128i words = _mm_unpacklo_epi16(
      _mm_loadl_epi64(reinterpret_cast<const __m128i*>(values.data + i)), _mm_setzero_si128());
  const __m128i sign = _mm_slli_epi32(_mm_and_si128(words, _mm_set1_epi32(0x8000)), 16);
  const __m128i rest = _mm_slli_epi32(_mm_and_si128(words, _mm_set1_epi32(0x7FFF)), 13);
  const __m128 magnitude =  // the exponent's bias is 112 less
      _mm_mul_ps(_mm_castsi128_ps(rest), _mm_set1_ps(0x1p112f));
  return _mm_or_ps(magnitude, _mm_castsi128_ps(sign));
}

// Largest minus smallest of [begin, end). Infinities make it infinite or NaN; NaN is skipped.
template <class Values>
float range_of(const Values& values, std::size_t begin, std::size_t end) noexcept {
  float low = values[begin];
  float high = low;
  std::size_t i = begin + 1;
  if (end - begin >= 16) {
    __m128 lows = four(values, begin);
    __m128 highs = lows;
    for (i = begin + 4; i + 4 <= end; i += 4) {
      const __m128 v = four(values, i);
      lows = _mm_min_ps(v, lows);
      highs = _mm_max_ps(v, highs);
    }
    alignas(16) std::array<float, 4> least, most;
    _mm_store_ps(least.data(), lows);
    _mm_store_ps(most.data(), highs);
    low = least[0];
    high = most[0];
    for (std::size_t lane = 1; lane < 4; ++lane) {
      low = least[lane] < low ? least[lane] : low;
      high = most[lane] > high ? most[lane] : high;
    }
  }
  for (; i < end; ++i) {
    const float value = values[i];
    low = value < low ? value : low;
    high = value > high ? value : high;
  }
  return high - low;
}

template <class Function>
auto with_values(const void* data, ElementType type, const Function& function) {
  switch (type) {
    case ElementType::kFloat32:
      return function(Float32{static_cast<const float*>(data)});
    case ElementType::kBFloat16:
      return function(BFloat16{static_cast<const std::uint16_t*>(data)});
    default:
      return function(Float16{static_cast<const std::uint16_t*>(data)});
  }
}

}  // namespace
}  // namespace pleat::compress::block
