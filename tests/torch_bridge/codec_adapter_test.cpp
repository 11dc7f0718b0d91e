// Tests compress/block/ as residency sees it: forms, and the counts of the report.
#include "torch_bridge/core/codec_adapter.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "compress/format.h"
#include "tests/compress/support.h"

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

// ---- closed plans ----

using compress::Look;
using compress::Transform;
using compress::block::Kept;
using compress::block::Steps;
using compress::test::Bytes;
using compress::test::set_value;
using compress::test::value_at;

enum class Values { kRandom, kConstant, kNotFinite, kOutlier, kZeros, kHuge };
constexpr Values kAllValues[] = {Values::kRandom,  Values::kConstant, Values::kNotFinite,
                                 Values::kOutlier, Values::kZeros,    Values::kHuge};

// Floats by their meaning; of other types the bytes are random, or one repeats.
Bytes content(ElementType type, std::size_t elements, Values values) {
  Bytes data(elements * element_size(type));
  std::mt19937_64 random(elements);
  std::normal_distribution<double> normal;
  const bool one_byte = values == Values::kConstant || values == Values::kZeros;
  for (std::size_t i = 0; i < data.size(); ++i) {
    data.data()[i] = static_cast<unsigned char>(one_byte ? values == Values::kConstant : random());
  }
  for (std::size_t e = 0; is_floating(type) && e < elements; ++e) {
    const double x = normal(random), huge = type == ElementType::kFloat16 ? 6e4 : 3e38;
    set_value(type, data.data(), e,
              values == Values::kConstant                 ? 3
              : values == Values::kZeros                  ? 0
              : values == Values::kHuge                   ? (e % 2 == 0 ? huge : -huge)
              : values == Values::kOutlier                ? (e % 256 == 7 ? 1e4 : x)
              : values == Values::kNotFinite && e % 5 < 3 ? (e % 5 == 0   ? NAN
                                                             : e % 5 == 1 ? INFINITY
                                                                          : -INFINITY)
                                                          : x);
  }
  return data;
}

// By docs/payload_format.md. `bits`: of lossy floats, else 0.
std::size_t closed_size(const CodecChoice& choice, unsigned bits, std::size_t elements) {
  const std::size_t size = element_size(choice.type), raw = 64 + elements * size;
  if (choice.kept == Kept::kNothing) return 64;
  if (choice.kept == Kept::kSides)
    return 64 + (elements * (choice.sides.kind == Sides::Kind::kThree ? 2 : 1) + 7) / 8;
  if (choice.type == ElementType::kBool) return 64 + (elements + 7) / 8;
  if (bits == 0) return raw;
  const std::size_t groups = (elements + 255) / 256;
  const std::size_t metadata = choice.transform == Transform::kNone ? 2 * size : 8;
  std::size_t codes = 64 + (groups * metadata + 63) / 64 * 64 + groups * 32 * bits;
  if (choice.lines.look != Look::kNone && choice.lines.length % 256 != 0) {
    std::size_t parts = 0;  // a byte each
    for (std::size_t e = 0; e < elements; ++e)
      parts += e % 256 == 0 || e % choice.lines.length == 0;
    codes += (parts + 63) / 64 * 64;
  }
  const std::size_t least = std::min(codes, raw);
  return choice.sides.any() ? (least + 63) / 64 * 64 + 64 + (elements + 7) / 8 : least;
}

struct Closed {
  std::size_t room = 0;
  Bytes restored;
};

// Planned without the values, and back again.
Closed there_and_back(CodecAdapter& codec, const Bytes& values, const CodecChoice& choice,
                      std::vector<allocator::ByteRange> ranges = {}) {
  if (ranges.empty()) ranges = {{0, values.size()}};
  allocator::EncodeRequest request{};
  request.source_bytes = values.size();
  request.ranges = ranges.data();
  request.range_count = ranges.size();
  request.nonce = 5;
  request.choice.words = choice.pack();
  request.closed = true;
  const allocator::EncodePlan plan = codec.plan(request);
  EXPECT_EQ(codec.expected_bytes(request, plan), plan.room);
  Bytes payload(plan.room), restored(values.size());
  request.source = const_cast<unsigned char*>(values.data());
  const allocator::EncodeResult result = codec.encode(request, plan, payload.data(), plan.room);
  EXPECT_EQ(result.status, allocator::CodecStatus::kOk);
  EXPECT_EQ(result.payload_bytes, plan.room);
  EXPECT_TRUE(payload.guard_intact());
  allocator::PayloadView view{};
  view.data = payload.data();
  view.bytes = result.payload_bytes;
  view.form = result.form;
  EXPECT_EQ(codec.decode({view, restored.data(), restored.size()}), allocator::CodecStatus::kOk);
  EXPECT_TRUE(restored.guard_intact());
  return {plan.room, std::move(restored)};
}

// Each element is not finite in the same way, or about within two steps of its group.
std::string beyond_two_steps(ElementType type, unsigned bits, const Bytes& values,
                             const Bytes& restored) {
  const std::size_t elements = values.size() / element_size(type);
  for (std::size_t from = 0; from < elements; from += 256) {
    double low = INFINITY, high = -INFINITY;
    for (std::size_t e = from; e < std::min(elements, from + 256); ++e) {
      const double x = value_at(type, values.data(), e);
      if (!std::isfinite(x)) continue;
      low = std::min(low, x), high = std::max(high, x);
    }
    const double step = (high - low) / ((1u << bits) - 4);
    for (std::size_t e = from; e < std::min(elements, from + 256); ++e) {
      const double x = value_at(type, values.data(), e), y = value_at(type, restored.data(), e);
      if (std::isnan(x)   ? !std::isnan(y)
          : std::isinf(x) ? x != y
                          : !(std::fabs(x - y) <= 2 * step + std::fabs(x) / 100)) {
        return "element " + std::to_string(e) + ": " + std::to_string(x) + " came back as " +
               std::to_string(y);
      }
    }
  }
  return {};
}

TEST(CodecAdapterClosed, ThePayloadHasTheSizeThatWasPlannedWithoutItsValues) {
  CodecAdapter codec(compress::serial_executor(), false);
  std::vector<std::size_t> lengths{0, 255, 256, 257, 300, 5000, 40'000};
  for (std::size_t n = 1; n < 300; n += 13) lengths.push_back(n);
  for (int t = 0; t <= static_cast<int>(ElementType::kBytes); ++t) {
    const auto type = static_cast<ElementType>(t);
    for (std::uint8_t bits = 0; bits <= 8; ++bits) {
      if (bits != 0 && !is_floating(type)) continue;
      const unsigned used = bits == 0 ? 0 : compress::supported_bits(std::max<unsigned>(bits, 3));
      const CodecChoice choice{.type = type, .bits = bits};
      for (const std::size_t elements : lengths) {
        for (const Values values : kAllValues) {
          SCOPED_TRACE(std::to_string(t) + " type, " + std::to_string(bits) + " bits, " +
                       std::to_string(elements) + " elements, content " +
                       std::to_string(static_cast<int>(values)));
          const Bytes source = content(type, elements, values);
          const Closed closed = there_and_back(codec, source, choice);
          ASSERT_EQ(closed.room, closed_size(choice, used, elements));
          if (type == ElementType::kBool) {
            for (std::size_t e = 0; e < elements; ++e)
              ASSERT_EQ(closed.restored.data()[e], source.data()[e] != 0);
          } else if (used == 0) {
            ASSERT_EQ(std::memcmp(closed.restored.data(), source.data(), source.size()), 0);
          } else {
            ASSERT_EQ(beyond_two_steps(type, used, source, closed.restored), "");
          }
        }
      }
    }
  }
}

TEST(CodecAdapterClosed, RotatedValuesAndSidesHaveTheirSizeToo) {
  CodecAdapter codec(compress::serial_executor(), true);  // nothing small is repeated either
  for (const ElementType type : compress::test::kFloatTypes) {
    for (const std::size_t elements : {1, 200, 300, 5000}) {
      for (const Values values : kAllValues) {
        const Bytes source = content(type, elements, values);
        const auto expect = [&](const CodecChoice& choice, unsigned bits) {
          const Closed closed = there_and_back(codec, source, choice);
          EXPECT_EQ(closed.room, closed_size(choice, bits, elements));
          for (std::size_t e = 0; choice.sides == kPositive && e < elements; ++e) {
            const double x = value_at(type, source.data(), e);
            const double y = value_at(type, closed.restored.data(), e);
            if (choice.kept == Kept::kValues && std::isnan(x)) {
              ASSERT_TRUE(std::isnan(y));
            } else {
              ASSERT_EQ(std::isnan(x) || x > 0, y > 0) << x << " " << y;
            }
          }
        };
        expect({.type = type, .bits = 2, .transform = Transform::kHadamardScaled}, 3);
        expect({.type = type, .bits = 4, .transform = Transform::kHadamard}, 4);
        expect({.type = type, .bits = 1, .sides = kPositive}, 3);
        expect({.type = type, .bits = 8, .transform = Transform::kHadamard, .sides = kPositive}, 8);
        expect({.type = type, .kept = Kept::kSides, .sides = kPositive}, 0);
        expect({.type = type, .kept = Kept::kSides, .sides = {Sides::Kind::kThree, false, -1, 1}},
               0);
        expect({.type = type, .kept = Kept::kNothing}, 0);
      }
    }
  }
}

TEST(CodecAdapterClosed, ValuesThatMustBeExactBecauseOfOthersAreAllExact) {
  CodecAdapter codec(compress::serial_executor(), false);
  const ElementType type = ElementType::kFloat32;
  const Bytes source = content(type, 30'000, Values::kOutlier);
  const auto is_exact = [&](const CodecChoice& choice) {
    const Closed closed = there_and_back(codec, source, choice);
    const bool exact = std::memcmp(closed.restored.data(), source.data(), source.size()) == 0;
    EXPECT_EQ(closed.room, closed_size(choice,
                                       exact                            ? 0
                                       : choice.steps == Steps::kCurved ? 8
                                                                        : 4,
                                       30'000));
    return exact;
  };
  EXPECT_TRUE(is_exact({.type = type, .bits = 4, .near_zero = true}));
  EXPECT_TRUE(is_exact({.type = type, .bits = 4, .steps = Steps::kExponent}));
  EXPECT_TRUE(is_exact({.type = type, .bits = 4, .lines = {Look::kRows, 300}}));
  EXPECT_TRUE(is_exact({.type = type, .bits = 4, .lines = {Look::kColumns, 300}}));
  EXPECT_FALSE(is_exact({.type = type, .bits = 4, .lines = {Look::kRows, 256}})) << "own groups";
  EXPECT_FALSE(is_exact({.type = type, .bits = 4, .lines = {Look::kParts, 300}}));
  EXPECT_FALSE(is_exact({.type = type, .bits = 4, .steps = Steps::kCurved}));
}

TEST(CodecAdapterClosed, OfSeveralRangesThereIsATableAndAPartForEach) {
  CodecAdapter codec(compress::serial_executor(), false);
  const ElementType type = ElementType::kBFloat16;
  for (const Values values : kAllValues) {
    Bytes source = content(type, 20'000, values);
    const std::vector<allocator::ByteRange> ranges{{2, 2002}, {2002, 2004}, {20'000, 40'000}};
    const CodecChoice choice{.type = type, .bits = 4, .sides = kPositive};
    const Closed closed = there_and_back(codec, source, choice, ranges);
    const auto padded = [](std::size_t bytes) { return (bytes + 63) / 64 * 64; };
    EXPECT_EQ(closed.room, padded(16 + 3 * 32) + padded(closed_size(choice, 4, 1000)) +
                               padded(closed_size(choice, 4, 1)) + closed_size(choice, 4, 10'000));
    EXPECT_EQ(closed.restored.data()[0], 0) << "outside of the ranges";
  }
}

}  // namespace
}  // namespace pleat::bridge
