// The randomised Hadamard transform of a group. It spreads outliers over all 256 elements, so that
// the range is that of a Gaussian whatever the data were. Signs come from the payload's nonce.
// Every sum is taken in a fixed order. Anonymous: see kernels.h.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "compress/element_math.h"

namespace pleat::compress {
namespace {

constexpr size_t kRotated = 256;

// Eight elements; the compiler maps them to the vectors of the instruction set. A group has 32.
typedef float Eight __attribute__((vector_size(32)));
typedef uint32_t EightBits __attribute__((vector_size(32)));
constexpr size_t kEights = kRotated / 8;

inline void load_eight(const float* from, Eight* to) { memcpy(to, from, sizeof *to); }
inline void store_eight(float* to, const Eight& from) { memcpy(to, &from, sizeof from); }

// Flips signs: element e by bit e mod 32 of word e / 32 of the group's two sign calls.
inline void flip_signs(uint64_t nonce, uint64_t group, const float* from, float* to) {
  uint32_t words[8];
  for (uint32_t call = 0; call < 2; ++call) {
    const PhiloxWords four = philox(nonce, group, kSignCall + call);
    memcpy(words + 4 * call, four.word, sizeof four.word);
  }
  const EightBits to_sign = {31, 30, 29, 28, 27, 26, 25, 24};  // of the lowest byte
  for (size_t i = 0; i < kEights; i += 4) {
    const EightBits word = EightBits{} + words[i / 4];
#pragma GCC unroll 4
    for (uint32_t j = 0; j < 4; ++j) {
      EightBits bits;
      memcpy(&bits, from + 8 * (i + j), sizeof bits);
      bits ^= (word << (to_sign - 8 * j)) & 0x8000'0000u;
      memcpy(to + 8 * (i + j), &bits, sizeof bits);
    }
  }
}

// Butterflies of all pairs of vectors at distance `apart`; their own inverse but for the scale.
template <size_t kCount>
inline void stage(Eight* v, size_t apart) {
#pragma GCC unroll 8
  for (size_t i = 0; i < kCount; ++i) {
    if ((i & apart) != 0) continue;
    const Eight a = v[i], b = v[i + apart];
    v[i] = a + b;
    v[i + apart] = a - b;
  }
}
// Takes the nearest pairs first. Sums are rounded, so the order is part of the format.
template <size_t kCount>
inline void butterflies(Eight* v) {
#pragma GCC unroll 3
  for (size_t apart = 1; apart < kCount; apart *= 2) stage<kCount>(v, apart);
}
// Takes the farthest pairs first.
template <size_t kCount>
inline void butterflies_downwards(Eight* v) {
#pragma GCC unroll 3
  for (size_t apart = kCount / 2; apart != 0; apart /= 2) stage<kCount>(v, apart);
}

// Elements of the first (0..7) and second (8..15) vector, by clang's name or by older GCCs'.
#if defined(__has_builtin) && __has_builtin(__builtin_shufflevector)
#define PLEAT_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define PLEAT_SHUFFLE(a, b, ...) __builtin_shuffle(a, b, EightBits{__VA_ARGS__})
#endif

// Transposes eight vectors as rows of a matrix.
inline void transpose(Eight* v) {
  Eight pairs[8], fours[8];
#pragma GCC unroll 4
  for (size_t i = 0; i < 8; i += 2) {
    pairs[i] = PLEAT_SHUFFLE(v[i], v[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    pairs[i + 1] = PLEAT_SHUFFLE(v[i], v[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
#pragma GCC unroll 2
  for (size_t i = 0; i < 8; i += 4) {
#pragma GCC unroll 2
    for (size_t j = 0; j < 2; ++j) {
      const Eight a = pairs[i + j], b = pairs[i + j + 2];
      fours[i + 2 * j] = PLEAT_SHUFFLE(a, b, 0, 1, 8, 9, 4, 5, 12, 13);
      fours[i + 2 * j + 1] = PLEAT_SHUFFLE(a, b, 2, 3, 10, 11, 6, 7, 14, 15);
    }
  }
#pragma GCC unroll 4
  for (size_t i = 0; i < 4; ++i) {
    v[i] = PLEAT_SHUFFLE(fours[i], fours[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    v[i + 4] = PLEAT_SHUFFLE(fours[i], fours[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
}

#undef PLEAT_SHUFFLE

// Butterflies of elements 8, 16, 32, 64, 128 apart, then times `scale`, into `to`.
inline void far_butterflies(float* values, float scale, float* to) {
  Eight v[8];
  for (size_t from = 0; from < kRotated; from += 64) {  // 8, 16, 32
#pragma GCC unroll 8
    for (size_t i = 0; i < 8; ++i) load_eight(values + from + 8 * i, &v[i]);
    butterflies<8>(v);
#pragma GCC unroll 8
    for (size_t i = 0; i < 8; ++i) store_eight(values + from + 8 * i, v[i]);
  }
  for (size_t from = 0; from < 64; from += 8) {  // 64, 128
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; ++i) load_eight(values + from + 64 * i, &v[i]);
    butterflies<4>(v);
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; ++i) store_eight(to + from + 64 * i, v[i] * scale);
  }
}

// Butterflies within a vector of 8 would need shuffles. The three of them are taken between
// elements 128, 64 and 32 apart instead, with interleaved results; so the coefficients have their
// own order.
inline void rotate(uint64_t nonce, uint64_t group, float* values) {
  flip_signs(nonce, group, values, values);
  float other[kRotated];
  for (size_t from = 0; from < 32; from += 8) {
    Eight v[8];
#pragma GCC unroll 8
    for (size_t i = 0; i < 8; ++i) load_eight(values + from + 32 * i, &v[i]);
    butterflies_downwards<8>(v);
    transpose(v);
#pragma GCC unroll 8
    for (size_t i = 0; i < 8; ++i) store_eight(other + 8 * (from + i), v[i]);
  }
  far_butterflies(other, 0.0625f, values);
}
inline void rotate_back(uint64_t nonce, uint64_t group, float* values) {
  far_butterflies(values, 1.0f, values);
  float other[kRotated];
  for (size_t from = 0; from < 32; from += 8) {
    Eight v[8];
#pragma GCC unroll 8
    for (size_t i = 0; i < 8; ++i) load_eight(values + 8 * (from + i), &v[i]);
    transpose(v);
    butterflies<8>(v);
#pragma GCC unroll 8
    for (size_t i = 0; i < 8; ++i) store_eight(other + from + 32 * i, v[i] * 0.0625f);
  }
  flip_signs(nonce, group, other, values);
}

}  // namespace
}  // namespace pleat::compress
