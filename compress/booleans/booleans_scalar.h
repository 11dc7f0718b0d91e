// Packs booleans to bits, one after the other. Anonymous: see kernels.h.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace pleat::compress {
namespace {

bool are_booleans(const uint8_t* source, size_t elements) {
  uint8_t seen = 0;
  for (size_t e = 0; e < elements; ++e) seen |= source[e];
  return seen <= 1;
}
bool pack_booleans(const uint8_t* source, size_t elements, uint8_t* bits) {
  uint8_t seen = 0;
  for (size_t e = 0; e < elements; e += 8) {
    unsigned byte = 0;
    for (size_t i = e; i < elements && i < e + 8; ++i) {
      seen |= source[i];
      byte |= (source[i] & 1u) << (i - e);
    }
    bits[e / 8] = static_cast<uint8_t>(byte);
  }
  return seen <= 1;
}
void unpack_booleans(const uint8_t* bits, size_t elements, uint8_t* target, bool /*stream*/) {
  for (size_t e = 0; e < elements; ++e) target[e] = (bits[e / 8] >> (e % 8)) & 1;
}

}  // namespace
}  // namespace pleat::compress
