// What a sample of a tensor tells about the scales of its values.
#include "compress/block/scales.h"

#include <cmath>
#include <functional>

#include "tests/compress/support.h"

namespace pleat::compress::block {
namespace {

using test::kFloatTypes;

struct Case {
  ElementType type;
  std::size_t rows;
  std::uint32_t channels, inner = 1;
  std::uint8_t bits = 4;
  bool has_rows = true;
  Look look = Look::kParts;
};

// value(row, channel, normal): of an element.
Scales measured(const Case& c, const std::function<double(std::size_t, std::size_t, double)>& value,
                const Scales& before = {}) {
  std::mt19937_64 random(test::seed());
  std::normal_distribution<double> normal;
  const std::size_t period = std::size_t{c.channels} * c.inner;
  test::Bytes data(c.rows * period * element_size(c.type));
  for (std::size_t r = 0; r < c.rows; ++r)
    for (std::size_t i = 0; i < period; ++i)
      test::set_value(c.type, data.data(), r * period + i, value(r, i / c.inner, normal(random)));
  BlockSpec spec{.type = c.type, .bits = c.bits, .channels = {c.channels, c.inner}};
  if (c.has_rows) spec.lines = {c.look, static_cast<std::uint32_t>(period)};
  return measure_scales({data.data(), c.rows * period, c.type}, spec, before);
}

double same(std::size_t, std::size_t, double x) { return x; }
double gated(std::size_t row, std::size_t channel, double x) {  // times another normal
  std::mt19937_64 random(row * 4096 + channel);
  return x / (1 + std::exp(-x)) * std::normal_distribution<double>()(random);
}

TEST(Scales, OfChannelsAlikeAreNone) {
  for (const ElementType type : kFloatTypes) {
    EXPECT_FALSE(measured({type, 512, 300}, same).any()) << name_of(type);
    EXPECT_FALSE(measured({type, 64, 256, 9}, same).any()) << name_of(type);
    const auto unlike_by_less_than_two = [](std::size_t, std::size_t c, double x) {
      return (c % 2 == 0 ? 1 : 1.5) * (x < 0 ? -1 : 1);
    };
    EXPECT_FALSE(measured({type, 512, 128}, unlike_by_less_than_two).any()) << name_of(type);
  }
}

TEST(Scales, BringChannelsToTheSizeOfTheMedian) {
  const auto outliers = [](std::size_t, std::size_t c, double x) {
    return (c == 3 ? 30 : c == 40 ? 0.01 : c == 41 ? 0 : 1) * (x < 0 ? -1 : 1);
  };
  for (const ElementType type : kFloatTypes)
    for (const std::uint32_t inner : {1u, 9u}) {
      const Scales scales = measured({type, 512, 100, inner}, outliers);
      ASSERT_NE(scales.table, nullptr) << name_of(type);
      ASSERT_EQ(scales.table->size(), 100u);
      for (std::size_t c = 0; c < 100; ++c) {
        const int up = c == 3 ? -5 : c == 40 ? 7 : 0;  // 2^5 is next to 30, 2^7 to 100
        EXPECT_EQ((*scales.table)[c], up - 7) << name_of(type) << " " << c;
      }
    }
}

// Rows that a reader normalises count alike, whatever their size.
TEST(Scales, AChannelThatIsLargeInAFewRowsStaysWhereRowsAreNormalised) {
  const auto values = [](std::size_t r, std::size_t c, double x) {
    const bool large = c == 3 || (c == 7 && r % 10 == 4);
    return (x < 0 ? -1 : 1) * (large ? 30 : 1) * (r % 3 == 0 ? 0.01 : 1);
  };
  for (const ElementType type : kFloatTypes)
    for (const Look look : {Look::kParts, Look::kRows}) {
      Case c{type, 400, 100};
      c.look = look;
      const Scales scales = measured(c, values);
      ASSERT_NE(scales.table, nullptr);
      EXPECT_EQ((*scales.table)[3], -5);
      EXPECT_EQ((*scales.table)[7], look == Look::kRows ? 0 : -3);
      EXPECT_EQ((*scales.table)[8], 0);
    }
}

TEST(Scales, OfAFewRowsNeedALargerRatio) {
  const auto twice = [](std::size_t, std::size_t c, double x) {
    return (c == 3 ? 2.2 : 1) * (x < 0 ? -1 : 1);
  };
  const auto often = [](std::size_t, std::size_t c, double x) {
    return (c == 3 ? 4.0 : 1) * (x < 0 ? -1 : 1);
  };
  EXPECT_NE(measured({ElementType::kFloat32, 16, 64}, twice).table, nullptr);
  EXPECT_EQ(measured({ElementType::kFloat32, 8, 64}, twice).table, nullptr);
  EXPECT_NE(measured({ElementType::kFloat32, 8, 64}, often).table, nullptr);
  EXPECT_EQ(measured({ElementType::kFloat32, 3, 64}, often).table, nullptr);
}

TEST(Scales, WideGroupsOfBothSignsAreRotated) {
  for (const ElementType type : kFloatTypes) {
    EXPECT_TRUE(measured({type, 300, 512}, gated).rotates) << name_of(type);
    EXPECT_TRUE(measured({type, 300, 500}, gated).rotates) << name_of(type);
    EXPECT_FALSE(measured({type, 300, 512}, same).rotates) << name_of(type);
    const auto one_sign = [](std::size_t r, std::size_t c, double x) {
      return std::fabs(gated(r, c, x));
    };
    EXPECT_FALSE(measured({type, 300, 512}, one_sign).rotates) << name_of(type);
    const auto gelu = [](std::size_t, std::size_t, double x) {
      return x / (1 + std::exp(-1.702 * x));
    };
    EXPECT_FALSE(measured({type, 300, 512}, gelu).rotates) << name_of(type);
  }
}

TEST(Scales, OutlierChannelsAloneAreNotRotated) {
  const auto outliers = [](std::size_t, std::size_t c, double x) {
    return c % 170 == 5 ? 30 * x : x;
  };
  const Scales scales = measured({ElementType::kFloat32, 300, 512}, outliers);
  EXPECT_NE(scales.table, nullptr);
  EXPECT_FALSE(scales.rotates);
}

// At 1 and 2 bits rotated groups have levels for a Gaussian.
TEST(Scales, NormalGroupsAreRotatedWhereThereAreLevels) {
  for (const std::uint8_t bits : {1, 2, 3, 4, 8}) {
    Case c{ElementType::kFloat32, 300, 512};
    c.bits = bits;
    EXPECT_EQ(measured(c, same).rotates, bits <= 2) << int{bits};
  }
}

TEST(Scales, ARotationIsKeptWhereItIsAboutAsGoodEitherWay) {
  Scales before;
  before.rotates = true;
  // Of 256 normal values the range is 5.6 in the median.
  EXPECT_TRUE(measured({ElementType::kFloat32, 300, 512}, same, before).rotates);
  const auto even = [](std::size_t, std::size_t, double x) { return std::erf(x); };
  EXPECT_FALSE(measured({ElementType::kFloat32, 300, 512}, even, before).rotates);
}

TEST(Scales, ZerosAreKeptWhereTheyAreManyButRowsOfThemDoNotCount) {
  for (const std::uint32_t width : {512u, 96u}) {
    const auto dropped = [](std::size_t r, std::size_t c, double x) {
      return (r * 31 + c * 17) % 20 == 0 ? 0 : x;
    };
    const auto few = [](std::size_t r, std::size_t c, double x) {
      return (r * 31 + c * 17) % 100 == 0 ? 0 : x;
    };
    const auto padded = [](std::size_t r, std::size_t, double x) { return r % 4 == 0 ? 0 : x; };
    EXPECT_TRUE(measured({ElementType::kFloat32, 400, width}, dropped).zeros) << width;
    EXPECT_FALSE(measured({ElementType::kFloat32, 400, width}, few).zeros) << width;
    EXPECT_FALSE(measured({ElementType::kFloat32, 400, width}, padded).zeros) << width;
  }
  const auto gated_and_dropped = [](std::size_t r, std::size_t c, double x) {
    return (r * 31 + c * 17) % 20 == 0 ? 0 : gated(r, c, x);
  };
  const Scales scales = measured({ElementType::kFloat32, 300, 512}, gated_and_dropped);
  EXPECT_TRUE(scales.zeros);
  EXPECT_FALSE(scales.rotates) << "a rotation keeps no zeros";
}

TEST(Scales, ValuesThatAreNotFiniteDoNotCount) {
  const auto broken = [](std::size_t r, std::size_t c, double x) {
    return r == 0 ? (c % 2 == 0 ? INFINITY : double(NAN)) : c == 3 ? 30 * x : x;
  };
  const Scales scales = measured({ElementType::kFloat32, 200, 256}, broken);
  ASSERT_NE(scales.table, nullptr);
  EXPECT_EQ((*scales.table)[3], -5);
  EXPECT_EQ((*scales.table)[4], 0);
}

TEST(Scales, AreForValuesOfWhichAnySmallErrorIsHarmless) {
  const BlockSpec plain{.type = ElementType::kFloat32, .bits = 4};
  EXPECT_TRUE(may_have_scales(plain));
  const auto without = [&](auto change) {
    BlockSpec spec = plain;
    change(spec);
    return may_have_scales(spec);
  };
  EXPECT_FALSE(without([](BlockSpec& s) { s.bits = 0; }));
  EXPECT_FALSE(without([](BlockSpec& s) { s.steps = Steps::kCurved; }));
  EXPECT_FALSE(without([](BlockSpec& s) { s.steps = Steps::kExponent; }));
  EXPECT_FALSE(without([](BlockSpec& s) { s.near_zero = true; }));
  EXPECT_FALSE(without([](BlockSpec& s) { s.sides.kind = Sides::Kind::kOpen; }));
  EXPECT_FALSE(without([](BlockSpec& s) { s.kept = Kept::kSides; }));
  EXPECT_FALSE(without([](BlockSpec& s) { s.type = ElementType::kInt32; }));
}

}  // namespace
}  // namespace pleat::compress::block
