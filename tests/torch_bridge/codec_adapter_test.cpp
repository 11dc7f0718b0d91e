// Tests compress/block/ as residency sees it: forms, and the counts of the report.
#include "torch_bridge/core/codec_adapter.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <vector>

namespace pleat::bridge {
namespace {

using compress::ElementType;
using compress::Sides;

constexpr Sides kPositive{Sides::Kind::kOpen, true, 0, std::numeric_limits<float>::infinity()};

// -7.5, -6.5, ... 7.5, over and over.
std::vector<float> numbers(std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>(i % 16) - 7.5f;
  }
  return values;
}

struct Outcome {
  std::size_t payload_bytes = 0;
  std::vector<float> restored;
};

// There and back, as residency does it.
Outcome run(CodecAdapter& codec, const std::vector<float>& values, const CodecChoice& choice) {
  std::vector<float> source = values;
  const allocator::ByteRange all{0, source.size() * sizeof(float)};
  allocator::EncodeRequest request{};
  request.source = source.data();
  request.source_bytes = all.end;
  request.ranges = &all;
  request.range_count = 1;
  request.nonce = 5;
  request.choice.words = choice.pack();
  const allocator::EncodePlan plan = codec.plan(request);
  EXPECT_NE(plan.room, 0u);
  const std::size_t room = (plan.room + 63) / 64 * 64;
  auto* const payload = static_cast<std::byte*>(std::aligned_alloc(64, room));
  const allocator::EncodeResult result = codec.encode(request, plan, payload, plan.room);
  EXPECT_EQ(result.status, allocator::CodecStatus::kOk);
  Outcome outcome{result.payload_bytes, std::vector<float>(values.size(), 99.0f)};
  allocator::PayloadView view{};
  view.data = payload;
  view.bytes = result.payload_bytes;
  view.form = result.form;
  EXPECT_EQ(codec.decode({view, outcome.restored.data(), all.end}), allocator::CodecStatus::kOk);
  std::free(payload);
  return outcome;
}

TEST(CodecAdapter, CountsWhatIsKeptAsSidesApart) {
  CodecAdapter codec(compress::serial_executor(), false);
  const std::vector<float> values = numbers(4000);
  const Outcome outcome = run(
      codec, values,
      {.type = ElementType::kFloat32, .kept = compress::block::Kept::kSides, .sides = kPositive});
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(outcome.restored[i] > 0, values[i] > 0);
  }
  const CodecTotals& totals = codec.totals();
  EXPECT_EQ(totals.sides.payloads, 1u);
  EXPECT_EQ(totals.sides.elements, 4000u);
  EXPECT_EQ(totals.sides.source_bytes, 16000u);
  EXPECT_EQ(totals.sides.payload_bytes, 64u + 4000 / 8);
  EXPECT_EQ(totals.sides.payload_bytes, outcome.payload_bytes);
  EXPECT_EQ(totals.lossy_fp32.payloads + totals.lossless_float.payloads, 0u);
}

TEST(CodecAdapter, CountsWhatIsNotKeptApart) {
  CodecAdapter codec(compress::serial_executor(), false);
  const Outcome outcome =
      run(codec, numbers(4000),
          {.type = ElementType::kFloat32, .kept = compress::block::Kept::kNothing});
  EXPECT_EQ(outcome.restored, std::vector<float>(4000));
  const CodecTotals& totals = codec.totals();
  EXPECT_EQ(totals.nothing.payloads, 1u);
  EXPECT_EQ(totals.nothing.elements, 4000u);
  EXPECT_EQ(totals.nothing.source_bytes, 16000u);
  EXPECT_EQ(totals.nothing.payload_bytes, 64u);
  EXPECT_EQ(totals.raw.payloads, 0u);
}

TEST(CodecAdapter, SidesBesideValuesCountAsValues) {
  CodecAdapter codec(compress::serial_executor(), false);
  const std::vector<float> values = numbers(4000);
  const CodecChoice choice{.type = ElementType::kFloat32, .bits = 1, .sides = kPositive};
  const Outcome outcome = run(codec, values, choice);
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(outcome.restored[i] > 0, values[i] > 0);
  }
  EXPECT_EQ(codec.totals().lossy_fp32.elements, 4000u);
  EXPECT_EQ(codec.totals().lossy_fp32.payload_bytes, outcome.payload_bytes);
  EXPECT_EQ(codec.totals().sides.payloads, 0u);
}

}  // namespace
}  // namespace pleat::bridge
