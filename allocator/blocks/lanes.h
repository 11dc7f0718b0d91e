// The lanes functions search 32 signed integers at a time. SSE2 on every x86-64, else plain loops.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace pleat::allocator::lanes {

constexpr std::size_t kCount = 32;

// Bit k is set if values[k] >= bound. `values`: kCount of them, 64-byte aligned.
inline std::uint32_t at_least(const std::int32_t* values, std::int32_t bound) noexcept {
#if defined(__SSE2__)
  const auto* v = reinterpret_cast<const __m128i*>(values);
  const __m128i below = _mm_set1_epi32(bound - 1);
  const auto eight = [&](int i) {
    return _mm_packs_epi32(_mm_cmpgt_epi32(_mm_load_si128(v + i), below),
                           _mm_cmpgt_epi32(_mm_load_si128(v + i + 1), below));
  };
  const auto low = _mm_movemask_epi8(_mm_packs_epi16(eight(0), eight(2)));
  const auto high = _mm_movemask_epi8(_mm_packs_epi16(eight(4), eight(6)));
  return static_cast<std::uint32_t>(low) | (static_cast<std::uint32_t>(high) << 16);
#else
  std::uint32_t mask = 0;
  for (std::size_t k = 0; k < kCount; ++k) {
    mask |= static_cast<std::uint32_t>(values[k] >= bound) << k;
  }
  return mask;
#endif
}

// Bit k is set if values[k] has none of the bits of `bits`. `values`: kCount of them, 16-byte
// aligned.
inline std::uint32_t without(const std::uint8_t* values, std::uint8_t bits) noexcept {
#if defined(__SSE2__)
  const auto* v = reinterpret_cast<const __m128i*>(values);
  const __m128i wanted = _mm_set1_epi8(static_cast<char>(bits));
  const auto sixteen = [&](int i) {
    const __m128i found = _mm_and_si128(_mm_load_si128(v + i), wanted);
    return static_cast<std::uint32_t>(
        _mm_movemask_epi8(_mm_cmpeq_epi8(found, _mm_setzero_si128())));
  };
  return sixteen(0) | (sixteen(1) << 16);
#else
  std::uint32_t mask = 0;
  for (std::size_t k = 0; k < kCount; ++k) {
    mask |= static_cast<std::uint32_t>((values[k] & bits) == 0) << k;
  }
  return mask;
#endif
}

// The largest of kCount values.
inline std::int32_t maximum(const std::int32_t* values) noexcept {
#if defined(__SSE2__)
  const auto* v = reinterpret_cast<const __m128i*>(values);
  const auto larger = [](__m128i a, __m128i b) {
    const __m128i a_wins = _mm_cmpgt_epi32(a, b);
    return _mm_or_si128(_mm_and_si128(a_wins, a), _mm_andnot_si128(a_wins, b));
  };
  const auto four = [&](int i) {
    return larger(larger(_mm_load_si128(v + i), _mm_load_si128(v + i + 1)),
                  larger(_mm_load_si128(v + i + 2), _mm_load_si128(v + i + 3)));
  };
  __m128i best = larger(four(0), four(4));
  best = larger(best, _mm_shuffle_epi32(best, _MM_SHUFFLE(1, 0, 3, 2)));
  best = larger(best, _mm_shuffle_epi32(best, _MM_SHUFFLE(2, 3, 0, 1)));
  return _mm_cvtsi128_si32(best);
#else
  std::int32_t best = values[0];
  for (std::size_t k = 1; k < kCount; ++k) best = values[k] > best ? values[k] : best;
  return best;
#endif
}

// The least of kCount values that is >= bound, the maximum of int32 if all are below it.
inline std::int32_t least_from(const std::int32_t* values, std::int32_t bound) noexcept {
  constexpr std::int32_t kNone = std::numeric_limits<std::int32_t>::max();
#if defined(__SSE2__)
  const auto* v = reinterpret_cast<const __m128i*>(values);
  const __m128i below = _mm_set1_epi32(bound - 1);
  const auto smaller = [](__m128i a, __m128i b) {
    const __m128i b_wins = _mm_cmpgt_epi32(a, b);
    return _mm_or_si128(_mm_and_si128(b_wins, b), _mm_andnot_si128(b_wins, a));
  };
  const auto counted = [&](int i) {  // the value, or kNone where it is too small
    const __m128i value = _mm_load_si128(v + i);
    const __m128i fits = _mm_cmpgt_epi32(value, below);
    return _mm_or_si128(_mm_and_si128(fits, value), _mm_andnot_si128(fits, _mm_set1_epi32(kNone)));
  };
  const auto four = [&](int i) {
    return smaller(smaller(counted(i), counted(i + 1)), smaller(counted(i + 2), counted(i + 3)));
  };
  __m128i best = smaller(four(0), four(4));
  best = smaller(best, _mm_shuffle_epi32(best, _MM_SHUFFLE(1, 0, 3, 2)));
  best = smaller(best, _mm_shuffle_epi32(best, _MM_SHUFFLE(2, 3, 0, 1)));
  return _mm_cvtsi128_si32(best);
#else
  std::int32_t best = kNone;
  for (std::size_t k = 0; k < kCount; ++k) {
    if (values[k] >= bound && values[k] < best) best = values[k];
  }
  return best;
#endif
}

// Index of the first of kCount values that equals `value`. The value must be present.
inline std::size_t first_equal(const std::int32_t* values, std::int32_t value) noexcept {
  // These lanes are >= the value and not > it.
  return static_cast<std::size_t>(
      std::countr_zero(at_least(values, value) & ~at_least(values, value + 1)));
}

// Index of the first of values [from, n) that is >= bound (> 0), n if all are below it. The array
// is aligned like the others, readable up to the next multiple of kCount and 0 from n on.
inline std::size_t first_at_least(const std::int32_t* values, std::size_t n, std::int32_t bound,
                                  std::size_t from = 0) noexcept {
  std::uint32_t wanted = ~std::uint32_t{0} << (from % kCount);
  for (std::size_t i = from - from % kCount; i < n; i += kCount) {
    if (const std::uint32_t mask = at_least(values + i, bound) & wanted) {
      return i + static_cast<std::size_t>(std::countr_zero(mask));
    }
    wanted = ~std::uint32_t{0};
  }
  return n;
}

}  // namespace pleat::allocator::lanes
