#include "compress/block/payload_sample.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "compress/block/width_costs.h"
#include "compress/codec.h"
#include "compress/format.h"

namespace pleat::compress::block {
namespace {

struct Payload {
  std::vector<std::byte> memory;
  std::byte* data = nullptr;
  std::size_t bytes = 0;
};

// Of floats whose spread grows along the span, as a device codes them: nothing is compacted.
//   small_rows  every third row is a hundredth of the others
Payload payload_of(std::size_t elements, const CodecSpec& spec, bool positive,
                   std::size_t small_rows = 0) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(elements);
  for (std::size_t i = 0; i < elements; ++i) {
    float value = normal(random) * (1 + static_cast<float>(i) / static_cast<float>(elements));
    if (small_rows != 0 && i / small_rows % 3 == 0) value *= 0.01f;
    values[i] = positive ? std::max(value, 0.0f) : value;
  }
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

// Costs of a payload and of its sample, element by element.
void expect_alike(const Payload& payload, std::size_t elements, const CodecSpec& spec) {
  const auto sample = sample_payload(payload.data);
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
  const BlockSpec asked{.type = ElementType::kFloat32, .bits = spec.bits};
  const auto whole = width_costs(form_of(elements, spec.bits), payload.data, payload.bytes,
                                 elements * sizeof(float), asked);
  const auto part = width_costs(form_of(sample->elements, spec.bits), small, sample->bytes,
                                sample->elements * sizeof(float), asked);
  ASSERT_TRUE(whole && part);
  const double ratio = static_cast<double>(elements) / static_cast<double>(sample->elements);
  for (std::size_t i = 0; i < whole->size(); ++i) {
    EXPECT_EQ((*part)[i].possible, (*whole)[i].possible);
    EXPECT_NEAR((*part)[i].squared_error * ratio / (*whole)[i].squared_error, 1, 0.03);
  }
}

constexpr std::size_t kElements = 3'000'000;

TEST(PayloadSample, CostsWhatTheWholeCostsElementByElement) {
  for (const bool positive : {false, true}) {
    for (const std::uint8_t bits : {std::uint8_t{3}, std::uint8_t{4}, std::uint8_t{8}}) {
      const CodecSpec spec{.bits = bits, .compact = false};
      expect_alike(payload_of(kElements, spec, positive), kElements, spec);
    }
  }
}

// Of a row and of a channel there is the same in the sample, and so are the parts of a group.
TEST(PayloadSample, HasTheExponentsOfItsGroups) {
  constexpr std::uint32_t kRow = 20;
  std::vector<std::int8_t> table(2 * kRow);
  for (std::size_t c = 0; c < table.size(); c += 3) table[c] = -4;
  for (const Exponents& exponents :
       {Exponents{kRow, 0, 1, nullptr}, Exponents{kRow, 2 * kRow, 1, table.data()}}) {
    for (const Transform transform : {Transform::kNone, Transform::kHadamard}) {
      const CodecSpec spec{
          .bits = 4, .transform = transform, .compact = false, .exponents = exponents};
      expect_alike(payload_of(kElements, spec, false, kRow), kElements, spec);
    }
  }
}

TEST(PayloadSample, IsNotWorthItForFewElementsOrWhereGroupsMayBeEscaped) {
  const auto worth_it = [](std::size_t elements, const CodecSpec& spec) {
    return sample_payload(payload_of(elements, spec, false).data).has_value();
  };
  EXPECT_TRUE(worth_it(2'200'000, {.bits = 4, .compact = false}));
  EXPECT_FALSE(worth_it(2'000'000, {.bits = 4, .compact = false}));
  EXPECT_FALSE(worth_it(2'200'000, {.bits = 2, .compact = false}));
  EXPECT_FALSE(worth_it(2'200'000, {.bits = 0}));
  // Rows begin at a new place in nearly every block.
  EXPECT_FALSE(
      worth_it(2'200'000, {.bits = 4, .compact = false, .exponents = {50'257, 0, 1, nullptr}}));
  const Header nothing{};
  EXPECT_FALSE(sample_payload(&nothing));
}

}  // namespace
}  // namespace pleat::compress::block
