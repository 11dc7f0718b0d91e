#include "compress/lines/exact_lines.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "compress/block/block_plan.h"
#include "compress/block/group_steps.h"
#include "compress/grouped/group_math.h"
#include "compress/lines/line_patch.h"
#include "line_support.h"
#include "tests/compress/support.h"
#include "tests/compress/wide_groups.h"

namespace pleat::compress::block {
namespace {

using compress::ElementType;
using testing::noise;

void scale(std::vector<float>& values, std::size_t begin, std::size_t end, float factor) {
  for (std::size_t i = begin; i < end; ++i) {
    values[i] *= factor;
  }
}

std::vector<float> steps_at(const void* data, std::size_t elements, ElementType type,
                            unsigned bits) {
  std::vector<float> steps;
  for (const GroupRange& group : group_ranges(data, elements, type, compress::serial_executor())) {
    steps.push_back(group.step(type, bits, std::numeric_limits<float>::infinity()));
  }
  return steps;
}

LinePlan plan(const std::vector<float>& values, Look look, std::uint32_t length,
              unsigned bits = 4) {
  const ElementType type = ElementType::kFloat32;
  const auto steps = steps_at(values.data(), values.size(), type, bits);
  const Lines lines{look, length};
  LinePlan found = flat_lines(values.data(), values.size(), type, lines, steps);
  const auto none_beside = [&](const LinePlan& known) {
    return no_other_is_flat(known, values.data(), values.size(), type, lines, steps,
                            compress::serial_executor());
  };
  EXPECT_TRUE(none_beside(found));
  const bool judged = look == Look::kRows || look == Look::kColumns;
  EXPECT_EQ(none_beside({}), !judged || found.exact.empty());
  return found;
}

using Runs = std::vector<LineRun>;

TEST(FlatRows, RowsAlikeKeepTheWidth) {
  for (const std::uint32_t row : {2, 3, 9, 16, 49, 64, 96, 100, 192, 255, 257, 384, 1000}) {
    const LinePlan p = plan(noise(100 * row), Look::kRows, row);
    EXPECT_TRUE(p.exact.empty()) << row;
  }
}

TEST(FlatRows, AFewAmongOthersAreExact) {
  for (const std::uint32_t row : {16u, 64u, 96u, 384u}) {
    for (const std::uint32_t flat : {0u, 7u, 99u}) {
      auto values = noise(100 * row);
      scale(values, flat * row, (flat + 1) * row,
            0.05f);  // a step of 1/15 is more than half its range
      const LinePlan p = plan(values, Look::kRows, row);
      EXPECT_EQ(p.exact, (Runs{{flat, 1, 0}})) << row << " " << flat;
      EXPECT_TRUE(plan(values, Look::kRows, row, 8).exact.empty());
      EXPECT_TRUE(plan(values, Look::kParts, row).exact.empty());
      scale(values, flat * row, (flat + 1) * row, 0.05f);
      EXPECT_EQ(plan(values, Look::kRows, row, 8).exact, (Runs{{flat, 1, 0}}));
      scale(values, flat * row, (flat + 1) * row, 0);
      EXPECT_TRUE(plan(values, Look::kRows, row, 8).exact.empty());
    }
  }
}

TEST(FlatRows, OfManyEightBitsTakeLess) {
  auto values = noise(100 * 64);
  for (std::size_t r = 0; r < 100; r += 4) {
    scale(values, r * 64, (r + 1) * 64, 0.05f);
  }
  scale(values, 50 * 64, 52 * 64, 1e-4f);
  const ByteRange all{0, values.size() * sizeof(float)};
  const BlockPlan p =
      plan_block({values.data(), all.end, &all, 1},
                 {.type = ElementType::kFloat32, .bits = 4, .lines = {Look::kRows, 64}}, false,
                 Effort::kThorough);
  EXPECT_EQ(p.spec.bits, 8);
  EXPECT_EQ(p.lines.exact, (Runs{{50, 2, 0}}));
}

TEST(FlatRows, RowsThatFillGroupsOfTheirOwnDisturbNobody) {
  auto values = noise(20 * 512);
  scale(values, 512, 1024, 0);
  EXPECT_TRUE(plan(values, Look::kRows, 512).exact.empty());
  EXPECT_TRUE(plan(values, Look::kRows, 256).exact.empty());
}

// The rows' first elements, by which they are probed, are alike in every other row only: each row
// is looked at as a whole, and none is flat beside the element far out that it has itself.
TEST(FlatRows, AnElementFarOutIsInEveryRowsRange) {
  for (const std::size_t place : {0, 1, 15, 16, 17, 63, 100, 126, 127}) {
    auto values = noise(64 * 128);
    for (std::size_t r = 0; r < 64; ++r) {
      if (r % 2 != 0) {
        scale(values, r * 128, r * 128 + 16, 0.001f);
      }
      values[r * 128 + place] = 1000;
    }
    EXPECT_TRUE(plan(values, Look::kRows, 128).exact.empty()) << place;
    values[7 * 128 + place] = 0;  // a row without one is flat: a step is 1000 / 15
    EXPECT_EQ(plan(values, Look::kRows, 128).exact, (Runs{{7, 1, 0}})) << place;
  }
}

// The outlier lies where no sample of a row does. Every row that shares a group with it is flat but
// its own.
TEST(FlatRows, AnElementFarOutIsInEveryRangeOfItsGroup) {
  struct Case {
    std::uint32_t row, at;
    float outlier;
  };
  for (const Case& c : {Case{96, 40, 1000}, Case{192, 100, 100}, Case{384, 300, 300}}) {
    auto values = noise(96 * c.row);
    std::vector<bool> flat(96);
    for (std::size_t r = 0; r < 96; r += 8) {
      const std::size_t outlier = r * c.row + c.at, group = outlier / 256 * 256;
      values[outlier] = c.outlier;
      for (std::size_t e = group; e < group + 256 && e < values.size(); ++e) {
        flat[e / c.row] = e / c.row != r || flat[e / c.row];
      }
    }
    std::vector<bool> found(96);
    for (const LineRun& run : plan(values, Look::kRows, c.row).exact) {
      EXPECT_EQ(run.zero, 0u);
      for (std::size_t i = 0; i < run.count; ++i) {
        found[run.first + i] = true;
      }
    }
    EXPECT_EQ(found, flat) << c.row;
  }
}

// A group with NaN or Inf comes back exact at 1 and 2 bits. From 3 on its steps are those of its
// finite elements.
TEST(FlatRows, BesideInfinitiesAreHeldAgainstTheFiniteRange) {
  for (const float odd :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    auto values = noise(4 * 64);
    values[70] = odd;
    scale(values, 0, 64, 0.001f);
    for (const unsigned bits : {1u, 2u}) {
      EXPECT_TRUE(plan(values, Look::kRows, 64, bits).exact.empty());
    }
    for (const unsigned bits : {4u, 8u}) {
      EXPECT_EQ(plan(values, Look::kRows, 64, bits).exact, (Runs{{0, 1, 0}}));
    }
  }
}

// The step said beforehand is at least the one a payload has, and no more than a quarter wider.
TEST(GroupRanges, OfWideGroupsGiveStepsThatPayloadsKeepTo) {
  std::mt19937_64 random(compress::test::seed());
  for (const ElementType type : compress::test::kFloatTypes) {
    for (const unsigned bits : {3u, 4u, 6u, 8u}) {
      const auto source = compress::test::wide_span(type, 64, 100, random, 1);
      const std::size_t elements = source.size() / compress::element_size(type);
      const auto ranges = group_ranges(source.data(), elements, type, compress::serial_executor());
      const auto out = compress::test::encode_span(source.data(), elements, type, bits);
      const std::vector<float> steps = compress::group_steps(out.payload.data());
      ASSERT_EQ(steps.size(), ranges.size());
      for (std::size_t g = 0; g < steps.size(); ++g) {
        const double said = ranges[g].step(type, bits, std::numeric_limits<float>::infinity());
        const double least = type == ElementType::kFloat16 ? 0x1p-32 : 0x1p-110;
        if (steps[g] <= least) {
          continue;
        }
        // Keeping zero takes a code, which is not looked for beforehand; 16 bits round up by 2^-6.
        EXPECT_LE(steps[g], said * (bits == 3 ? 1.34 : 1.1) * (1 + 1.0 / 32)) << g;
        EXPECT_GE(steps[g], said / 1.34) << g;
      }
    }
  }
}

TEST(FlatRows, SixteenBitTypesAreReadAsWhatTheyAre) {
  auto values = noise(100 * 64);
  scale(values, 640, 704, 0.02f);
  std::vector<std::uint16_t> half, bfloat;
  for (const float value : values) {
    half.push_back(compress::half_of(value));
    bfloat.push_back(compress::bfloat_of(value));
  }
  const auto at = [](const auto& words, ElementType type) {
    return flat_lines(words.data(), words.size(), type, {Look::kRows, 64},
                      steps_at(words.data(), words.size(), type, 4))
        .exact;
  };
  EXPECT_EQ(at(half, ElementType::kFloat16), (Runs{{10, 1, 0}}));
  EXPECT_EQ(at(bfloat, ElementType::kBFloat16), (Runs{{10, 1, 0}}));
}

// Their parts restore them (exponents_test.cpp).
TEST(ZeroRows, AreNoFlatRows) {
  auto values = noise(100 * 64);  // scaled by 0: zeros of both signs
  scale(values, 0, 64, 0);
  scale(values, 50 * 64, 60 * 64, 0);
  scale(values, 70 * 64, 71 * 64, 1e-4f);
  EXPECT_EQ(plan(values, Look::kRows, 64).exact, (Runs{{70, 1, 0}}));
  EXPECT_TRUE(plan(values, Look::kParts, 64).exact.empty());
}

TEST(FlatColumns, AreExact) {
  for (const std::uint32_t columns : {16u, 100u, 256u, 300u, 1000u}) {
    auto values = noise(200 * columns);
    EXPECT_TRUE(plan(values, Look::kColumns, columns).exact.empty()) << columns;
    for (std::size_t r = 0; r < 200; ++r) {
      values[r * columns + 3] = 5;
      values[r * columns + 7] = 0;
      values[r * columns + 8] = -0.0f;
    }
    const LinePlan p = plan(values, Look::kColumns, columns);
    EXPECT_EQ(p.exact, (Runs{{3, 1, 0}, {7, 2, 1}})) << columns;
    values[55 * columns + 3] = 20;  // not flat after all
    EXPECT_EQ(plan(values, Look::kColumns, columns).exact, (Runs{{7, 2, 1}})) << columns;
  }
}

// In rows that no sample of 64 meets. Normal values of 6400 rows span 7 to 9.
TEST(FlatColumns, AreHeldAgainstTheMeanSquareOfAllStepsTheyMeet) {
  for (const float outlier : {300.0f, 1500.0f}) {
    auto values = noise(6400 * 64);
    for (std::size_t r = 50; r < 6400; r += 1600) {
      values[r * 64 + 9] = outlier;  // a group is four rows: 1 group in 400
    }
    const double step = std::sqrt(std::pow(outlier / 15, 2) / 400 + 0.4 * 0.4);
    std::size_t exact = 0;
    for (const LineRun& run : plan(values, Look::kColumns, 64).exact) {
      exact += run.count;
    }
    EXPECT_EQ(exact, 4 * step < 7 ? 0u : 63u) << step;
  }
}

TEST(FlatColumns, AreHeldAgainstTheGroupsTheyAreIn) {
  for (const std::uint32_t columns : {512u, 1024u, 700u}) {
    auto values = noise(256 * columns);
    for (std::size_t r = 0; r < 256; ++r) {
      values[r * columns + 5] *= 1000;
    }
    const LinePlan p = plan(values, Look::kColumns, columns);
    std::size_t exact = 0;
    for (const LineRun& run : p.exact) {
      exact += run.count;
    }
    if (columns % 256 == 0) {  // else groups shift from row to row
      EXPECT_EQ(p.exact, (Runs{{0, 5, 0}, {6, 250, 0}})) << columns;
    } else {
      EXPECT_GE(exact, 255u) << columns;
    }
    EXPECT_LT(exact, columns);
    for (std::size_t r = 0; r < 256; ++r) {
      values[r * columns + 5] /= 1000;
      values[r * columns + columns - 3] *= 1000;
    }
    EXPECT_FALSE(plan(values, Look::kColumns, columns).exact.empty()) << columns;
  }
}

TEST(FlatLines, OfZerosWithANotANumberAreNotZero) {
  auto values = noise(100 * 64);
  for (std::size_t i = 0; i < 64; ++i) {
    values[7 * 64 + i] = 0;
  }
  values[7 * 64 + 9] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(plan(values, Look::kRows, 64).exact, (Runs{{7, 1, 0}}));
  auto other = noise(100 * 64);
  for (std::size_t r = 0; r < 100; ++r) {
    other[r * 64 + 7] = 0;
  }
  other[9 * 64 + 7] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(plan(other, Look::kColumns, 64).exact, (Runs{{7, 1, 0}}));
}

}  // namespace
}  // namespace pleat::compress::block
