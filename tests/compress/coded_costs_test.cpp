// Predicted bytes and errors of payloads with exponents and kept zeros, and of rotated groups,
// against payloads that are made and decoded.
#include <array>
#include <map>
#include <string>

#include "compress/block/span_costs.h"
#include "compress/block/width_costs.h"
#include "tests/compress/coded_cases.h"

namespace pleat::compress::block {
namespace {

using namespace compress::test;

constexpr std::size_t kElements = CodedCase::kElements;

double squared_difference(ElementType type, const void* a, const void* b) {
  double sum = 0;
  for (std::size_t e = 0; e < kElements; ++e) {
    const double difference = value_at(type, a, e) - value_at(type, b, e);
    sum += std::isfinite(difference) ? difference * difference : 0;
  }
  return sum;
}

struct Truth {
  bool possible = false;
  std::vector<unsigned char> payload;
  double bytes = 0, error = 0, deviation = 0;  // in the mean over nonces
};
std::vector<unsigned char> payload_of(const CodedCase& c, ElementType type, std::uint8_t bits,
                                      std::uint64_t nonce) {
  const CodecSpec spec = c.at(bits);
  Bytes room(payload_bound(spec, type, kElements));
  const EncodeResult result = encode({c.data.data(), kElements, type}, spec, nonce, room.data(),
                                     room.size(), serial_executor(), nullptr);
  return {room.data(), room.data() + result.payload_bytes};
}
Truth truth_of(const CodedCase& c, ElementType type, std::uint8_t bits) {
  constexpr std::size_t kNonces = 6;
  Truth truth;
  double squares = 0;
  for (std::size_t i = 0; i < kNonces; ++i) {
    std::vector<unsigned char> payload = payload_of(c, type, bits, 7 + i);
    if (payload.empty()) return truth;  // too many groups are escaped
    Bytes back(c.data.size());
    EXPECT_EQ(decode(payload.data(), payload.size(), back.data(), back.size(), serial_executor()),
              Status::kOk);
    const double error = squared_difference(type, back.data(), c.data.data());
    truth.error += error / kNonces;
    squares += error * error / kNonces;
    truth.bytes += double(payload.size()) / kNonces;
    if (i == 0) truth.payload = std::move(payload);
  }
  truth.deviation = std::sqrt(std::max(0.0, squares - truth.error * truth.error) / (kNonces - 1));
  truth.possible = true;
  return truth;
}

std::optional<WidthCosts> costs_of(const CodedCase& c, ElementType type, std::uint8_t bits,
                                   const std::vector<unsigned char>& payload) {
  const BlockForm form{.shape = BlockShape::kSingle,
                       .type = type,
                       .bits = bits,
                       .transform = c.codec.transform,
                       .spans = 1,
                       .elements = kElements,
                       .nonce = 7};
  const BlockSpec asked{.type = type, .bits = 4, .transform = c.codec.transform};
  return width_costs(form, payload.data(), payload.size(), c.data.size(), asked);
}

class CodedCostsOf : public ::testing::TestWithParam<ElementType> {};

TEST_P(CodedCostsOf, EveryFormAreThoseOfItsPayloads) {
  const ElementType type = GetParam();
  for (const CodedCase& c : coded_cases(type)) {
    std::vector<Truth> truths;
    for (const std::uint8_t bits : kCostWidths) truths.push_back(truth_of(c, type, bits));
    for (std::size_t w = 0; w < truths.size(); ++w) {
      const Truth& truth = truths[w];
      if (!truth.possible) continue;
      const std::string at = c.name + " at " + std::to_string(kCostWidths[w]);
      const CodecSpec codec = c.at(kCostWidths[w]);
      const SpanTally tally =
          tally_values({c.data.data(), kElements, type}, codec, {}, {}, serial_executor(), nullptr);
      EXPECT_NEAR(double(bytes_of_span(Request({nullptr, kElements, type}, codec, 0), tally)),
                  truth.bytes, 1e-6 * truth.bytes)
          << at;
      // Steps of rotated groups depend on the signs that a nonce draws.
      const double signs = codec.transform == Transform::kNone ? 0 : 0.12;
      EXPECT_NEAR(tally.squared_error, truth.error,
                  (0.04 + signs) * truth.error + 4 * truth.deviation)
          << at;

      const std::optional<WidthCosts> costs = costs_of(c, type, kCostWidths[w], truth.payload);
      ASSERT_TRUE(costs) << at;
      for (std::size_t other = 0; other < truths.size(); ++other) {
        const WidthCost& cost = (*costs)[other];
        const std::string from = at + ", asked for " + std::to_string(cost.bits);
        EXPECT_EQ(cost.possible, truths[other].possible) << from;
        if (!cost.possible || !truths[other].possible) continue;
        const Truth& expected = truths[other];
        const bool one_bit = kCostWidths[w] == 1;  // of which zeros are not known
        EXPECT_NEAR(double(cost.payload_bytes), expected.bytes,
                    (one_bit ? 0.5 : 0.02) * expected.bytes)
            << from;
        if (one_bit && codec.zeros) continue;
        const double share = one_bit ? 0.8 : kCostWidths[w] == 2 ? 0.22 : 0.12;
        EXPECT_NEAR(cost.squared_error, expected.error,
                    (share + signs) * expected.error + 4 * expected.deviation)
            << from;
      }
    }
  }
}

TEST_P(CodedCostsOf, RotatedValuesHaveTheBytesOfTheirPayloads) {
  const ElementType type = GetParam();
  for (const CodedCase& c : coded_cases(type)) {
    if (c.name != "rotated" && c.name != "rotated and scaled") continue;
    const ByteRange all{0, c.data.size()};
    const BlockSpec asked{.type = type, .bits = 4, .transform = c.codec.transform};
    const std::optional<WidthCosts> costs =
        width_costs(BlockSource{c.data.data(), c.data.size(), &all, 1}, asked, serial_executor());
    ASSERT_TRUE(costs);
    for (const WidthCost& cost : *costs) {
      const std::vector<unsigned char> payload = payload_of(c, type, cost.bits, 7);
      EXPECT_TRUE(cost.possible);
      EXPECT_EQ(cost.payload_bytes, payload.size());
      EXPECT_GT(cost.squared_error, 0);
    }
  }
}

// In a buffer of exactly the payload's bytes.
TEST_P(CodedCostsOf, DamagedPayloadsAreReadWithinTheirBytes) {
  std::mt19937_64 random(seed());
  for (const CodedCase& c : coded_cases(GetParam())) {
    const std::vector<unsigned char> whole = payload_of(c, GetParam(), 4, 7);
    for (int i = 0; i < 20; ++i) {
      std::vector<unsigned char> payload = whole;
      const std::size_t tail = std::min<std::size_t>(payload.size(), 800);
      for (int n = 0; n < 4; ++n) {
        const std::size_t at = random() % tail;
        payload[i % 2 == 0 ? at : payload.size() - 1 - at] = static_cast<unsigned char>(random());
      }
      payload.shrink_to_fit();
      static_cast<void>(costs_of(c, GetParam(), 4, payload));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, CodedCostsOf, ::testing::ValuesIn(kFloatTypes),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace pleat::compress::block
