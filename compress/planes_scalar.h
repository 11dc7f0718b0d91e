// Packs codes and converts elements one after the other: the counterpart of planes_simd.h on the
// reference path.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "compress/element_math.h"

namespace pleat::compress {
namespace {

// Bytes below 2^bits, packed; bits: 1, 2, 4 or 8.
struct Planes {
  static void pack(unsigned bits, const uint8_t* bytes, size_t count, uint8_t* out) {
    memset(out, 0, count * bits / 8);
    for (size_t e = 0; e < count; ++e)
      out[e * bits / 8] |= static_cast<uint8_t>(bytes[e] << (e * bits % 8));
  }
  static void unpack(unsigned bits, const uint8_t* in, size_t count, uint8_t* bytes) {
    for (size_t e = 0; e < count; ++e) bytes[e] = at(in, bits, e);
  }
  static size_t squeeze(const uint8_t* bytes, size_t count, uint8_t* bitmap, uint8_t* kept) {
    size_t above = 0;
    memset(bitmap, 0, count / 8);
    for (size_t e = 0; e < count; ++e) {
      if (bytes[e] == 0) continue;
      bitmap[e / 8] |= static_cast<uint8_t>(1u << (e % 8));
      kept[above++] = bytes[e];
    }
    return above;
  }
  static void expand(const uint8_t* bitmap, size_t count, const uint8_t* kept, uint8_t* bytes) {
    for (size_t e = 0; e < count; ++e)
      bytes[e] = static_cast<uint8_t>((bitmap[e / 8] >> (e % 8) & 1) != 0 ? *kept++ : 0);
  }
  static uint8_t at(const uint8_t* in, unsigned bits, size_t e) {
    return (in[e * bits / 8] >> (e * bits % 8)) & ((1u << bits) - 1);
  }
};

struct Conversions {
  static constexpr size_t kVectorBytes = 16;
  template <class T>
  static void to_floats(const typename T::Word* words, size_t count, float* values) {
    for (size_t e = 0; e < count; ++e) values[e] = T::to_float(words[e]);
  }
  template <class T>
  static void from_floats(const float* values, size_t count, typename T::Word* words) {
    for (size_t e = 0; e < count; ++e) words[e] = T::from_float(values[e]);
  }
};

}  // namespace
}  // namespace pleat::compress
