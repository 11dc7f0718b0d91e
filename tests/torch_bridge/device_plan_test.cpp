// Host and device plan the same parts for the same specification; and payloads whose size no value
// changes, on a device.
#include "compress/block/block_plan.h"
#include "compress/format.h"
#include "tests/torch_bridge/device_codec_support.h"

namespace pleat::bridge::cuda {
namespace {

using namespace testing;
using compress::block::BlockPlan;
using compress::block::Effort;
using compress::block::FormKind;
using compress::block::FormPlan;

constexpr Sides kBetween{Sides::Kind::kThree, false, -1, 1};
constexpr Sides kOdd{Sides::Kind::kOpen, false, 0.1f, kInfinity};  // 0.1 is no bfloat16

// The parts of a plan. `bits` of lossy values, and of the sides next to them.
struct Parts {
  FormKind kind;
  unsigned bits = 0, beside = 0;
  Look look = Look::kNone;
};
struct Row {
  BlockSpec spec;
  Parts open, closed;
};

using enum FormKind;
constexpr auto kF32 = ElementType::kFloat32, kF16 = ElementType::kFloat16,
               kBF16 = ElementType::kBFloat16;
const Row kRows[] = {
    // for 4096 elements
    {{.type = kF32, .bits = 4}, {kLossy, 4}, {kLossy, 4}},
    {{.type = kF16, .bits = 1}, {kLossy, 1}, {kLossy, 3}},
    {{.type = kBF16, .bits = 2, .floor = 8}, {kLossy, 8}, {kLossy, 8}},
    {{.type = kF32, .bits = 4, .steps = Steps::kCurved}, {kLossy, 4}, {kLossy, 8}},
    {{.type = kF32, .bits = 4, .steps = Steps::kExponent}, {kLossy, 4}, {kFloats}},
    {{.type = kF32, .bits = 4, .near_zero = true}, {kLossy, 4}, {kFloats}},
    {{.type = kF32, .bits = 4, .lines = {Look::kRows, 128}},
     {kLossy, 4, 0, Look::kRows},
     {kFloats}},
    {{.type = kF32, .bits = 4, .lines = {Look::kColumns, 64}},
     {kLossy, 4, 0, Look::kColumns},
     {kFloats}},
    {{.type = kF32, .bits = 4, .lines = {Look::kParts, 64}},
     {kLossy, 4, 0, Look::kParts},
     {kLossy, 4, 0, Look::kParts}},
    {{.type = kF32, .bits = 4, .lines = {Look::kRows, 256}}, {kLossy, 4}, {kLossy, 4}},
    {{.type = kF32, .bits = 4, .lines = {Look::kRows, 100}}, {kLossy, 4}, {kLossy, 4}},
    {{.type = kF32, .bits = 4, .sides = kSignOfRelu}, {kLossy, 4, 1}, {kLossy, 4, 1}},
    {{.type = kF16, .bits = 2, .transform = Transform::kHadamardScaled, .sides = kBetween},
     {kLossy, 2, 2},
     {kLossy, 3, 2}},
    {{.type = kBF16, .bits = 4, .sides = kOdd}, {kFloats}, {kFloats}},
    {{.type = kBF16, .kept = Kept::kSides, .sides = kOdd}, {kFloats}, {kFloats}},
    {{.type = ElementType::kBool, .kept = Kept::kSides, .sides = kBetween},
     {kBooleans},
     {kBooleans}},
    {{.type = kF32, .kept = Kept::kSides, .near_zero = true, .sides = kBetween},
     {kSides},
     {kSides}},
    {{.type = kF32, .bits = 4, .kept = Kept::kNothing}, {kNothing}, {kNothing}},
    {{.type = kF16}, {kFloats}, {kFloats}},
    {{.type = ElementType::kBool}, {kBooleans}, {kBooleans}},
    {{.type = ElementType::kInt32}, {kIntegers}, {kIntegers}},
    {{.type = ElementType::kInt64, .bits = 4}, {kIntegers}, {kIntegers}},
    {{.type = ElementType::kBytes}, {kBytes}, {kBytes}},
};

void expect_parts(const FormPlan& plan, const Parts& parts) {
  EXPECT_EQ(plan.kind(), parts.kind);
  EXPECT_EQ(plan.spec.bits, parts.bits);
  EXPECT_EQ(plan.keeps_beside ? plan.beside.bits() : 0, parts.beside);
  EXPECT_EQ(plan.spec.lines.look, parts.look);
}

TEST(OnePlan, HostAndDeviceMakeAPayloadOfTheSameParts) {
  for (const Row& row : kRows) {
    const BlockSpec& spec = row.spec;
    SCOPED_TRACE("row " + std::to_string(&row - kRows));
    const Bytes values = is_floating(spec.type)
                             ? normal(spec.type, 4096)
                             : integers<std::uint8_t>(4096 * element_size(spec.type),
                                                      [](std::size_t e) { return e % 64 == 0; });
    const compress::block::ByteRange all{0, values.size()};
    const ByteRange all_on_device{0, values.size()};
    for (const bool closed : {false, true}) {
      const Parts& parts = closed ? row.closed : row.open;
      const BlockPlan host = plan_block({closed ? nullptr : values.data(), values.size(), &all, 1},
                                        spec, false, closed ? Effort::kNone : Effort::kQuick);
      expect_parts(host, parts);
      const KeyLesson untaught;
      const auto device = plan_on_device(spec, closed ? nullptr : &untaught, {}, &all_on_device, 1);
      const bool refusable = parts.kind == kFloats || parts.kind == kIntegers;
      ASSERT_EQ(device.has_value(), parts.kind != kBytes && !(closed && refusable));
      if (!device.has_value()) continue;
      expect_parts(*device, parts);
      EXPECT_EQ(device->form.kind, parts.kind);
      EXPECT_EQ(device->form.bits, parts.bits);
      EXPECT_EQ(device->form.side_bits, parts.kind == kSides ? 2 : parts.beside);
      EXPECT_EQ(device->form.look, parts.kind == kLossy ? parts.look : Look::kNone);
      EXPECT_EQ(device->form.most_near_zero != 0, spec.near_zero && parts.kind == kLossy);
      EXPECT_EQ(host.spec, device->spec);
      EXPECT_EQ(host.beside, device->beside);
      EXPECT_TRUE(!closed || (!device->gated && !device->judged));
    }
  }
}

TEST(OnePlan, AKeyHasTheBitsAndSidesThatItHasTaught) {
  const ByteRange all{0, 4096 * 4};
  KeyLesson lesson;
  lesson.least_bits = 8;
  lesson.quiet = KeyLesson::kQuiet;
  const BlockSpec spec{.type = kF32, .bits = 4, .sides = kSignOfRelu};
  expect_parts(*plan_on_device(spec, &lesson, {}, &all, 1), {kLossy, 8});
  expect_parts(*plan_on_device(spec, nullptr, {}, &all, 1), {kLossy, 4, 1});
}

// ---- closed ----

constexpr std::uint64_t kKey = 3;

TEST_F(DeviceBlockCodecTest, AClosedPayloadHasItsSizeForAnyValuesAndNoVerdict) {
  device_.holds = true;
  const auto value = [](int pattern, std::size_t e) {
    return pattern == 0   ? double(e * 37 % 101) - 50
           : pattern == 1 ? 3.0
           : pattern == 2 ? (e % 3 == 0   ? NAN
                             : e % 3 == 1 ? -INFINITY
                                          : INFINITY)
           : pattern == 3 ? (e % 256 == 9 ? 6e4 : double(e % 7))
                          : (e % 2 == 0 ? 6e4 : -6e4);
  };
  for (const ElementType type : kFloatTypes) {
    for (std::uint8_t bits = 1; bits <= 8; ++bits) {
      for (const Sides sides : {Sides{}, kSignOfRelu, kBetween}) {
        for (const Transform transform : {Transform::kNone, Transform::kHadamardScaled}) {
          const BlockSpec spec{.type = type,
                               .bits = bits,

                               .transform = transform,
                               .sides = sides};
          std::size_t room = 0;
          for (int pattern = 0; pattern < 5; ++pattern) {
            const Bytes source =
                floats(type, 1500, [&](std::size_t e) { return value(pattern, e); });
            const Coded coded = encode(spec, source, kKey, {}, kStream, true);
            ASSERT_EQ(coded.result.status, CodecStatus::kOk);
            ASSERT_EQ(coded.result.payload_bytes, coded.room);
            ASSERT_TRUE(pattern == 0 || coded.room == room);
            room = coded.room;
            device_.run();
            const Bytes back = restored(coded);
            for (std::size_t e = 0; e < 1500; ++e) {
              const double x = value_at(type, source.data(), e);
              const double y = value_at(type, back.data(), e);
              ASSERT_TRUE(std::isnan(x) ? std::isnan(y)
                                        : !sides.any() || side_of(sides, x) == side_of(sides, y))
                  << x << " " << y;
              ASSERT_TRUE(!std::isinf(x) || x == y);
            }
          }
          const std::size_t metadata = transform == Transform::kNone ? 2 * element_size(type) : 8;
          const std::size_t codes = 64 + (6 * metadata + 63) / 64 * 64 +
                                    6 * 32 * compress::supported_bits(std::max<unsigned>(bits, 3));
          const std::size_t beside =
              sides.any() ? (64 + (1500 * sides.bits() + 7) / 8 + 63) / 64 * 64 : 0;
          EXPECT_EQ(room, beside + codes);
        }
      }
    }
  }
  for (const BlockSpec& spec : {BlockSpec{.type = ElementType::kBool},
                                BlockSpec{.type = kF32, .kept = Kept::kSides, .sides = kBetween}}) {
    const Bytes source = integers<std::uint8_t>(4000, [](std::size_t e) { return e % 3; });
    const Coded coded = encode(spec, source, kKey, {}, kStream, true);
    ASSERT_EQ(coded.result.status, CodecStatus::kOk);
    EXPECT_EQ(coded.result.payload_bytes, 64u + (spec.type == ElementType::kBool ? 500 : 250));
    device_.run();
    const Bytes back = restored(coded);
    for (std::size_t e = 0; e < 4000 && spec.type == ElementType::kBool; ++e)
      ASSERT_EQ(back.data()[e], e % 3 != 0);
  }
  EXPECT_EQ(device_.waits, 0);
  EXPECT_EQ(surprises(), 0u);
  EXPECT_EQ(words_left(), DeviceWords::kSlots);
}

TEST_F(DeviceBlockCodecTest, AClosedPayloadNeitherAsksNorTeachesItsKey) {
  const BlockSpec spec{.type = kF32, .bits = 4, .steps = Steps::kCurved, .sides = kSignOfRelu};
  const Bytes wide = spanning(1000), narrow = spanning(2);
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(encode(spec, wide, kKey, {}, kStream, true).result.status, CodecStatus::kOk);
  const Coded first = settled(spec, narrow, kKey);
  EXPECT_EQ(first.form().bits, 4) << "nothing was learned";
  for (int i = 0; i < 3; ++i) settled(spec, wide, kKey);  // refused, and then a pause
  EXPECT_EQ(encode(spec, wide, kKey, {}, kStream, true).result.status, CodecStatus::kOk);
}

TEST_F(DeviceBlockCodecTest, WithoutAClosedFormTheRoomIsNothingAndNoBlockIsCounted) {
  const Bytes source = normal(kF32, 4096);
  for (const BlockSpec& spec :
       {BlockSpec{.type = kF32}, BlockSpec{.type = ElementType::kInt32},
        BlockSpec{.type = ElementType::kInt64}, BlockSpec{.type = ElementType::kBytes},
        BlockSpec{.type = kF32, .bits = 4, .near_zero = true},
        BlockSpec{.type = kF32, .bits = 8, .steps = Steps::kExponent},
        BlockSpec{.type = kF32, .bits = 4, .lines = {Look::kRows, 128}}}) {
    EXPECT_TRUE(encode(spec, source, kKey, {}, kStream, true).held());
  }
  EXPECT_EQ(codec_.counts().totals.kept_raw, 0u);
  EXPECT_TRUE(device_.launches.empty());
}

}  // namespace
}  // namespace pleat::bridge::cuda
