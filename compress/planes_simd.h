// Bytes below 2^bits in planes of so many bits: scaled groups, lossless floats. Counts are
// multiples of 64. Included through kernels_simd.h. Anonymous: see kernels.h.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace pleat::compress {
namespace {

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
