// Packs bytes below 2^bits into planes of `bits` bits, for scaled groups, squeezed slots and
// lossless floats. Counts are multiples of 64. Included through kernels_simd.h. Anonymous: see
// kernels.h.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

namespace pleat::compress {
namespace {

using F = Simd::F;
using I = Simd::I;

constexpr size_t kPrefetchBytes = 4096;  // how far ahead data that are read once are fetched

// For each value of a bitmap's byte, lanes for Simd::move8(): which of eight bytes are moved
// together, and where each of those goes back to. Further lanes are 0x80, which gives zero.
struct ByteMoves {
  uint64_t together[256];
  uint64_t apart[256];
};
constexpr ByteMoves byte_moves() {
  ByteMoves moves{};
  for (unsigned byte = 0; byte < 256; ++byte) {
    uint64_t together = 0, apart = 0;
    unsigned rank = 0;
    for (unsigned bit = 0; bit < 8; ++bit) {
      const bool set = (byte >> bit & 1) != 0;
      apart |= uint64_t{set ? rank : 0x80} << (8 * bit);
      if (set) together |= uint64_t{bit} << (8 * rank++);
    }
    for (; rank < 8; ++rank) together |= uint64_t{0x80} << (8 * rank);
    moves.together[byte] = together;
    moves.apart[byte] = apart;
  }
  return moves;
}
constexpr ByteMoves kMoves = byte_moves();

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

  // Writes the non-zero bytes, one after the other, to `kept`, and up to 7 zeros more. Returns how
  // many are not zero. Bit e mod 8 of bitmap[e / 8] is set if byte e is not zero.
  static size_t squeeze(const uint8_t* bytes, size_t count, uint8_t* bitmap, uint8_t* kept) {
    size_t above = 0;
    for (size_t e = 0; e < count; e += sizeof(I)) {
      const Simd::ByteMask mask = Simd::nonzero_bytes(Simd::load_bytes(bytes + e));
      memcpy(bitmap + e / 8, &mask, sizeof mask);
#pragma GCC unroll 8
      for (size_t i = 0; i < sizeof mask; ++i) {
        const unsigned eight = mask >> (8 * i) & 0xFF;
        Simd::move8(kept + above, bytes + e + 8 * i, &kMoves.together[eight]);
        above += static_cast<size_t>(__builtin_popcount(eight));
      }
    }
    return above;
  }
  // The way back. Reads up to 7 bytes beyond those kept.
  static void expand(const uint8_t* bitmap, size_t count, const uint8_t* kept, uint8_t* bytes) {
#pragma GCC unroll 8
    for (size_t i = 0; i < count / 8; ++i) {
      Simd::move8(bytes + 8 * i, kept, &kMoves.apart[bitmap[i]]);
      kept += __builtin_popcount(bitmap[i]);
    }
  }
};

// Converts arrays of a source type to floats, and back.
struct Conversions {
  static constexpr size_t kVectorBytes = sizeof(Simd::I);
  template <class T>
  static void to_floats(const typename T::Word* words, size_t count, float* values) {
    const size_t whole = count / Simd::kLanes * Simd::kLanes;
    for (size_t e = 0; e < whole; e += Simd::kLanes)
      Simd::store_floats(values + e, Simd::load(T{}, words + e));
    for (size_t e = whole; e < count; ++e) values[e] = T::to_float(words[e]);
  }
  template <class T>
  static void from_floats(const float* values, size_t count, typename T::Word* words) {
    const size_t whole = count / Simd::kChunk * Simd::kChunk;
    for (size_t e = 0; e < whole; e += Simd::kChunk) {
      Simd::F chunk[4];
      for (size_t j = 0; j < 4; ++j) chunk[j] = Simd::load_floats(values + e + j * Simd::kLanes);
      Simd::store_chunk<false>(T{}, words + e, chunk);
    }
    for (size_t e = whole; e < count; ++e) words[e] = T::from_float(values[e]);
  }
};

}  // namespace
}  // namespace pleat::compress
