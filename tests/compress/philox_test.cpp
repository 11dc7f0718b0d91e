#include "tests/compress/support.h"

namespace pleat::compress::test {
namespace {

// The generator as Salmon et al. 2011 state it, written from the paper.
void philox4x32(const std::uint32_t counter[4], const std::uint32_t key[2], int rounds,
                std::uint32_t out[4]) {
  std::uint64_t x[4] = {counter[0], counter[1], counter[2], counter[3]};
  std::uint32_t k[2] = {key[0], key[1]};
  for (int r = 0; r < rounds; ++r) {
    const std::uint64_t a = x[0] * 0xD2511F53ull, b = x[2] * 0xCD9E8D57ull;
    const std::uint64_t next[4] = {(b >> 32) ^ x[1] ^ k[0], b & 0xFFFFFFFF, (a >> 32) ^ x[3] ^ k[1],
                                   a & 0xFFFFFFFF};
    std::copy(next, next + 4, x);
    k[0] += 0x9E3779B9;
    k[1] += 0xBB67AE85;
  }
  for (int i = 0; i < 4; ++i) out[i] = static_cast<std::uint32_t>(x[i]);
}

// Known answers of Random123 (kat_vectors, philox4x32 with 7 and 10 rounds).
TEST(Philox, MatchesPublishedVectors) {
  const std::uint32_t zeros[4] = {}, ones[4] = {~0u, ~0u, ~0u, ~0u};
  std::uint32_t out[4];
  philox4x32(zeros, zeros, 10, out);
  EXPECT_EQ(out[0], 0x6627e8d5u);
  EXPECT_EQ(out[3], 0x9b00dbd8u);
  philox4x32(zeros, zeros, 7, out);
  EXPECT_EQ(out[0], 0x5f6fb709u);
  EXPECT_EQ(out[1], 0x0d893f64u);
  EXPECT_EQ(out[2], 0x4f121f81u);
  EXPECT_EQ(out[3], 0x4f730a48u);
  philox4x32(ones, ones, 7, out);
  EXPECT_EQ(out[0], 0x5207ddc2u);
  EXPECT_EQ(out[3], 0x8c52f662u);
}

// A payload's codes follow from the document's formulas: the whole path recomputed in double.
TEST(Format, PayloadFollowsTheDocument) {
  std::mt19937_64 random(seed());
  std::normal_distribution<float> normal(0.3f, 1.0f);
  for (const unsigned bits : kWidths) {
    const std::size_t elements = 256 * 70;
    std::vector<float> x(elements);
    for (float& value : x) value = normal(random);
    const std::uint64_t nonce = random();
    const Encoded out = encode_span(x.data(), elements, ElementType::kFloat32, bits, nonce);
    ASSERT_EQ(out.status, Status::kOk);
    const std::size_t groups = elements / 256;
    const std::size_t codes_at = 64 + (groups * 8 + 63) / 64 * 64;
    ASSERT_EQ(out.payload.size(), codes_at + groups * 32 * bits);
    const std::vector<unsigned char> restored = decode_span(out.payload, elements * 4);
    const std::uint32_t largest = (1u << bits) - 1;
    std::size_t differing = 0;
    for (std::size_t g = 0; g < groups; ++g) {
      std::uint32_t words[2];
      std::memcpy(words, out.payload.data() + 64 + 8 * g, 8);
      float low = x[g * 256], high = low;
      for (std::size_t e = 0; e < 256; ++e) {
        low = std::min(low, x[g * 256 + e]);
        high = std::max(high, x[g * 256 + e]);
      }
      float anchor, step;
      std::memcpy(&anchor, &words[0], 4);
      ASSERT_EQ(words[1] & 1, 0u);
      std::memcpy(&step, &words[1], 4);
      EXPECT_EQ(anchor, low);
      EXPECT_NEAR(step, (double(high) - low) / largest, 3e-7 * (high - low));
      for (std::uint32_t call = 0; call < 16; ++call) {
        const std::uint32_t counter[4] = {call, static_cast<std::uint32_t>(g), 0, 0};
        const std::uint32_t key[2] = {static_cast<std::uint32_t>(nonce),
                                      static_cast<std::uint32_t>(nonce >> 32)};
        std::uint32_t words4[4];
        philox4x32(counter, key, 7, words4);
        for (unsigned byte = 0; byte < 16; ++byte) {
          const std::size_t i = 2 * (call / 8) + byte / 8, e = i * 64 + call % 8 * 8 + byte % 8;
          // words in the order 1, 0, 3, 2
          const double k = (words4[(byte / 4) ^ 1] >> (8 * (byte % 4))) & 255, u = (k + 0.5) / 256;
          const double t = (double(x[g * 256 + e]) - low) / step;
          const unsigned char* slot = out.payload.data() + codes_at + g * 32 * bits;
          unsigned code;
          if (bits == 3)
            code = ((slot[e / 4] >> (2 * (e % 4))) & 3) | ((slot[64 + e / 8] >> (e % 8)) & 1) << 2;
          else if (bits == 6)
            code = ((slot[e / 2] >> (4 * (e % 2))) & 15) |
                   ((slot[128 + e / 4] >> (2 * (e % 4))) & 3) << 4;
          else
            code = (slot[e * bits / 8] >> (e * bits % 8)) & largest;
          const double expected = std::min(std::floor(t + u), double(largest));
          differing += code != expected;  // only where t + u is an integer to 16 bits
          EXPECT_NEAR(code, t + u - 0.5, 0.5 + 1e-4);
          float value;
          std::memcpy(&value, restored.data() + 4 * (g * 256 + e), 4);
          EXPECT_NEAR(value, low + step * (code + 0.5 - u), 1e-6 * (std::fabs(low) + high - low));
        }
      }
    }
    EXPECT_LE(differing, elements / 200) << bits;
  }
}

}  // namespace
}  // namespace pleat::compress::test
