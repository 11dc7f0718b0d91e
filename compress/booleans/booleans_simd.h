// Packs booleans to bits, a vector of bytes at a time. Included through kernels_simd.h. Anonymous:
// see kernels.h.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "compress/kernels.h"
#include "compress/planes_simd.h"

namespace pleat::compress {
namespace {

bool are_booleans(const uint8_t* source, size_t elements) {
  I seen = Simd::splat8(0);
  size_t e = 0;
  for (; e + sizeof(I) <= elements; e += sizeof(I)) {
    Simd::prefetch(source + e + kPrefetchBytes);
    seen = Simd::bit_or(seen, Simd::load_bytes(source + e));
  }
  return !Simd::any_set(Simd::bit_and(seen, Simd::splat8(0xFE))) &&
         kScalarKernels.are_booleans(source + e, elements - e);
}

bool pack_booleans(const uint8_t* source, size_t elements, uint8_t* bits) {
  I seen = Simd::splat8(0);
  size_t e = 0;
  for (; e + sizeof(I) <= elements; e += sizeof(I)) {
    Simd::prefetch(source + e + kPrefetchBytes);
    const I v = Simd::load_bytes(source + e);
    seen = Simd::bit_or(seen, v);
    const Simd::ByteMask mask = Simd::lowest_bits(v);
    memcpy(bits + e / 8, &mask, sizeof mask);
  }
  return !Simd::any_set(Simd::bit_and(seen, Simd::splat8(0xFE))) &&
         kScalarKernels.pack_booleans(source + e, elements - e, bits + e / 8);
}

template <bool kStream>
size_t unpack_whole_booleans(const uint8_t* bits, size_t elements, uint8_t* target) {
  size_t e = 0;
  for (; e + sizeof(I) <= elements; e += sizeof(I)) {
    Simd::ByteMask mask;
    memcpy(&mask, bits + e / 8, sizeof mask);
    Simd::write<kStream>(target + e, Simd::bytes_of_mask(mask));
  }
  if constexpr (kStream) Simd::fence();
  return e;
}
void unpack_booleans(const uint8_t* bits, size_t elements, uint8_t* target, bool stream) {
  const size_t e = stream ? unpack_whole_booleans<true>(bits, elements, target)
                          : unpack_whole_booleans<false>(bits, elements, target);
  kScalarKernels.unpack_booleans(bits + e / 8, elements - e, target + e, stream);
}

}  // namespace
}  // namespace pleat::compress
