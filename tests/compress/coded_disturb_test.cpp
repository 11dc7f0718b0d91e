// Artificial noise of values that are coded with exponents, with kept zeros, or rotated.
#include "compress/block/disturb.h"
#include "tests/compress/coded_cases.h"
#include "tests/compress/noise_cases.h"

namespace pleat::compress::block {
namespace {

using namespace compress::test;
using namespace block::testing;

class CodedDisturbanceOf : public ::testing::TestWithParam<ElementType> {};
INSTANTIATE_TEST_SUITE_P(Types, CodedDisturbanceOf, ::testing::ValuesIn(kFloatTypes),
                         [](const auto& info) { return std::string(name_of(info.param)); });

Bytes disturbed(const CodedCase& c, ElementType type, const Bytes& from, const Disturbance& how,
                const Executor& executor = serial_executor()) {
  Bytes block = copy_of(from);
  const ByteRange all{0, block.size()};
  EXPECT_TRUE(disturb_block(block.data(), {block.data(), block.size(), &all, 1}, {.type = type},
                            c.at(0), how, executor))
      << c.name;
  EXPECT_TRUE(block.guard_intact());
  return block;
}
// Nothing where too many groups would be escaped.
std::optional<Bytes> through_codec(const CodedCase& c, ElementType type, std::uint8_t bits,
                                   std::uint64_t nonce) {
  const CodecSpec codec = c.at(bits);
  Bytes payload(payload_bound(codec, type, CodedCase::kElements)), block(c.data.size());
  const EncodeResult coded = encode({c.data.data(), CodedCase::kElements, type}, codec, nonce,
                                    payload.data(), payload.size(), serial_executor(), nullptr);
  if (coded.status != Status::kOk) {
    return std::nullopt;
  }
  EXPECT_EQ(
      decode(payload.data(), coded.payload_bytes, block.data(), block.size(), serial_executor()),
      Status::kOk);
  return block;
}
// Squared, as a multiple of the element's row, of the elements that noise is added to: zeros are,
// where groups are rotated.
double change_of(const CodedCase& c, ElementType type, const Bytes& from, const Bytes& to,
                 const Bytes& block) {
  double sum = 0, size = 0;
  for (std::size_t e = 0; e < CodedCase::kElements; ++e) {
    if (e % CodedCase::kRow == 0) {
      size = c.size_of_row(type, e);
    }
    const double change = (value_at(type, to.data(), e) - value_at(type, from.data(), e)) / size;
    const bool counts =
        c.codec.transform != Transform::kNone || value_at(type, block.data(), e) != 0;
    sum += counts && std::isfinite(change) ? change * change : 0;
  }
  return sum;
}

TEST_P(CodedDisturbanceOf, EveryFormHasTheSizeOfTheCodecsError) {
  const ElementType type = GetParam();
  for (const CodedCase& c : coded_cases(type)) {
    for (const auto& [from, bits] :
         {std::pair<std::uint8_t, std::uint8_t>{0, 2}, {0, 4}, {0, 8}, {4, 4}}) {
      const std::optional<Bytes> block =
          from == 0 ? copy_of(c.data) : through_codec(c, type, from, 7);
      if (!block || !through_codec(c, type, bits, 1)) {
        continue;
      }
      const Mean truth = mean_of(4, [&](std::size_t i) {
        return change_of(c, type, c.data, *through_codec(c, type, bits, 100 + i), *block);
      });
      const Mean change = mean_of(4, [&](std::size_t i) {
        return change_of(c, type, *block, disturbed(c, type, *block, {bits, 1, 900 + i}), *block);
      });
      const double unsure = 4 * (truth.deviation + change.deviation);
      const bool as_saved = from == 0;  // else the payload's noise has widened groups
      const std::string at = c.name + " of " + std::to_string(from) + " at " + std::to_string(bits);
      EXPECT_GE(change.value + unsure, (as_saved ? 0.88 : 0.72) * truth.value) << at;
      EXPECT_LE(change.value - unsure, (as_saved ? 1.12 : 1.25) * truth.value) << at;
    }
  }
}

TEST_P(CodedDisturbanceOf, RowsOfZerosAndKeptZerosIsNone) {
  const ElementType type = GetParam();
  for (const CodedCase& c : coded_cases(type)) {
    const Bytes block = disturbed(c, type, c.data, {4, -1, 8});
    const bool rotated = c.codec.transform != Transform::kNone;
    const bool rows = c.name.find("small rows") != std::string::npos;
    for (std::size_t e = 0; e < CodedCase::kElements; ++e) {
      const double x = value_at(type, c.data.data(), e), y = value_at(type, block.data(), e);
      if (x == 0 && (!rotated || (rows && e / CodedCase::kRow % 10 == 7))) {
        ASSERT_EQ(y, 0) << c.name << " " << e;
      }
      ASSERT_TRUE(!std::isfinite(x) || std::isfinite(y)) << c.name << " " << e;
    }
    // There a step is less than the type's.
    const bool too_fine =
        (c.name == "rows alike" || c.name == "a table of zeros") && type == ElementType::kBFloat16;
    EXPECT_EQ(same(block, c.data), too_fine) << c.name;
  }
}

TEST_P(CodedDisturbanceOf, EveryFormIsTheSameOnEveryPathWithAnyThreads) {
  const ElementType type = GetParam();
  for (const CodedCase& c : coded_cases(type)) {
    const Bytes block = disturbed(c, type, c.data, {4, 0.75f, 8});
    EXPECT_TRUE(same(block, disturbed(c, type, c.data, {4, 0.75f, 8}, backwards_executor())));
    for (const Path& path : paths()) {
      const UsePath use(path);
      EXPECT_TRUE(same(block, disturbed(c, type, c.data, {4, 0.75f, 8}))) << path.name << c.name;
    }
  }
}

}  // namespace
}  // namespace pleat::compress::block
