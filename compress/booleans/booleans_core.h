// Packs booleans to bits on a device. A thread takes runs whose bits are whole words.
#pragma once

#include "compress/device/block_core.h"

namespace pleat::compress {
namespace {

inline constexpr unsigned kBooleanRun = 32;  // elements: 4 bytes of bits

// Each byte becomes 1, or stays 0.
PLEAT_HD inline uint32_t ones_where_any(uint32_t bytes) {
  const uint32_t carried = (bytes & 0x7F7F'7F7Fu) + 0x7F7F'7F7Fu;  // into the bytes' highest bits
  return (carried | bytes) >> 7 & 0x0101'0101u;
}

// Packs run number `run` of a span of boolean bytes.
// Returns 0, or 8 if some byte is no boolean.
//   any_byte  a byte other than 0 is true, whatever it is
PLEAT_HD inline unsigned pack_boolean_run(const uint8_t* source, uint64_t elements, uint64_t run,
                                          bool any_byte, uint8_t* bits) {
  const uint8_t* const from = source + run * kBooleanRun;
  const uint64_t left = elements - run * kBooleanRun;
  uint32_t words[8];
  if (left >= kBooleanRun && reinterpret_cast<uintptr_t>(source) % 16 == 0) {
    load16(from, words);
    load16(from + 16, words + 4);
  } else {
    PLEAT_UNROLL
    for (unsigned w = 0; w < 8; ++w) {
      words[w] = 0;
      for (unsigned b = 0; b < 4; ++b)
        words[w] |= 4 * w + b < left ? uint32_t{from[4 * w + b]} << (8 * b) : 0;
    }
  }
  uint32_t packed = 0, seen = 0;
  PLEAT_UNROLL
  for (unsigned w = 0; w < 8; ++w) {
    if (any_byte) words[w] = ones_where_any(words[w]);
    seen |= words[w];
    packed |= (squeeze<1>(words[w] & 0x0101'0101u) & 0xF) << (4 * w);
  }
  uint8_t* const to = bits + run * (kBooleanRun / 8);
  if (left >= kBooleanRun) {
    *reinterpret_cast<Stored32*>(to) = packed;
  } else {
    for (unsigned b = 0; b < (left + 7) / 8; ++b) to[b] = static_cast<uint8_t>(packed >> (8 * b));
  }
  return (seen & ~0x0101'0101u) == 0 ? 0 : 8;
}

PLEAT_HD inline void unpack_boolean_run(const uint8_t* bits, uint64_t elements, uint64_t run,
                                        uint8_t* target) {
  const uint8_t* const from = bits + run * (kBooleanRun / 8);
  uint8_t* const to = target + run * kBooleanRun;
  const uint64_t left = elements - run * kBooleanRun;
  if (left >= kBooleanRun && reinterpret_cast<uintptr_t>(target) % 16 == 0) {
    const uint32_t packed = *reinterpret_cast<const Stored32*>(from);
    uint32_t words[8];
    PLEAT_UNROLL
    for (unsigned w = 0; w < 8; ++w) words[w] = spread<1>(packed >> (4 * w) & 0xF);
    store16(to, words);
    store16(to + 16, words + 4);
    return;
  }
  for (unsigned e = 0; e < kBooleanRun && e < left; ++e) to[e] = from[e / 8] >> (e % 8) & 1;
}

template <class Block>
PLEAT_HD inline void finish_booleans(Block& block, const cuda::Job& job, unsigned needed) {
  Header header = packed_header(job, PayloadKind::kBoolean, 3);
  header.payload_bytes = 64 + (job.elements + 7) / 8;
  finish_packed(block, job, header, needed != 0);
}
PLEAT_HD inline bool booleans_fit(const Header& header, uint64_t elements) {
  return header_fits(header, elements, PayloadKind::kBoolean, 3, 64 + (elements + 7) / 8, 0);
}

}  // namespace
}  // namespace pleat::compress
