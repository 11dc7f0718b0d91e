#include "compress/block/block_payload.h"

#include <sys/mman.h>
#include <unistd.h>

#include "compress/format.h"
#include "compress/functions/functions.h"
#include "tests/compress/block_reference.h"
#include "tests/compress/golden_blocks.h"
#include "tests/compress/support.h"

namespace pleat::compress::block {
namespace {

using namespace compress::test;
using Buffer = std::vector<unsigned char>;
using Ranges = std::vector<ByteRange>;

constexpr std::uint64_t kNonce = 0xFEDCBA9876543210;

struct Coded {
  Status status = Status::kOk;
  Buffer payload;
  BlockForm form;
  SpanStatistics statistics;
};

Coded encode_with(const BlockSource& source, const BlockPlan& plan, std::size_t capacity) {
  Bytes out(capacity);
  const BlockEncodeResult result =
      encode_block(source, plan, kNonce, out.data(), capacity, serial_executor());
  EXPECT_TRUE(out.guard_intact());
  EXPECT_LE(result.payload_bytes, capacity);
  return {result.status, Buffer(out.data(), out.data() + result.payload_bytes), result.form,
          result.statistics};
}

Coded encoded(const Bytes& data, Ranges ranges, const BlockSpec& spec, bool copy_raw = false) {
  if (ranges.empty()) ranges.push_back({0, data.size()});
  const BlockSource source{data.data(), data.size(), ranges.data(), ranges.size()};
  Coded coded;
  coded.status = Status::kNoRoom;
  for (const Effort effort : {Effort::kQuick, Effort::kThorough}) {
    const BlockPlan plan = plan_block(source, spec, copy_raw, effort);
    if (plan.room == 0) break;
    coded = encode_with(source, plan, plan.room);
    if (coded.status == Status::kOk || !plan.guesses) break;
  }
  return coded;
}

// In a buffer of exactly the payload's bytes; the target's neighbours are watched.
Status decode_into(const BlockForm& form, const Buffer& payload, Bytes& target) {
  auto* const copy = static_cast<unsigned char*>(std::malloc(payload.size() + (payload.empty())));
  std::copy(payload.begin(), payload.end(), copy);
  const Status status =
      decode_block(form, copy, payload.size(), target.data(), target.size(), serial_executor());
  EXPECT_TRUE(target.guard_intact());
  std::free(copy);
  return status;
}
Status decode_status(const BlockForm& form, const Buffer& payload, std::size_t bytes) {
  Bytes target(bytes);
  return decode_into(form, payload, target);
}

Buffer restored(const Coded& coded, std::size_t bytes) {
  EXPECT_EQ(coded.status, Status::kOk);
  Bytes target(bytes);
  EXPECT_EQ(decode_into(coded.form, coded.payload, target), Status::kOk);
  return {target.data(), target.data() + bytes};
}

// What the header of an only span says.
std::uint64_t number_of_elements(const Coded& coded) {
  std::uint64_t elements = 0;
  std::memcpy(&elements, &coded.payload[16], sizeof elements);
  return elements;
}

Bytes gaussian(ElementType type, std::size_t elements, std::uint64_t stream = 0) {
  std::mt19937_64 random(seed() + stream);
  std::normal_distribution<double> normal;
  Bytes data(elements * element_size(type));
  for (std::size_t e = 0; e < elements; ++e) set_value(type, data.data(), e, normal(random));
  return data;
}

void scale_line(ElementType type, Bytes& data, std::size_t length, bool columns, std::size_t line,
                double factor) {
  const std::size_t elements = data.size() / element_size(type);
  for (std::size_t e = 0; e < elements; ++e)
    if ((columns ? e % length : e / length) == line)
      set_value(type, data.data(), e, factor * value_at(type, data.data(), e));
}

// The largest error there may be in a group: a step, and what rounding to the type adds.
double step_of_group(ElementType type, const unsigned char* span, std::size_t elements,
                     std::size_t group, unsigned bits) {
  double low = value_at(type, span, group * 256), high = low;
  for (std::size_t e = group * 256; e < std::min(elements, (group + 1) * 256); ++e) {
    low = std::min(low, value_at(type, span, e));
    high = std::max(high, value_at(type, span, e));
  }
  const double levels = (1u << bits) - 1 - (low == 0 && bits > 1 ? 1 : 0);
  return (high - low) / levels * (type == ElementType::kFloat32 ? 1.00001 : 1.04);
}

TEST(BlockPayload, RestoresWhatTheDocumentSays) {
  unsigned by_reference = 0, exact = 0;
  for (const golden::BlockCase& input : golden::block_cases()) {
    const golden::BlockRun run = golden::library_run(input);
    if (run.payload.empty()) continue;
    ASSERT_EQ(run.restored.size(), input.source.size()) << input.name;
    if (input.spec.kept == Kept::kValues &&
        input.spec.bits == 0) {  // what the ranges hold, and zeros elsewhere
      Buffer expected(input.source.size());
      for (const ByteRange& range : input.ranges)
        std::copy(input.source.begin() + long(range.begin), input.source.begin() + long(range.end),
                  expected.begin() + long(range.begin));
      EXPECT_TRUE(run.restored == expected) << input.name;
      ++exact;
      if (is_floating(input.spec.type) && input.copy_raw) continue;  // in frames
    }
    EXPECT_TRUE(run.restored == reference_block(run.payload, input.source.size(), input.copy_raw))
        << input.name;
    ++by_reference;
  }
  EXPECT_GE(by_reference, 35u);
  EXPECT_GE(exact, 9u);
}

TEST(BlockPayload, SeveralSpansAreRestoredWithinAStepAndGapsAsZeros) {
  for (const ElementType type : kFloatTypes) {
    const std::size_t size = element_size(type), elements = 30000;
    const Bytes data = gaussian(type, elements);
    const Ranges ranges{{0, 300 * size}, {301 * size, 302 * size}, {9000 * size, 29998 * size}};
    const Coded coded = encoded(data, ranges, {type, 4});
    EXPECT_EQ(coded.form.shape, BlockShape::kTable);
    EXPECT_EQ(coded.form.spans, 3u);
    EXPECT_EQ(coded.form.elements, 300u + 1 + 20998);
    const Buffer back = restored(coded, data.size());
    EXPECT_TRUE(back == reference_block(coded.payload, data.size(), false));
    std::size_t from = 0;
    for (const ByteRange& range : ranges) {
      for (; from < range.begin; ++from) ASSERT_EQ(back[from], 0);
      const std::size_t count = (range.end - range.begin) / size;
      const unsigned char* const span = data.data() + range.begin;
      for (std::size_t e = 0; e < count; ++e)
        ASSERT_LE(std::fabs(value_at(type, back.data() + range.begin, e) - value_at(type, span, e)),
                  step_of_group(type, span, count, e / 256, 4) + 1e-6);
      from = range.end;
    }
    for (; from < back.size(); ++from) ASSERT_EQ(back[from], 0);
  }
}

TEST(BlockPayload, SpansOfEqualValuesHaveNoiseOfTheirOwn) {
  const Bytes half = gaussian(ElementType::kFloat32, 8192);
  Bytes data(2 * half.size() + 4);
  std::memcpy(data.data(), half.data(), half.size());
  std::memcpy(data.data() + half.size() + 4, half.data(), half.size());
  const Coded coded =
      encoded(data, {{0, half.size()}, {half.size() + 4, data.size()}}, {ElementType::kFloat32, 4});
  const Buffer back = restored(coded, data.size());
  std::size_t same = 0;
  for (std::size_t e = 0; e < 8192; ++e)
    same += std::memcmp(&back[4 * e], &back[half.size() + 4 + 4 * e], 4) == 0 ? 1 : 0;
  EXPECT_LT(same, 200u);
}

TEST(BlockPayload, FlatAndZeroLinesComeBackBitForBit) {
  for (const ElementType type : kFloatTypes) {
    for (const bool columns : {false, true}) {
      const std::size_t length = columns ? 48 : 300, rows = columns ? 500 : 60;
      Bytes data = gaussian(type, rows * length);
      for (const std::size_t line : {3, 4, 17}) scale_line(type, data, length, columns, line, 1e-3);
      scale_line(type, data, length, columns, 30, 0);
      const Coded coded =
          encoded(data, {},
                  {.type = type,
                   .bits = 4,
                   .lines = {columns ? Look::kColumns : Look::kRows, std::uint32_t(length)}});
      EXPECT_EQ(coded.form.shape, BlockShape::kSingle);
      EXPECT_NE(coded.form.patch_bytes, 0u);
      const Buffer back = restored(coded, data.size());
      EXPECT_TRUE(back == reference_block(coded.payload, data.size(), false));
      std::size_t others = 0;
      for (std::size_t e = 0; e < rows * length; ++e) {
        const std::size_t line = columns ? e % length : e / length;
        const double x = value_at(type, data.data(), e), y = value_at(type, back.data(), e);
        if (line == 3 || line == 4 || line == 17 || line == 30) {
          ASSERT_EQ(x, y) << name_of(type) << " " << columns << " " << e;
        } else {
          others += x != y ? 1 : 0;
        }
      }
      EXPECT_GT(others, rows * length / 2);
    }
  }
}

TEST(BlockPayload, ALineIsExactInTheMiddleOfABlockToo) {
  const ElementType type = ElementType::kFloat32;
  Bytes data = gaussian(type, 100 * 50);
  scale_line(type, data, 50, false, 20, 1e-3);
  const Coded coded =
      encoded(data, {{50 * 4, 99 * 50 * 4}}, {.type = type, .bits = 3, .lines = {Look::kRows, 50}});
  EXPECT_EQ(coded.form.shape, BlockShape::kTable);
  const Buffer back = restored(coded, data.size());
  EXPECT_EQ(std::memcmp(&back[20 * 200], data.data() + 20 * 200, 200), 0);
  std::size_t others = 0;  // at 3 bits a row may be flat by chance
  for (std::size_t row = 1; row < 99; ++row)
    others += std::memcmp(&back[row * 200], data.data() + row * 200, 200) != 0 ? 1 : 0;
  EXPECT_GT(others, 50u);
  EXPECT_TRUE(back == reference_block(coded.payload, data.size(), false));
}

TEST(BlockPayload, TwoValuedFloatsTakeABitAndComeBackExact) {
  for (const ElementType type : kFloatTypes) {
    Bytes data(20000 * element_size(type));
    for (std::size_t e = 0; e < 20000; ++e)
      set_value(type, data.data(), e, e * e % 7 < 3 ? 0.0 : 1.25);
    const Coded coded = encoded(data, {}, {type, 0});
    EXPECT_LE(coded.payload.size(), 64 + 20000 / 8 + 79 * 8 + 128u);
    EXPECT_TRUE(restored(coded, data.size()) == Buffer(data.data(), data.data() + data.size()));
    EXPECT_EQ(coded.statistics.two_valued_groups, 79u);
  }
}

// Groups of 256 numbers from 0 to 1, with one element of each group g at outlier(g).
template <class Outlier>
Bytes with_outliers(ElementType type, std::size_t groups, const Outlier& outlier) {
  std::mt19937_64 random(seed());
  std::uniform_real_distribution<double> uniform;
  Bytes data(groups * 256 * element_size(type));
  for (std::size_t e = 0; e < groups * 256; ++e) set_value(type, data.data(), e, uniform(random));
  for (std::size_t g = 0; g < groups; ++g)
    if (const double x = outlier(g); x != 0) set_value(type, data.data(), g * 256 + g % 256, x);
  return data;
}

bool same_group(const Bytes& data, const Buffer& back, std::size_t group, std::size_t size) {
  return std::memcmp(data.data() + group * 256 * size, &back[group * 256 * size], 256 * size) == 0;
}

double bound_of(Steps steps) { return steps == Steps::kExponent ? 0.125 : 0.5; }

// Steps of 15 levels at 4 bits, of 255 at 8: a range of 1.01 times as many bounds is too wide.
TEST(BlockPayload, AGroupWithTooWideAStepIsExactAndNoOther) {
  for (const ElementType type : kFloatTypes) {
    for (const Steps steps : {Steps::kExponent, Steps::kCurved}) {
      for (const unsigned bits : {4u, 8u}) {
        const double levels = bits == 4 ? 15 : 255, widest = levels * bound_of(steps);
        const auto outlier = [&](std::size_t g) {
          return g == 77 ? -1.04 * widest : g == 133 ? 1 - 0.9 * widest : 0;
        };
        const Bytes data = with_outliers(type, 200, outlier);
        const BlockSpec spec{.type = type, .bits = std::uint8_t(bits), .steps = steps};
        const Coded coded = encoded(data, {}, spec);
        EXPECT_EQ(coded.form.bits, bits);
        EXPECT_EQ(coded.statistics.escaped_groups, 1u);
        const Buffer back = restored(coded, data.size());
        EXPECT_TRUE(back == reference_block(coded.payload, data.size(), false));
        for (std::size_t g = 0; g < 200; ++g)
          ASSERT_EQ(same_group(data, back, g, element_size(type)), g == 77) << g;
        const Coded any = encoded(data, {}, {type, std::uint8_t(bits)});
        EXPECT_EQ(any.statistics.escaped_groups, 0u);
      }
    }
  }
}

// One element of -1e4 beside 2^20 normal values, which a mean over all of them does not show.
TEST(BlockPayload, OneMaskedLogitAmongMillionsMakesItsOwnGroupExact) {
  const ElementType type = ElementType::kFloat32;
  Bytes data = gaussian(type, std::size_t{1} << 20);
  set_value(type, data.data(), 700'001, -1e4);
  const Coded coded = encoded(data, {}, {.type = type, .bits = 8, .steps = Steps::kExponent});
  const Buffer back = restored(coded, data.size());
  EXPECT_EQ(coded.statistics.escaped_groups, 1u);
  double worst = 0;
  for (std::size_t e = 0; e < (std::size_t{1} << 20); ++e)
    worst = std::max(worst,
                     std::fabs(value_at(type, &back[4 * e], 0) - value_at(type, data.data(), e)));
  EXPECT_LE(worst, 0.125);
  EXPECT_TRUE(same_group(data, back, 700'001 / 256, 4));
}

// With too wide a step at 4 bits in a share of the groups, and at 8 bits in another.
TEST(BlockPayload, OfManyTooWideGroupsTheShorterFormIsTakenAndNoneIsWide) {
  for (const Steps steps : {Steps::kExponent, Steps::kCurved}) {
    const double at4 = 15 * bound_of(steps), at8 = 255 * bound_of(steps);
    struct Case {
      std::size_t wide4, wide8;  // of 256 groups
      unsigned bits;             // 0: held
    };
    for (const Case& c :
         {Case{0, 0, 4}, Case{4, 0, 4}, Case{5, 0, 4}, Case{24, 0, 4}, Case{40, 0, 8},
          Case{256, 0, 8}, Case{250, 6, 8}, Case{190, 60, 8}, Case{180, 70, 0}, Case{0, 256, 0}}) {
      const ElementType type = ElementType::kFloat32;
      const Bytes data = with_outliers(type, 256, [&](std::size_t g) {
        const std::size_t place = g * 37 % 256;
        return place < c.wide8 ? -1.1 * at8 : place < c.wide8 + c.wide4 ? -1.1 * at4 : 0;
      });
      const Coded coded = encoded(data, {}, {.type = type, .bits = 4, .steps = steps});
      if (c.bits == 0) {
        EXPECT_NE(coded.status, Status::kOk);
        continue;
      }
      ASSERT_EQ(coded.status, Status::kOk) << c.wide4 << " " << c.wide8;
      EXPECT_EQ(coded.form.bits, c.bits) << c.wide4 << " " << c.wide8;
      EXPECT_EQ(coded.statistics.escaped_groups, c.bits == 4 ? c.wide4 : c.wide8);
      const Buffer back = restored(coded, data.size());
      for (std::size_t e = 0; e < 256 * 256; ++e)
        ASSERT_LE(std::fabs(value_at(type, back.data(), e) - value_at(type, data.data(), e)),
                  bound_of(steps));
    }
  }
}

TEST(BlockPayload, AQuickPlanForNarrowStepsTakesRoomForA64thOfTheGroupsMore) {
  const Bytes data = gaussian(ElementType::kFloat32, 100'000);  // 391 groups
  const ByteRange all{0, data.size()};
  const BlockSource source{data.data(), data.size(), &all, 1};
  const BlockPlan any = plan_block(source, {ElementType::kFloat32, 4}, false);
  for (const Steps steps : {Steps::kCurved, Steps::kExponent})
    EXPECT_EQ(
        plan_block(source, {.type = ElementType::kFloat32, .bits = 4, .steps = steps}, false).room,
        any.room + 6 * 1024);
}

TEST(BlockPayload, RotatedGroupsAreJudgedByTheStepTheyAreCodedWith) {
  for (const Transform transform : {Transform::kHadamard, Transform::kHadamardScaled}) {
    for (const unsigned bits : {1u, 2u, 4u}) {
      const ElementType type = ElementType::kFloat32;
      Bytes data = gaussian(type, 256 * 128);
      // Deviations of 0.01, but for one group of deviation 4.
      for (std::size_t e = 0; e < 256 * 128; ++e)
        set_value(type, data.data(), e,
                  (e / 256 == 50 ? 4 : 0.01) * value_at(type, data.data(), e));
      const Coded coded = encoded(data, {},
                                  {.type = type,
                                   .bits = std::uint8_t(bits),
                                   .steps = Steps::kCurved,
                                   .transform = transform});
      const Buffer back = restored(coded, data.size());
      EXPECT_EQ(coded.form.bits, bits);
      for (std::size_t g = 0; g < 128; ++g) ASSERT_EQ(same_group(data, back, g, 4), g == 50) << g;
    }
  }
}

TEST(BlockPayload, InPlaceGivesTheSamePayloadAndForm) {
  for (const ElementType type : kFloatTypes) {
    for (const Transform transform : {Transform::kNone, Transform::kHadamard}) {
      const Bytes data = gaussian(type, 30001);
      const BlockSpec spec{.type = type, .bits = 4, .transform = transform};
      const Coded coded = encoded(data, {}, spec);
      Bytes buffer(data.size());
      std::memcpy(buffer.data(), data.data(), data.size());
      const ByteRange all{0, data.size()};
      const BlockPlan plan = plan_block({buffer.data(), buffer.size(), &all, 1}, spec, false);
      EXPECT_TRUE(plan.in_place);
      const BlockEncodeResult result =
          encode_block_in_place(buffer.data(), buffer.size(), plan, kNonce, serial_executor());
      ASSERT_EQ(result.status, Status::kOk);
      EXPECT_TRUE(coded.payload == Buffer(buffer.data(), buffer.data() + result.payload_bytes));
      EXPECT_EQ(result.form, coded.form);
    }
  }
}

TEST(BlockPayload, InPlaceTooManyWideGroupsLeaveTheSourceAsItWas) {
  const ElementType type = ElementType::kFloat32;
  Bytes data = with_outliers(type, 200, [](std::size_t g) { return g % 20 == 0 ? -100.0 : 0; });
  const Buffer before(data.data(), data.data() + data.size());
  const ByteRange all{0, data.size()};
  const BlockSpec spec{.type = type, .bits = 8, .steps = Steps::kExponent};
  const BlockPlan plan = plan_block({data.data(), data.size(), &all, 1}, spec, false);
  EXPECT_TRUE(plan.in_place);
  EXPECT_EQ(encode_block_in_place(data.data(), data.size(), plan, kNonce, serial_executor()).status,
            Status::kTooManyEscapes);
  EXPECT_TRUE(before == Buffer(data.data(), data.data() + data.size()));
}

TEST(BlockPayload, InPlaceIsNotTriedWhereItCouldNotBeTakenBack) {
  const ElementType type = ElementType::kFloat32;
  Bytes data = gaussian(type, 300 * 40);
  scale_line(type, data, 300, false, 7, 0);
  const Ranges all{{0, data.size()}}, two{{0, 8000}, {8004, data.size()}};
  const auto plan = [&](const Ranges& ranges, const BlockSpec& spec) {
    return plan_block({data.data(), data.size(), ranges.data(), ranges.size()}, spec, false);
  };
  for (const BlockPlan& none :
       {plan(two, {type, 4}), plan(all, {.type = type, .bits = 8, .near_zero = true}),
        plan(all, {.type = type, .bits = 4, .lines = {Look::kRows, 300}}), plan(all, {type, 0})}) {
    EXPECT_FALSE(none.in_place);
    const Buffer before(data.data(), data.data() + data.size());
    EXPECT_EQ(
        encode_block_in_place(data.data(), data.size(), none, kNonce, serial_executor()).status,
        Status::kNoRoom);
    EXPECT_TRUE(before == Buffer(data.data(), data.data() + data.size()));
  }
}

TEST(BlockPayload, FewElementsAreRepeatedAndCutAgain) {
  for (const ElementType type : kFloatTypes) {
    for (const std::size_t elements : {1u, 2u, 77u, 255u, 256u, 1000u, 1023u, 1024u}) {
      const Bytes data = gaussian(type, elements, elements);
      const Coded coded = encoded(data, {}, {type, 4}, true);
      const Buffer back = restored(coded, data.size());
      EXPECT_TRUE(back == reference_block(coded.payload, data.size(), true)) << elements;
      EXPECT_EQ(coded.form.elements, elements);
      EXPECT_EQ(number_of_elements(coded), elements < 1024 ? 2048u : elements);
    }
  }
}

TEST(BlockPayload, ATransformIsInTheForm) {
  const Bytes data = gaussian(ElementType::kFloat32, 5000);
  for (const auto& [asked, bits, got] :
       {std::tuple{Transform::kHadamard, 4, Transform::kHadamard},
        std::tuple{Transform::kHadamardScaled, 2, Transform::kHadamardScaled},
        std::tuple{Transform::kHadamardScaled, 4, Transform::kHadamard}}) {
    const BlockSpec spec{
        .type = ElementType::kFloat32, .bits = std::uint8_t(bits), .transform = asked};
    const Coded coded = encoded(data, {}, spec);
    EXPECT_EQ(coded.form.transform, got);
    const auto span = encode_span(data.data(), 5000, ElementType::kFloat32, unsigned(bits), kNonce,
                                  serial_executor(), false, asked);
    EXPECT_TRUE(coded.payload == span.payload);
    EXPECT_TRUE(restored(coded, data.size()) == decode_span(span.payload, data.size()));
  }
}

TEST(BlockPayload, WhatIsNotWorthItIsKept) {
  const ElementType type = ElementType::kFloat32;
  const Bytes data = gaussian(type, 4000);
  const auto room = [&](Ranges ranges, const BlockSpec& spec, bool copy_raw = false) {
    return plan_block({data.data(), data.size(), ranges.data(), ranges.size()}, spec, copy_raw)
        .room;
  };
  const Ranges all{{0, data.size()}};
  EXPECT_NE(room(all, {type, 4}), 0u);
  EXPECT_EQ(room(all, {type, 0}), 0u);
  EXPECT_EQ(room(all, {ElementType::kBytes, 0}), 0u);
  EXPECT_NE(room(all, {ElementType::kBytes, 0}, true), 0u);
  // Ranges that are not whole elements, overlap, leave the block.
  EXPECT_EQ(room({{0, 4001}}, {type, 4}), 0u);
  EXPECT_EQ(room({{0, 4000}, {3996, 8000}}, {type, 4}), 0u);
  EXPECT_EQ(room({{8000, 4000}}, {type, 4}), 0u);
  EXPECT_EQ(room({{0, data.size() + 4}}, {type, 4}), 0u);
  // A table larger than what it saves.
  Ranges many;
  for (std::size_t at = 0; at < data.size(); at += 64) many.push_back({at, at + 4});
  EXPECT_EQ(room(many, {type, 4}), 0u);
}

TEST(BlockPayload, PaddingIsZeroWhateverWasThere) {
  const ElementType type = ElementType::kBFloat16;
  const Bytes data = gaussian(type, 10000);
  const Ranges ranges{{0, 6002}, {6004, 6006}, {7000, 19998}};
  const Coded coded = encoded(data, ranges, {type, 4});
  std::vector<bool> told(coded.payload.size());
  std::fill_n(told.begin(), 16 + 32 * 3, true);
  for (std::size_t i = 0; i < 3; ++i) {
    std::uint64_t entry[4];
    std::memcpy(entry, &coded.payload[16 + 32 * i], 32);
    std::fill_n(told.begin() + long(entry[2]), entry[3], true);
  }
  std::size_t padding = 0;
  for (std::size_t i = 0; i < told.size(); ++i) {
    if (told[i]) continue;
    EXPECT_EQ(coded.payload[i], 0) << i;
    ++padding;
  }
  EXPECT_GT(padding, 0u);
}

TEST(BlockPayload, NothingIsWrittenBeyondTheCapacity) {
  const ElementType type = ElementType::kBool;
  Bytes data(20000);
  for (std::size_t e = 0; e < data.size(); ++e) data.data()[e] = e * e % 5 == 1;
  const Ranges ranges{{0, 9001}, {9002, 9004}, {10000, 20000}};
  const BlockSource source{data.data(), data.size(), ranges.data(), ranges.size()};
  const BlockPlan plan = plan_block(source, {type, 0}, false);
  const Coded whole = encode_with(source, plan, plan.room);
  ASSERT_EQ(whole.status, Status::kOk);
  for (std::size_t capacity = 0; capacity <= whole.payload.size(); ++capacity) {
    const Coded coded = encode_with(source, plan, capacity);
    EXPECT_EQ(coded.status, capacity < whole.payload.size() ? Status::kNoRoom : Status::kOk)
        << capacity;
    if (coded.status == Status::kOk) {
      EXPECT_TRUE(coded.payload == whole.payload);
    }
  }
}

// ---- damage ----

std::vector<std::pair<Coded, std::size_t>> samples() {
  std::vector<std::pair<Coded, std::size_t>> all;
  const auto add = [&](const Bytes& data, Ranges ranges, BlockSpec spec, bool copy_raw = false) {
    all.emplace_back(encoded(data, std::move(ranges), spec, copy_raw), data.size());
    EXPECT_EQ(all.back().first.status, Status::kOk);
  };
  const ElementType type = ElementType::kBFloat16;
  const Bytes data = gaussian(type, 3000);
  add(data, {}, {type, 4});
  add(data, {{0, 2000}, {2002, 2004}, {2500, 5998}}, {type, 4});
  Bytes lines = gaussian(type, 3000);
  scale_line(type, lines, 30, false, 5, 1e-4);
  scale_line(type, lines, 30, false, 9, 1e-3);
  add(lines, {}, {.type = type, .bits = 4, .lines = {Look::kRows, 30}});
  add(lines, {{60, 5940}}, {.type = type, .bits = 4, .lines = {Look::kRows, 30}});
  add(gaussian(type, 50), {}, {type, 4}, true);
  Bytes negative = gaussian(type, 3000);
  for (std::size_t e = 0; e < 3000; ++e)
    set_value(type, negative.data(), e, value_at(type, negative.data(), e) - 3);
  scale_line(type, negative, 30, false, 5, 0);
  add(negative, {},
      {.type = type,
       .bits = 4,
       .near_zero = true,
       .lines = {Look::kRows, 30},
       .sides = {Sides::Kind::kThree, false, -4, -3}});
  Bytes flags(3000);
  for (std::size_t e = 0; e < flags.size(); ++e) flags.data()[e] = e % 3 == 0;
  add(flags, {{1, 2000}, {2100, 2999}}, {ElementType::kBool, 0});
  return all;
}

// ---- sides, and nothing ----

constexpr Sides kPositive{Sides::Kind::kOpen, true, 0, INFINITY};
constexpr Sides kBetween{Sides::Kind::kOpen, false, -0.5f, 1};
constexpr Sides kThree{Sides::Kind::kThree, false, 0, 0};

unsigned side_by_definition(const Sides& sides, double x) {
  if (sides.kind == Sides::Kind::kThree) return x < sides.low ? 0 : x > sides.high ? 2 : 1;
  return x > sides.low && x < sides.high ? 1 : 0;
}
void expect_sides(ElementType type, const Sides& sides, const unsigned char* before,
                  const unsigned char* after, std::size_t elements, const std::string& what) {
  for (std::size_t e = 0; e < elements; ++e)
    ASSERT_EQ(side_by_definition(sides, value_at(type, before, e)),
              side_by_definition(sides, value_at(type, after, e)))
        << what << ", element " << e << ": " << value_at(type, before, e) << " -> "
        << value_at(type, after, e);
}

TEST(BlockSides, TakeABitOrTwoAndComeBackInEverySpan) {
  for (const ElementType type : kFloatTypes) {
    const std::size_t size = element_size(type), elements = 30000;
    const Bytes data = gaussian(type, elements);
    for (const Sides& sides : {kPositive, kBetween, kThree}) {
      const BlockSpec spec{.type = type, .bits = 4, .kept = Kept::kSides, .sides = sides};
      const Coded whole = encoded(data, {}, spec);
      EXPECT_EQ(whole.form.only_sides, 1u);
      EXPECT_EQ(whole.payload.size(), 64u + elements * whole.form.bits / 8);
      const Buffer back = restored(whole, data.size());
      expect_sides(type, sides, data.data(), back.data(), elements, name_of(type));
      const Ranges ranges{{0, 300 * size}, {301 * size, 302 * size}, {9000 * size, 29998 * size}};
      const Coded table = encoded(data, ranges, spec);
      const Buffer parts = restored(table, data.size());
      EXPECT_TRUE(parts == reference_block(table.payload, data.size(), false));
      for (const ByteRange& range : ranges)
        EXPECT_EQ(std::memcmp(&parts[range.begin], &back[range.begin], range.end - range.begin), 0);
      for (std::size_t at = 302 * size; at < 9000 * size; ++at) ASSERT_EQ(parts[at], 0);
    }
  }
}

TEST(BlockSides, AnyNumberOfElementsWithCopyRaw) {
  for (const ElementType type : kFloatTypes) {
    for (const std::size_t elements : {1u, 2u, 9u, 77u, 1000u}) {
      const Bytes data = gaussian(type, elements, elements);
      for (const Sides& sides : {kPositive, kThree}) {
        const Coded only =
            encoded(data, {}, {.type = type, .kept = Kept::kSides, .sides = sides}, true);
        expect_sides(type, sides, data.data(), restored(only, data.size()).data(), elements,
                     "only");
        for (const std::uint8_t bits : {1, 2, 4, 8}) {
          const Coded both = encoded(data, {}, {.type = type, .bits = bits, .sides = sides}, true);
          expect_sides(type, sides, data.data(), restored(both, data.size()).data(), elements,
                       "beside values");
        }
      }
    }
  }
}

TEST(BlockSides, ValuesKeepTheirSideAtEveryWidthAndNoErrorGrows) {
  for (const ElementType type : kFloatTypes) {
    const std::size_t size = element_size(type), elements = 20001;
    for (const bool relu : {false, true}) {
      Bytes data = gaussian(type, elements);
      if (relu)
        for (std::size_t e = 0; e < elements; ++e)
          set_value(type, data.data(), e, std::max(0.0, value_at(type, data.data(), e)));
      for (const Sides& sides : {kPositive, kBetween, kThree}) {
        for (const std::uint8_t bits : {1, 2, 3, 4, 6, 8}) {
          for (const Transform transform : {Transform::kNone, Transform::kHadamard}) {
            const std::string what = std::string(name_of(type)) + " " + std::to_string(bits);
            BlockSpec spec{.type = type, .bits = bits, .transform = transform};
            const Coded plain = encoded(data, {}, spec);
            spec.sides = sides;
            const Coded coded = encoded(data, {}, spec);
            const Buffer before = restored(plain, data.size());
            const Buffer back = restored(coded, data.size());
            expect_sides(type, sides, data.data(), back.data(), elements, what);
            for (std::size_t e = 0; e < elements; ++e)
              ASSERT_LE(
                  std::fabs(value_at(type, back.data(), e) - value_at(type, data.data(), e)),
                  std::fabs(value_at(type, before.data(), e) - value_at(type, data.data(), e)))
                  << what;
            // A result of ReLU needs no sides from two bits on: the codes are all there is.
            const bool by_itself =
                relu && bits >= 2 && transform == Transform::kNone && sides != kBetween;
            EXPECT_EQ(coded.form.side_part, by_itself ? 0u : 1u) << what;
            EXPECT_EQ(coded.payload == plain.payload, by_itself) << what;
            EXPECT_TRUE(transform != Transform::kNone ||
                        back == reference_block(coded.payload, data.size(), false))
                << what;
          }
        }
      }
    }
    // Spans that need sides beside such that do not.
    Bytes data = gaussian(type, elements);
    for (std::size_t e = 0; e < 9000; ++e)
      set_value(type, data.data(), e, std::fabs(value_at(type, data.data(), e)) + 1);
    const Ranges ranges{{0, 8000 * size}, {9000 * size, elements * size}};
    const Coded coded = encoded(data, ranges, {.type = type, .bits = 4, .sides = kPositive});
    EXPECT_EQ(coded.form.side_part, 1u);
    const Buffer back = restored(coded, data.size());
    EXPECT_TRUE(back == reference_block(coded.payload, data.size(), false));
    for (const ByteRange& range : ranges)
      expect_sides(type, kPositive, data.data() + range.begin, &back[range.begin],
                   (range.end - range.begin) / size, "table");
  }
}

TEST(BlockSides, StandBehindExactLinesAndBesideFunctions) {
  for (const ElementType type : kFloatTypes) {
    const std::size_t length = 300, rows = 60;
    Bytes data = gaussian(type, rows * length);
    for (const std::size_t line : {3, 17}) scale_line(type, data, length, false, line, 1e-3);
    const Coded coded = encoded(
        data, {},
        {.type = type, .bits = 4, .lines = {Look::kRows, std::uint32_t(length)}, .sides = kThree});
    EXPECT_NE(coded.form.patch_bytes, 0u);
    EXPECT_EQ(coded.form.side_part, 1u);
    const Buffer back = restored(coded, data.size());
    EXPECT_TRUE(back == reference_block(coded.payload, data.size(), false));
    expect_sides(type, kThree, data.data(), back.data(), rows * length, name_of(type));
    Bytes result(data.size()), expected(data.size());
    ASSERT_EQ(
        decode_block_function(coded.form, coded.payload.data(), coded.payload.size(), result.data(),
                              result.size(), {Function::kGelu, type}, serial_executor()),
        Status::kOk);
    std::memcpy(expected.data(), back.data(), back.size());
    apply_function(expected.data(), rows * length, type, Function::kGelu, serial_executor());
    EXPECT_EQ(std::memcmp(result.data(), expected.data(), result.size()), 0);
    std::memcpy(expected.data(), data.data(), data.size());
    apply_function(expected.data(), rows * length, type, Function::kGelu, serial_executor());
    EXPECT_TRUE(may_be_result(coded.form, coded.payload.data(), coded.payload.size(),
                              {Function::kGelu, type}, expected.data(), expected.size()));
    EXPECT_FALSE(may_be_result(coded.form, coded.payload.data(), coded.payload.size(),
                               {Function::kGelu, type}, data.data(), data.size()));
    // No function of what is only a side.
    const Coded only = encoded(data, {}, {.type = type, .kept = Kept::kSides, .sides = kThree});
    EXPECT_EQ(
        decode_block_function(only.form, only.payload.data(), only.payload.size(), result.data(),
                              result.size(), {Function::kGelu, type}, serial_executor()),
        Status::kCorrupt);
    EXPECT_FALSE(may_be_result(only.form, only.payload.data(), only.payload.size(),
                               {Function::kGelu, type}, expected.data(), expected.size()));
  }
}

// Flat lines that only the steps of the groups show, and one group whose step is too wide.
TEST(BlockSides, StandBesideLinesAndGroupsThatEncodingFoundToBeExact) {
  for (const ElementType type : kFloatTypes) {
    const std::size_t length = 300, rows = 400, size = element_size(type);
    Bytes data = gaussian(type, rows * length);
    for (const std::size_t line : {3, 170}) scale_line(type, data, length, false, line, 1e-3);
    set_value(type, data.data(), 40'000, -100);
    const BlockSpec spec{.type = type,
                         .bits = 4,
                         .steps = Steps::kCurved,
                         .lines = {Look::kRows, std::uint32_t(length)},
                         .sides = kBetween};
    const ByteRange all{0, data.size()};
    const BlockSource source{data.data(), data.size(), &all, 1};
    const BlockPlan quick = plan_block(source, spec, false);
    EXPECT_EQ(encode_with(source, quick, quick.room).status, Status::kFlatLines);
    const Coded coded = encoded(data, {}, spec);
    EXPECT_NE(coded.form.patch_bytes, 0u);
    EXPECT_EQ(coded.form.side_part, 1u);
    EXPECT_GE(coded.statistics.escaped_groups, 1u);
    const Buffer back = restored(coded, data.size());
    EXPECT_TRUE(back == reference_block(coded.payload, data.size(), false));
    expect_sides(type, kBetween, data.data(), back.data(), rows * length, name_of(type));
    for (const std::size_t line : {3, 170})
      EXPECT_EQ(std::memcmp(&back[line * length * size], data.data() + line * length * size,
                            length * size),
                0);
    EXPECT_TRUE(same_group(data, back, 40'000 / 256, size));
    for (std::size_t e = 0; e < rows * length; ++e)
      ASSERT_LE(std::fabs(value_at(type, back.data(), e) - value_at(type, data.data(), e)), 0.5);
  }
}

TEST(BlockSides, ElementsNearZeroStayExactBesideThem) {
  for (const ElementType type : kFloatTypes) {
    const std::size_t size = element_size(type), elements = 30000;
    std::mt19937_64 random(seed());
    std::uniform_real_distribution<double> uniform(-20, 0.25);
    Bytes data(elements * size);
    for (std::size_t e = 0; e < elements; ++e) set_value(type, data.data(), e, uniform(random));
    const Sides sides{Sides::Kind::kThree, false, -4, -0.5f};
    for (const std::uint8_t bits : {1, 4, 8}) {
      for (const Transform transform : {Transform::kNone, Transform::kHadamard}) {
        const BlockSpec spec{
            .type = type, .bits = bits, .near_zero = true, .transform = transform, .sides = sides};
        const Ranges parts{{0, 9000 * size}, {9000 * size, elements * size}};
        for (const Ranges& ranges : {Ranges{}, parts}) {
          const Coded coded = encoded(data, ranges, spec);
          EXPECT_EQ(coded.form.side_part, 1u);
          const Buffer back = restored(coded, data.size());
          EXPECT_TRUE(transform != Transform::kNone ||
                      back == reference_block(coded.payload, data.size(), false));
          expect_sides(type, sides, data.data(), back.data(), elements, name_of(type));
          std::size_t others = 0;
          for (std::size_t e = 0; e < elements; ++e) {
            const double x = value_at(type, data.data(), e), y = value_at(type, back.data(), e);
            if (x > -1) {
              ASSERT_EQ(x, y) << e;
            } else {
              others += x != y ? 1 : 0;
            }
          }
          EXPECT_GT(others, elements / 8);
        }
      }
    }
  }
}

TEST(BlockSides, WithoutRoomForThemTheBlockIsRefused) {
  const ElementType type = ElementType::kFloat32;
  Bytes data = gaussian(type, 256 * 64 * 4);
  for (std::size_t e = 0; e < 256 * 64 * 4; ++e)
    set_value(type, data.data(), e, value_at(type, data.data(), e) - 3);
  const Sides sides{Sides::Kind::kThree, false, -4, -3};
  const ByteRange all{0, data.size()};
  const BlockSource source{data.data(), data.size(), &all, 1};
  for (const bool near_zero : {false, true}) {
    const BlockPlan plan =
        plan_block(source, {.type = type, .bits = 4, .near_zero = near_zero, .sides = sides}, false,
                   Effort::kThorough);
    const Coded coded = encode_with(source, plan, plan.room);
    ASSERT_EQ(coded.status, Status::kOk);
    ASSERT_EQ(coded.form.side_part, 1u);
    EXPECT_EQ(encode_with(source, plan, coded.payload.size()).status, Status::kOk);
    EXPECT_EQ(encode_with(source, plan, coded.payload.size() - 1).status, Status::kNoRoom);
  }
}

// Neither steps nor lines of what is not kept are looked at.
TEST(BlockSides, WhereNoValuesAreKeptNoneAreJudged) {
  const ElementType type = ElementType::kFloat32;
  Bytes data = gaussian(type, 300 * 200);
  for (const std::size_t line : {3, 17}) scale_line(type, data, 300, false, line, 0);
  for (std::size_t e = 0; e < 300 * 200; e += 100) set_value(type, data.data(), e, -1e6);
  const ByteRange all{0, data.size()};
  const BlockSource source{data.data(), data.size(), &all, 1};
  for (const Kept kept : {Kept::kSides, Kept::kNothing}) {
    const BlockSpec plain{.type = type, .kept = kept, .sides = kThree};
    for (const Effort effort : {Effort::kQuick, Effort::kThorough}) {
      const BlockPlan plan = plan_block(source,
                                        {.type = type,
                                         .bits = 4,
                                         .kept = kept,
                                         .steps = Steps::kExponent,
                                         .near_zero = true,
                                         .lines = {Look::kRows, 300},
                                         .transform = Transform::kHadamard,
                                         .sides = kThree},
                                        false, effort);
      EXPECT_FALSE(plan.guesses);
      EXPECT_FALSE(plan.checks_lines);
      EXPECT_TRUE(plan.in_place);
      EXPECT_EQ(plan.patch_bytes, 0u);
      const Coded coded = encode_with(source, plan, plan.room);
      EXPECT_EQ(coded.status, Status::kOk);
      EXPECT_TRUE(coded.payload == encoded(data, {}, plain).payload);
      EXPECT_EQ(coded.form, encoded(data, {}, plain).form);
    }
  }
}

TEST(BlockSides, AreLeftOutWhereTheStepsLeaveOnlyAnExactPayload) {
  const ElementType type = ElementType::kFloat32;
  const Bytes data = with_outliers(type, 100, [](std::size_t) { return -1e4; });
  const Coded coded = encoded(
      data, {}, {.type = type, .bits = 4, .steps = Steps::kExponent, .sides = kPositive}, true);
  EXPECT_EQ(coded.form.bits, 0);
  EXPECT_EQ(coded.form.side_part, 0u);
  EXPECT_TRUE(restored(coded, data.size()) == Buffer(data.data(), data.data() + data.size()));
}

TEST(BlockSides, InPlaceGivesTheSameBytesOrLeavesTheSource) {
  const auto in_place = [](const Bytes& data, const BlockSpec& spec, Buffer* payload) {
    Bytes buffer(data.size());
    std::memcpy(buffer.data(), data.data(), data.size());
    const ByteRange all{0, data.size()};
    const BlockPlan plan = plan_block({buffer.data(), buffer.size(), &all, 1}, spec, false);
    EXPECT_TRUE(plan.in_place);
    const BlockEncodeResult result =
        encode_block_in_place(buffer.data(), buffer.size(), plan, kNonce, serial_executor());
    EXPECT_TRUE(result.status == Status::kOk ||
                std::memcmp(buffer.data(), data.data(), data.size()) == 0);
    if (result.status == Status::kOk)
      payload->assign(buffer.data(), buffer.data() + result.payload_bytes);
    return result;
  };
  for (const ElementType type : kFloatTypes) {
    Bytes data = gaussian(type, 20001);
    Buffer payload;
    const BlockSpec only{.type = type, .kept = Kept::kSides, .sides = kThree};
    const BlockSpec values{.type = type, .bits = 4, .sides = kPositive};
    EXPECT_EQ(in_place(data, only, &payload).form, encoded(data, {}, only).form);
    EXPECT_TRUE(payload == encoded(data, {}, only).payload);
    EXPECT_EQ(in_place(data, values, &payload).status, Status::kNoRoom);  // negative ones
    for (std::size_t e = 0; e < 20001; ++e)
      set_value(type, data.data(), e, std::max(0.0, value_at(type, data.data(), e)));
    EXPECT_EQ(in_place(data, values, &payload).form, encoded(data, {}, values).form);
    EXPECT_TRUE(payload == encoded(data, {}, values).payload);
    // A group that is exact for its step keeps its sides by itself too.
    const BlockSpec curved{.type = type, .bits = 4, .steps = Steps::kCurved, .sides = kPositive};
    const double tenth = value_at(type, data.data(), 10);
    set_value(type, data.data(), 10, 100);
    EXPECT_EQ(in_place(data, curved, &payload).statistics.escaped_groups, 1u);
    EXPECT_TRUE(payload == encoded(data, {}, curved).payload);
    set_value(type, data.data(), 10, tenth);
    EXPECT_EQ(in_place(data, {.type = type, .bits = 1, .sides = kPositive}, &payload).status,
              Status::kNoRoom);
    EXPECT_EQ(
        in_place(data,
                 {.type = type, .bits = 4, .transform = Transform::kHadamard, .sides = kPositive},
                 &payload)
            .status,
        Status::kNoRoom);
    const BlockSpec nothing{.type = type, .kept = Kept::kNothing};
    EXPECT_EQ(in_place(data, nothing, &payload).form, encoded(data, {}, nothing).form);
    EXPECT_TRUE(payload == encoded(data, {}, nothing).payload);
  }
}

TEST(BlockSides, WhatCannotBeHeldIsKeptWithoutLoss) {
  const Bytes data = gaussian(ElementType::kBFloat16, 9000);
  const Sides no_value{Sides::Kind::kClosed, false, 0.1f, 1};  // of bfloat16
  for (const BlockSpec& spec :
       {BlockSpec{.type = ElementType::kBFloat16, .kept = Kept::kSides, .sides = no_value},
        BlockSpec{.type = ElementType::kBFloat16, .bits = 4, .sides = no_value},
        BlockSpec{.type = ElementType::kInt32, .kept = Kept::kSides, .sides = kPositive},
        BlockSpec{.type = ElementType::kBFloat16, .kept = Kept::kSides}}) {
    const Coded coded = encoded(data, {}, spec, true);
    EXPECT_EQ(coded.form.only_sides + coded.form.side_part, 0u);
    EXPECT_TRUE(restored(coded, data.size()) == Buffer(data.data(), data.data() + data.size()));
  }
}

TEST(BlockNothing, TakesAHeaderAndComesBackAsZeros) {
  for (const ElementType type : {ElementType::kFloat32, ElementType::kFloat16, ElementType::kBool,
                                 ElementType::kInt64, ElementType::kBytes}) {
    const Bytes data = gaussian(ElementType::kFloat32, 3000);
    for (const Ranges& ranges : {Ranges{}, Ranges{{8, 800}, {1600, 12000}}}) {
      const Coded coded = encoded(data, ranges, {.type = type, .kept = Kept::kNothing});
      EXPECT_EQ(coded.payload.size(), 64u);
      EXPECT_TRUE(restored(coded, data.size()) == Buffer(data.size()));
      EXPECT_EQ(decode_status(coded.form, coded.payload, data.size() - 1), Status::kCorrupt);
    }
  }
  const Bytes few = gaussian(ElementType::kFloat32, 2);
  EXPECT_EQ(encoded(few, {}, {.type = ElementType::kFloat32, .kept = Kept::kNothing}).status,
            Status::kNoRoom);
  EXPECT_TRUE(
      restored(encoded(few, {}, {.type = ElementType::kFloat32, .kept = Kept::kNothing}, true),
               8) == Buffer(8));
}

TEST(BlockDamage, SidesThatAreNotThereOrOfAnotherBlockAreRefused) {
  const Bytes data = gaussian(ElementType::kFloat32, 2000);
  const Coded coded =
      encoded(data, {}, {.type = ElementType::kFloat32, .bits = 4, .sides = kPositive});
  ASSERT_EQ(coded.form.side_part, 1u);
  std::uint64_t codes = 0;
  std::memcpy(&codes, &coded.payload[32], 8);
  const auto status = [&](const Buffer& payload, const BlockForm& form) {
    return decode_status(form, payload, data.size());
  };
  EXPECT_EQ(status(coded.payload, coded.form), Status::kOk);
  BlockForm form = coded.form;
  form.side_part = 0;
  EXPECT_EQ(status(coded.payload, form), Status::kCorrupt);
  EXPECT_EQ(status(Buffer(coded.payload.begin(), coded.payload.begin() + long(codes)), coded.form),
            Status::kCorrupt);
  const std::size_t sides = (codes + 63) / 64 * 64;
  for (const std::size_t at : {6, 7, 8, 16, 24, 32}) {  // kind, type, bits, elements, nonce, bytes
    Buffer payload = coded.payload;
    payload[sides + at] ^= 3;
    EXPECT_EQ(status(payload, coded.form), Status::kCorrupt) << at;
  }
  const Coded only =
      encoded(data, {}, {.type = ElementType::kFloat32, .kept = Kept::kSides, .sides = kPositive});
  form = only.form;
  form.only_sides = 0;
  EXPECT_EQ(status(only.payload, form), Status::kCorrupt);
  form = encoded(data, {}, {ElementType::kFloat32, 1}).form;
  form.only_sides = 1;
  EXPECT_EQ(status(encoded(data, {}, {ElementType::kFloat32, 1}).payload, form), Status::kCorrupt);
}

TEST(BlockDamage, TruncatedAtEveryByteIsRefused) {
  for (const auto& [coded, bytes] : samples())
    for (std::size_t length = 0; length < coded.payload.size(); ++length)
      ASSERT_EQ(decode_status(coded.form,
                              {coded.payload.begin(), coded.payload.begin() + long(length)}, bytes),
                Status::kCorrupt)
          << length;
}

TEST(BlockDamage, EveryByteOfATableCounts) {
  for (const auto& [coded, bytes] : samples()) {
    if (coded.form.shape != BlockShape::kTable) continue;
    for (std::size_t at = 0; at < 16 + 32u * coded.form.spans; ++at) {
      for (const unsigned change : {0x01, 0x02, 0x40, 0x80, 0xFF}) {
        Buffer damaged = coded.payload;
        damaged[at] = static_cast<unsigned char>(damaged[at] ^ change);
        EXPECT_EQ(decode_status(coded.form, damaged, bytes), Status::kCorrupt)
            << at << " " << change;
      }
    }
  }
}

TEST(BlockDamage, AnotherBlocksBytesOrFormAreRefused) {
  for (const auto& [coded, bytes] : samples()) {
    const auto status = [&, &coded = coded, &bytes = bytes](auto change) {
      BlockForm form = coded.form;
      change(form);
      return form == coded.form ? Status::kCorrupt : decode_status(form, coded.payload, bytes);
    };
    const auto refused = [&](auto change) { EXPECT_EQ(status(change), Status::kCorrupt); };
    refused([](BlockForm& f) { f.shape = BlockShape::kNone; });
    refused([](BlockForm& f) {
      f.shape = f.shape == BlockShape::kTable ? BlockShape::kSingle : BlockShape::kTable;
    });
    refused([](BlockForm& f) { f.shape = static_cast<BlockShape>(77); });
    for (int type = 0; type < 256; ++type)
      refused([&](BlockForm& f) { f.type = static_cast<ElementType>(type); });
    for (int bits = 0; bits < 256; ++bits)
      refused([&](BlockForm& f) { f.bits = static_cast<std::uint8_t>(bits); });
    for (const std::uint32_t spans : {0u, 1u, 2u, 3u, 4u, 1u << 20, (1u << 20) + 1, ~0u >> 1})
      refused([&](BlockForm& f) { f.spans = spans & 0x7FFFFFFF; });
    for (const std::uint64_t n : {0ull, 1ull, 2047ull, 2048ull, ~0ull, 1ull << 63})
      refused([&](BlockForm& f) { f.elements = n; });
    refused([](BlockForm& f) { ++f.nonce; });
    for (const std::uint64_t n : {0ull, 1ull, 32ull, 64ull, ~0ull, ~0ull - 63})
      refused([&](BlockForm& f) { f.patch_bytes = n; });
    // A table's block may end in a gap of any size.
    for (const std::size_t other : {std::size_t{0}, bytes / 2, 2 * bytes}) {
      if (coded.form.shape != BlockShape::kTable || other < bytes) {
        EXPECT_EQ(decode_status(coded.form, coded.payload, other), Status::kCorrupt);
      }
    }
  }
}

// A tile's room is that of 2048 floats.
TEST(BlockDamage, ATileOfLongIntegersIsRefused) {
  Header header;
  header.type = static_cast<std::uint8_t>(ElementType::kInt64);
  header.bits = 4;
  header.elements = 2048;
  header.nonce = kNonce;
  header.payload_bytes = sizeof header + 2048 * 8;
  Buffer payload(header.payload_bytes, 0x41);
  std::memcpy(payload.data(), &header, sizeof header);
  BlockForm form;
  form.shape = BlockShape::kSingle;
  form.type = ElementType::kInt64;
  form.bits = 4;
  form.spans = 1;
  form.tiles = 1;
  form.elements = 100;
  form.nonce = kNonce;
  EXPECT_EQ(decode_status(form, payload, 800), Status::kCorrupt);
}

TEST(BlockDamage, MutatedPayloadsNeverReachOutside) {
  std::mt19937_64 random(seed());
  for (const auto& [coded, bytes] : samples()) {
    for (int trial = 0; trial < 3000; ++trial) {
      Buffer damaged = coded.payload;
      for (int changes = 1 + int(random() % 4); changes-- > 0;)
        damaged[random() % 2 ? random() % damaged.size()
                             : random() % std::min<std::size_t>(damaged.size(), 256)] =
            static_cast<unsigned char>(random());
      (void)decode_status(coded.form, damaged, bytes);
    }
  }
}

// ---- functions ----

TEST(BlockFunction, IsThatOfTheRestoredValues) {
  const ElementType type = ElementType::kFloat32;
  Bytes lines = gaussian(type, 3000);
  scale_line(type, lines, 30, false, 5, 1e-4);
  const Bytes few = gaussian(type, 100), data = gaussian(type, 5000);
  for (const Function function : {Function::kGelu, Function::kGeluTanh, Function::kSilu}) {
    // Exact lines, a tile, a table: the function of what decode_block() gives, as it is.
    for (const auto& [coded, bytes] :
         {std::pair{encoded(lines, {}, {.type = type, .bits = 4, .lines = {Look::kRows, 30}}),
                    lines.size()},
          std::pair{encoded(few, {}, {type, 4}, true), few.size()},
          std::pair{encoded(data, {{0, 4000}, {8000, 20000}}, {type, 4}), data.size()}}) {
      const Buffer arguments = restored(coded, bytes);
      Bytes results(bytes);
      ASSERT_EQ(decode_block_function(coded.form, coded.payload.data(), coded.payload.size(),
                                      results.data(), bytes, {function, type}, serial_executor()),
                Status::kOk);
      for (std::size_t e = 0; e < bytes / 4; ++e) {
        const double x = value_at(type, arguments.data(), e);
        const double inner = 0.7978845608028654 * (x + 0.044715 * x * x * x);
        const double expected = function == Function::kSilu ? x / (1 + std::exp(-x))
                                : function == Function::kGelu
                                    ? 0.5 * x * std::erfc(-x / std::sqrt(2.0))
                                    : 0.5 * x * (1 + std::tanh(inner));
        ASSERT_NEAR(value_at(type, results.data(), e), expected, 2e-6 * (1 + std::fabs(x)));
      }
    }
    // One span: as compress::decode_function(), which knows of the noise.
    const Coded coded = encoded(data, {}, {type, 4});
    Bytes results(data.size()), expected(data.size());
    ASSERT_EQ(
        decode_block_function(coded.form, coded.payload.data(), coded.payload.size(),
                              results.data(), data.size(), {function, type}, serial_executor()),
        Status::kOk);
    ASSERT_EQ(decode_function(coded.payload.data(), coded.payload.size(), expected.data(),
                              data.size(), function, serial_executor()),
              Status::kOk);
    EXPECT_EQ(std::memcmp(results.data(), expected.data(), data.size()), 0);
  }
}

TEST(BlockFunction, OfAnotherTypeOrNoneIsRefused) {
  const Bytes data = gaussian(ElementType::kBFloat16, 3000);
  const Coded coded = encoded(data, {}, {ElementType::kBFloat16, 4});
  Bytes results(data.size());
  for (const Recomputed how : {Recomputed{Function::kGelu, ElementType::kFloat16},
                               Recomputed{Function::kNone, ElementType::kBFloat16},
                               Recomputed{Function::kSilu, ElementType::kInt32}}) {
    EXPECT_EQ(decode_block_function(coded.form, coded.payload.data(), coded.payload.size(),
                                    results.data(), results.size(), how, serial_executor()),
              Status::kCorrupt);
    EXPECT_FALSE(may_be_result(coded.form, coded.payload.data(), coded.payload.size(), how,
                               results.data(), results.size()));
  }
}

TEST(BlockFunction, ResultsAreRecognisedBehindExactLinesToo) {
  const ElementType type = ElementType::kFloat32;
  Bytes data = gaussian(type, 300 * 40);
  scale_line(type, data, 300, false, 7, 1e-4);
  Bytes results(data.size());
  std::memcpy(results.data(), data.data(), data.size());
  apply_function(results.data(), 300 * 40, type, Function::kGelu, serial_executor());
  const auto recognised = [&](const Coded& coded, const Bytes& of) {
    return may_be_result(coded.form, coded.payload.data(), coded.payload.size(),
                         {Function::kGelu, type}, of.data(), of.size());
  };
  const Coded plain = encoded(data, {}, {type, 4});
  const Coded patched = encoded(data, {}, {.type = type, .bits = 4, .lines = {Look::kRows, 300}});
  EXPECT_NE(patched.form.patch_bytes, 0u);
  for (const Coded* coded : {&plain, &patched}) {
    EXPECT_TRUE(recognised(*coded, results));
    EXPECT_FALSE(recognised(*coded, data));
  }
  const Coded table = encoded(data, {{0, 4000}, {4004, data.size()}}, {type, 4});
  EXPECT_FALSE(recognised(table, results));
}

// A header that claims more groups than the payload has: their metadata would lie on the page
// behind, which cannot be read.
TEST(BlockFunction, ResultsAreNotComparedWithWhatLiesBeyondThePayload) {
  const ElementType type = ElementType::kFloat32;
  const Bytes data = gaussian(type, 5000);
  Coded coded = encoded(data, {}, {type, 4});
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t pages = (coded.payload.size() + page - 1) / page * page;
  auto* const block = static_cast<unsigned char*>(
      mmap(nullptr, pages + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(block, MAP_FAILED);
  ASSERT_EQ(mprotect(block + pages, page, PROT_NONE), 0);
  const std::uint64_t claimed = 256 * coded.payload.size();
  std::memcpy(&coded.payload[16], &claimed, 8);
  std::fill(coded.payload.begin() + 64, coded.payload.end(), 0);  // constant groups: nothing to see
  unsigned char* const payload = block + pages - coded.payload.size();
  std::memcpy(payload, coded.payload.data(), coded.payload.size());
  coded.form.elements = claimed;
  const std::vector<float> results(claimed, 1.0f);
  EXPECT_FALSE(may_be_result(coded.form, payload, coded.payload.size(), {Function::kGelu, type},
                             results.data(), claimed * 4));
  munmap(block, pages + page);
}

// ---- words ----

TEST(BlockWords, ComeBackFromTheirPacking) {
  for (const Transform transform :
       {Transform::kNone, Transform::kHadamard, Transform::kHadamardScaled}) {
    for (const Look look : {Look::kNone, Look::kParts, Look::kRows, Look::kColumns}) {
      const BlockSpec spec{.type = ElementType::kFloat16,
                           .bits = 8,
                           .steps = look == Look::kRows ? Steps::kExponent : Steps::kAny,
                           .lines = {look, 0xFFFFFFFF},
                           .transform = transform};
      EXPECT_EQ(BlockSpec::unpack(spec.pack()), spec);
    }
  }
  const BlockSpec all{.type = ElementType::kFloat32,
                      .bits = 2,
                      .kept = Kept::kSides,
                      .steps = Steps::kCurved,
                      .near_zero = true,
                      .lines = {Look::kColumns, 96},
                      .transform = Transform::kHadamard,
                      .sides = {Sides::Kind::kThree, true, -1.5f, 6}};
  EXPECT_EQ(BlockSpec::unpack(all.pack()), all);
  const Recomputed how{Function::kSilu, ElementType::kBFloat16};
  EXPECT_EQ(Recomputed::unpack(how.pack()), how);
  BlockForm form;
  form.shape = BlockShape::kTable;
  form.type = ElementType::kInt64;
  form.spans = 12345;
  form.tiles = 1;
  form.only_sides = 1;
  form.elements = 99;
  form.nonce = ~0ull;
  form.patch_bytes = 7;
  EXPECT_EQ(BlockForm::unpack(form.pack()), form);
  form.only_sides = 0;
  form.side_part = 1;
  EXPECT_EQ(BlockForm::unpack(form.pack()), form);
}

TEST(BlockWords, TwoSavesGetTheMoreCarefulOfTheTwo) {
  const BlockSpec four{ElementType::kFloat32, 4},
      eight{.type = ElementType::kFloat32, .bits = 8, .steps = Steps::kExponent};
  EXPECT_EQ(merge(four, eight), eight);
  EXPECT_EQ(merge(four, {ElementType::kFloat32, 0}), (BlockSpec{ElementType::kFloat32, 0}));
  EXPECT_EQ(merge(four, {ElementType::kInt32, 0}), (BlockSpec{ElementType::kBytes, 0}));
  const BlockSpec rows{.type = ElementType::kFloat32, .bits = 4, .lines = {Look::kRows, 96}};
  const BlockSpec shorter{.type = ElementType::kFloat32, .bits = 2, .lines = {Look::kRows, 48}};
  EXPECT_EQ(merge(rows, shorter).lines, shorter.lines);
  EXPECT_EQ(merge(four, rows).lines, rows.lines);
  // What only one of them keeps is kept.
  constexpr ElementType kType = ElementType::kFloat32;
  const Sides positive{Sides::Kind::kOpen, true, 0, INFINITY};
  const BlockSpec sides{.type = kType, .kept = Kept::kSides, .sides = positive};
  const BlockSpec others{
      .type = kType, .kept = Kept::kSides, .sides = {Sides::Kind::kClosed, false, 0, 1}};
  const BlockSpec nothing{.type = kType, .kept = Kept::kNothing};
  BlockSpec four_and_sides = four;
  four_and_sides.sides = positive;
  for (const auto& [a, b, both] :
       {std::tuple{nothing, four, four}, std::tuple{nothing, sides, sides},
        std::tuple{nothing, nothing, nothing}, std::tuple{sides, sides, sides},
        std::tuple{sides, four, four_and_sides}, std::tuple{four_and_sides, sides, four_and_sides},
        std::tuple{sides, others, lossless(kType)},
        std::tuple{four_and_sides, others, lossless(kType)},
        std::tuple{sides, lossless(kType), lossless(kType)}}) {
    EXPECT_EQ(merge(a, b), both);
    EXPECT_EQ(merge(b, a), both);
  }
  for (const auto& [a, b, both] :
       {std::tuple{Transform::kNone, Transform::kHadamard, Transform::kNone},
        std::tuple{Transform::kHadamardScaled, Transform::kHadamard, Transform::kHadamard},
        std::tuple{Transform::kHadamardScaled, Transform::kHadamardScaled,
                   Transform::kHadamardScaled}}) {
    BlockSpec x = four, y = four;
    x.transform = a;
    y.transform = b;
    EXPECT_EQ(merge(x, y).transform, both);
    EXPECT_EQ(merge(y, x).transform, both);
  }
}

}  // namespace
}  // namespace pleat::compress::block
