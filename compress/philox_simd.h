// Draws the noise of a group, as many Philox calls at a time as fit a vector. Included through
// kernels_simd.h, after a simd_*.h. Anonymous: see kernels.h.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "compress/element_math.h"
#include "compress/planes_simd.h"

namespace pleat::compress {
namespace {

// Philox4x32-7 of counters (call, group, 0 or a constant, 0). The parts of rounds 1 to 3 that
// depend on the call number alone are kept, so a group costs about five rounds.
class Philox {
 public:
  static constexpr size_t kVectors = 16 / Simd::kCalls;

  Philox(uint64_t nonce, uint32_t group_high) {
    const auto key_low = static_cast<uint32_t>(nonce),
               key_high = static_cast<uint32_t>(nonce >> 32);
    for (unsigned r = 0; r < 7; ++r) {
      key0_[r] = Simd::splat64(static_cast<uint32_t>(key_low + r * kPhiloxW0));
      key1_[r] = Simd::splat64(static_cast<uint32_t>(key_high + r * kPhiloxW1));
    }
    const uint64_t high = uint64_t{kPhiloxM1} * group_high;
    scalar0_ = static_cast<uint32_t>(high >> 32) ^ key_low;
    const I m0 = Simd::splat64(kPhiloxM0), m1 = Simd::splat64(kPhiloxM1);
    for (size_t v = 0; v < kVectors; ++v) {
      const I p0 = Simd::multiply(Simd::first_calls(v * Simd::kCalls), m0);
      const I c2 = Simd::bit_xor(Simd::high_word(p0), key1_[0]);
      a_[v] = Simd::bit_xor(p0, key1_[1]);  // to be xored with high(M0 * c0)
      const I p1 = Simd::multiply(c2, m1);
      const I c0 =
          Simd::xor3(Simd::high_word(p1), Simd::splat64(static_cast<uint32_t>(high)), key0_[1]);
      b_[v] = Simd::bit_xor(p1, key0_[2]);
      const I q0 = Simd::multiply(c0, m0);
      c_[v] = Simd::bit_xor(Simd::high_word(q0), key1_[2]);
      d_[v] = q0;
    }
  }

  // The 256 noise bytes of a group, in element order.
  __attribute__((always_inline)) void noise(uint32_t group, uint8_t* out) const {
    const I m0 = Simd::splat64(kPhiloxM0), m1 = Simd::splat64(kPhiloxM1);
    const uint64_t p0 = uint64_t{kPhiloxM0} * (group ^ scalar0_);
    const I p0_high = Simd::splat64(p0 >> 32), p0_low = Simd::splat64(p0 & 0xFFFF'FFFFu);
#pragma GCC unroll 4
    for (size_t v = 0; v < kVectors; ++v) {
      const I p1 = Simd::multiply(Simd::bit_xor(a_[v], p0_high), m1);
      I c0 = Simd::bit_xor(Simd::high_word(p1), b_[v]);
      I c1 = p1;
      I c2 = Simd::bit_xor(c_[v], p0_low);
      I c3 = d_[v];
#pragma GCC unroll 3
      for (unsigned r = 3; r < 6; ++r) {
        const I q0 = Simd::multiply(c0, m0);
        const I q1 = Simd::multiply(c2, m1);
        c0 = Simd::xor3(Simd::high_word(q1), c1, key0_[r]);
        c1 = q1;
        c2 = Simd::xor3(Simd::high_word(q0), c3, key1_[r]);
        c3 = q0;
      }
      const size_t call = v * Simd::kCalls;
      uint8_t* const bytes = out + 128 * (call / 8) + 8 * (call % 8);
      // The products of the last round hold words 1 and 3 in their low halves; the high halves go
      // into words 0 and 2.
      Simd::store_bytes(bytes, Simd::xor_high(Simd::multiply(c2, m1), Simd::bit_xor(c1, key0_[6])));
      Simd::store_bytes(bytes + 64,
                        Simd::xor_high(Simd::multiply(c0, m0), Simd::bit_xor(c3, key1_[6])));
    }
  }

 private:
  I a_[kVectors], b_[kVectors], c_[kVectors], d_[kVectors];
  I key0_[7], key1_[7];
  uint32_t scalar0_;
};

}  // namespace
}  // namespace pleat::compress
