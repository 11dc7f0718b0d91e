// Converts arrays of a source type to floats, and back. Included through kernels_simd.h. Anonymous:
// see kernels.h.
#pragma once

#include <stddef.h>

namespace pleat::compress {
namespace {

struct Conversions {
  template <class T>
  static void to_floats(const typename T::Word* words, size_t count, float* values) {
    size_t e = 0;
    for (; e + Simd::kLanes <= count; e += Simd::kLanes)
      Simd::store_floats(values + e, Simd::load(T{}, words + e));
    for (; e < count; ++e) values[e] = T::to_float(words[e]);
  }
  template <class T>
  static void from_floats(const float* values, size_t count, typename T::Word* words) {
    size_t e = 0;
    for (; e + Simd::kChunk <= count; e += Simd::kChunk) {
      Simd::F chunk[4];
      for (size_t j = 0; j < 4; ++j) chunk[j] = Simd::load_floats(values + e + j * Simd::kLanes);
      Simd::store_chunk<false>(T{}, words + e, chunk);
    }
    for (; e < count; ++e) words[e] = T::from_float(values[e]);
  }
};

}  // namespace
}  // namespace pleat::compress
