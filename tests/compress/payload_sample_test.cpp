#include "compress/block/payload_sample.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "compress/block/width_costs.h"
#include "compress/codec.h"

namespace pleat::compress::block {
namespace {

struct Payload {
  std::vector<std::byte> memory;
  std::byte* data = nullptr;
  std::size_t bytes = 0;
};

// Of floats whose spread grows along the span, as a device codes them: nothing is compacted.
Payload payload_of(std::size_t elements, unsigned bits, bool positive) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(elements);
  for (std::size_t i = 0; i < elements; ++i) {
    const float value = normal(random) * (1 + static_cast<float>(i) / static_cast<float>(elements));
    values[i] = positive ? std::max(value, 0.0f) : value;
  }
  const CodecSpec spec{.bits = static_cast<std::uint8_t>(bits), .compact = false};
  const Span span{values.data(), elements, ElementType::kFloat32};
  Payload payload;
  payload.memory.resize(payload_bound(spec, span.type, elements) + 64);
  const auto address = reinterpret_cast<std::uintptr_t>(payload.memory.data());
  payload.data = payload.memory.data() + (64 - address % 64) % 64;
  payload.bytes =
      encode(span, spec, 7, payload.data, payload.memory.size() - 64, serial_executor(), nullptr)
          .payload_bytes;
  return payload;
}

BlockForm form_of(std::size_t elements, unsigned bits) {
  BlockForm form;
  form.shape = BlockShape::kSingle;
  form.type = ElementType::kFloat32;
  form.bits = static_cast<std::uint8_t>(bits);
  form.spans = 1;
  form.elements = elements;
  form.nonce = 7;
  return form;
}

TEST(PayloadSample, CostsWhatTheWholeCostsElementByElement) {
  constexpr std::size_t kElements = 3'000'000;
  for (const bool positive : {false, true}) {
    for (const unsigned bits : {3u, 4u, 6u, 8u}) {
      const Payload payload = payload_of(kElements, bits, positive);
      const auto sample = sample_payload(ElementType::kFloat32, bits, kElements);
      ASSERT_TRUE(sample);
      alignas(64) static std::byte small[2 << 20];
      std::size_t at = 0;
      for (const ByteRange& part : sample->parts) {
        ASSERT_LE(part.end, payload.bytes);
        std::memcpy(small + at, payload.data + part.begin, part.end - part.begin);
        at += part.end - part.begin;
      }
      ASSERT_EQ(at, sample->bytes);
      sample->finish(small);
      const BlockSpec asked{.type = ElementType::kFloat32, .bits = static_cast<std::uint8_t>(bits)};
      const auto whole = width_costs(form_of(kElements, bits), payload.data, payload.bytes,
                                     kElements * sizeof(float), asked);
      const auto part = width_costs(form_of(sample->elements, bits), small, sample->bytes,
                                    sample->elements * sizeof(float), asked);
      ASSERT_TRUE(whole && part);
      const double ratio = static_cast<double>(kElements) / static_cast<double>(sample->elements);
      for (std::size_t i = 0; i < whole->size(); ++i) {
        EXPECT_EQ((*part)[i].possible, (*whole)[i].possible);
        EXPECT_NEAR((*part)[i].squared_error * ratio / (*whole)[i].squared_error, 1, 0.03);
      }
    }
  }
}

TEST(PayloadSample, IsNotWorthItForFewElementsOrWhereGroupsMayBeEscaped) {
  EXPECT_FALSE(sample_payload(ElementType::kFloat32, 4, 2'000'000));
  EXPECT_FALSE(sample_payload(ElementType::kFloat32, 2, 30'000'000));
  EXPECT_FALSE(sample_payload(ElementType::kInt32, 4, 30'000'000));
}

}  // namespace
}  // namespace pleat::compress::block
