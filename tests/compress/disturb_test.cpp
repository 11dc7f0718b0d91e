// Tests artificial noise against the noise of the codec, and the elements that it must leave alone.
#include "compress/block/disturb.h"

#include <numeric>
#include <set>

#include "tests/compress/noise_cases.h"

namespace pleat::compress::block {
namespace {

using namespace compress::test;
using namespace block::testing;

// `from`, disturbed as the case asks.
Bytes disturbed(const NoiseCase& c, const Bytes& from, const Disturbance& how,
                const Executor& executor = serial_executor()) {
  Bytes block = copy_of(from);
  const BlockSource where{block.data(), block.size(), c.ranges.data(), c.ranges.size()};
  EXPECT_TRUE(disturb_block(block.data(), where, c.spec, how, executor)) << c.name;
  EXPECT_TRUE(block.guard_intact());
  return block;
}

bool same_element(const NoiseCase& c, const Bytes& a, const Bytes& b, std::size_t e) {
  const std::size_t size = element_size(c.spec.type);
  return std::memcmp(a.data() + e * size, b.data() + e * size, size) == 0;
}

// Squared, of the elements that are not zero in `block`: noise leaves these alone, the codec does
// not always.
double change_of(const NoiseCase& c, const Bytes& from, const Bytes& to, const Bytes& block) {
  double sum = 0;
  for_each_group(c, [&](std::size_t first, std::size_t count) {
    for (std::size_t e = first; e < first + count; ++e) {
      const double change =
          value_at(c.spec.type, to.data(), e) - value_at(c.spec.type, from.data(), e);
      sum += value_at(c.spec.type, block.data(), e) != 0 && std::isfinite(change) ? change * change
                                                                                  : 0;
    }
  });
  return sum;
}
double change_of(const NoiseCase& c, const Bytes& from, const Bytes& to) {
  return change_of(c, from, to, from);
}

// Nothing where the codec does not give this width.
std::optional<Bytes> through_codec(const NoiseCase& c, std::uint8_t bits, std::uint64_t nonce) {
  BlockSpec spec = c.spec;
  spec.bits = bits;
  const std::optional<NoisePayload> payload = noise_payload(c.source(), spec, nonce);
  if (!payload || payload->form.bits != bits) {
    return std::nullopt;
  }
  return restored_block(*payload, c.data.size());
}

class DisturbanceOf : public ::testing::TestWithParam<ElementType> {};
INSTANTIATE_TEST_SUITE_P(Types, DisturbanceOf, ::testing::ValuesIn(kFloatTypes),
                         [](const auto& info) { return std::string(name_of(info.param)); });

// What noise of the amplitude 1 does, as a multiple of the codec's error. Restored values were
// spread by the noise of their payload, so that of fewer bits has wider groups. Beside zero, what
// was rounded down to the lowest level can be moved in one direction only.
struct Range {
  double least, most;
};
Range range_from(unsigned bits, const NoiseCase& c) {
  const bool crowds = c.name == "softmax";
  switch (bits) {
    case 2:
      return crowds ? Range{0.35, 1.8} : Range{0.55, 1.75};
    case 3:
      return crowds ? Range{0.40, 1.4} : Range{0.65, 1.35};
    case 4:
      return crowds ? Range{0.55, 1.4} : Range{0.75, 1.2};
    default:  // 8 bits, or the values as they were
      return {0.9, 1.1};
  }
}

TEST_P(DisturbanceOf, EveryKindOfBlockHasTheSizeOfTheCodecsError) {
  for (const NoiseCase& c : noise_cases(GetParam())) {
    for (const auto& [from, bits] : {std::pair<std::uint8_t, std::uint8_t>{0, 2},
                                     {0, 4},
                                     {0, 8},
                                     {8, 4},
                                     {4, 4},
                                     {3, 4},
                                     {2, 4}}) {
      const std::optional<Bytes> block = from == 0 ? copy_of(c.data) : through_codec(c, from, 7);
      if (!block || !through_codec(c, bits, 1)) {
        continue;
      }
      const std::size_t nonces = std::max<std::size_t>(3, 40000 / c.elements());
      const Mean truth = mean_of(nonces, [&](std::size_t i) {
        return change_of(c, c.data, *through_codec(c, bits, 100 + i), *block);
      });
      const Mean change = mean_of(nonces, [&](std::size_t i) {
        return change_of(c, *block, disturbed(c, *block, {bits, 1, 900 + i}));
      });
      // Where steps are no wider than the type's, rounding leaves hardly any noise.
      const bool coarse = GetParam() == ElementType::kBFloat16 && c.name == "far from zero";
      const double unsure =
          4 * (truth.deviation + change.deviation) + (coarse ? 0.05 * double(c.elements()) : 0);
      const Range range = range_from(from, c);
      const std::string at = c.name + " of " + std::to_string(from) + " at " + std::to_string(bits);
      EXPECT_GE(change.value + unsure, range.least * truth.value) << at;
      EXPECT_LE(change.value - unsure, range.most * truth.value) << at;
    }
  }
}

TEST_P(DisturbanceOf, DitheredValuesIsZeroInTheMean) {
  for (const char* const name : {"gaussian", "gelu", "outliers"}) {
    const NoiseCase& c = noise_case(GetParam(), name);
    const std::size_t nonces = 20;
    std::vector<double> sums(c.elements());
    double squares = 0;
    for (std::size_t i = 0; i < nonces; ++i) {
      const Bytes block = disturbed(c, c.data, {4, 1, 50 + i});
      for (std::size_t e = 0; e < sums.size(); ++e) {
        const double change =
            value_at(c.spec.type, block.data(), e) - value_at(c.spec.type, c.data.data(), e);
        sums[e] += change;
        squares += change * change;
      }
    }
    // Of all elements, and of each: sums of independent changes.
    const double all = std::accumulate(sums.begin(), sums.end(), 0.0);
    EXPECT_LE(std::fabs(all), 5 * std::sqrt(squares)) << name;
    const double each = std::inner_product(sums.begin(), sums.end(), sums.begin(), 0.0);
    EXPECT_NEAR(each, squares, 0.1 * squares) << name;
  }
}

TEST_P(DisturbanceOf, AnyAmplitudeIsThatMuchOfTheWhole) {
  for (const char* const name : {"gaussian", "gelu", "mixture"}) {
    const NoiseCase& c = noise_case(GetParam(), name);
    const Bytes whole = disturbed(c, c.data, {4, 1, 5});
    for (const float amplitude : {-1.0f, -0.5f, 0.25f, 0.0f}) {
      const Bytes part = disturbed(c, c.data, {4, amplitude, 5});
      const double square = double(amplitude) * amplitude;
      EXPECT_NEAR(change_of(c, c.data, part), square * change_of(c, c.data, whole),
                  0.02 * square * change_of(c, c.data, whole))
          << name << " " << amplitude;
      for (std::size_t e = 0; e < c.elements(); ++e) {  // but for the elements held back
        const double x = value_at(c.spec.type, c.data.data(), e);
        const double all = value_at(c.spec.type, whole.data(), e) - x;
        const double some = value_at(c.spec.type, part.data(), e) - x;
        const double ulp =
            std::ldexp(std::fabs(x) + std::fabs(all), GetParam() == ElementType::kFloat32    ? -23
                                                      : GetParam() == ElementType::kBFloat16 ? -7
                                                                                             : -10);
        if (name != std::string("mixture")) {
          EXPECT_NEAR(some, amplitude * all, ulp + 1e-7) << name << " " << amplitude;
        }
      }
    }
  }
}

double smallest_normal(ElementType type) {
  return std::ldexp(1.0, type == ElementType::kFloat16 ? -14 : -126);
}

// By the values alone: zeros, signs, what is not finite, groups of one or two patterns.
void expect_left_alone(const NoiseCase& c, const Bytes& from, const Bytes& to) {
  const ElementType type = c.spec.type;
  for_each_group(c, [&](std::size_t first, std::size_t count) {
    bool above = false, below = false;
    std::set<std::string> patterns;
    for (std::size_t e = first; e < first + count; ++e) {
      const double x = value_at(type, from.data(), e);
      above = above || x > 0;
      below = below || x < 0;
      if (patterns.size() < 3) {
        patterns.insert({reinterpret_cast<const char*>(from.data() + e * element_size(type)),
                         element_size(type)});
      }
    }
    for (std::size_t e = first; e < first + count; ++e) {
      const double x = value_at(type, from.data(), e), y = value_at(type, to.data(), e);
      if (x == 0 || !std::isfinite(x) || patterns.size() < 3) {
        ASSERT_TRUE(same_element(c, from, to, e)) << c.name << " " << x << " " << y;
      } else if (!above || !below) {
        ASSERT_GE(above ? y : -y, std::min(std::fabs(x), smallest_normal(type)))
            << c.name << " " << x;
      }
      ASSERT_TRUE(!std::isfinite(x) || std::isfinite(y)) << c.name << " " << x;
    }
  });
}

TEST_P(DisturbanceOf, NoBlockMovesZerosSignsNonfiniteValuesOrExactGroups) {
  for (const NoiseCase& c : noise_cases(GetParam())) {
    for (const std::uint8_t bits : {1, 2, 3, 4, 6, 8}) {
      for (const float amplitude : {1.0f, -1.0f}) {
        expect_left_alone(c, c.data, disturbed(c, c.data, {bits, amplitude, 77}));
      }
    }
    if (const std::optional<Bytes> block = through_codec(c, 2, 3)) {
      expect_left_alone(c, *block, disturbed(c, *block, {4, -1, 77}));
    }
  }
}

TEST_P(DisturbanceOf, ExtremeGroupsStaysFiniteAndOnItsSide) {
  const ElementType type = GetParam();
  for (const int sign : {1, -1, 0}) {  // 0: both, so that ranges overflow
    NoiseCase c = copy_of(noise_case(type, "gaussian"));
    for (std::size_t e = 0; e < c.elements(); ++e) {  // up to the largest, and down to subnormals
      const double top = type == ElementType::kFloat16 ? 65504.0 : 3.3e38;
      const double tiny = std::ldexp(1.0, type == ElementType::kFloat16 ? -20 : -130);
      const double x = e / 256 % 2 == 0 ? top * double(e % 12) / 11 : tiny * double(1 + e % 50);
      set_value(type, c.data.data(), e, (sign != 0 ? sign : e % 2 == 0 ? 1 : -1) * x);
    }
    for (const float amplitude : {1.0f, -1.0f}) {
      for (const std::uint8_t bits : {1, 4, 8}) {
        expect_left_alone(c, c.data, disturbed(c, c.data, {bits, amplitude, 77}));
      }
    }
  }
}

TEST_P(DisturbanceOf, ValuesWithSidesKeepsThemThere) {
  for (const char* const name : {"sides of zero", "three sides", "sides that codes keep"}) {
    const NoiseCase& c = noise_case(GetParam(), name);
    const Sides& sides = c.spec.sides;
    const bool open = sides.kind == Sides::Kind::kOpen;
    const auto side = [&](double x) {
      const bool below = open ? x <= sides.low : x < sides.low;
      const bool above = open ? x >= sides.high : x > sides.high;
      return below ? 0 : above ? 2 : 1;
    };
    for (const std::uint8_t bits : {1, 2, 4}) {
      const Bytes block = disturbed(c, c.data, {bits, -1, 8});
      std::size_t moved = 0;
      for (std::size_t e = 0; e < c.elements(); ++e) {
        ASSERT_EQ(side(value_at(c.spec.type, block.data(), e)),
                  side(value_at(c.spec.type, c.data.data(), e)))
            << name;
        moved += same_element(c, c.data, block, e) ? 0 : 1;
      }
      EXPECT_GE(moved, c.elements() / 3) << name;
    }
  }
}

TEST_P(DisturbanceOf, LogProbabilitiesLeavesThoseNearZero) {
  for (const char* const name : {"log-probabilities of 21", "log-probabilities of 1000"}) {
    const NoiseCase& c = noise_case(GetParam(), name);
    const Bytes block = disturbed(c, c.data, {8, 1, 8});
    std::size_t moved = 0;
    for (std::size_t e = 0; e < c.elements(); ++e) {
      const bool equal = same_element(c, c.data, block, e);
      EXPECT_TRUE(equal || value_at(c.spec.type, c.data.data(), e) <= -1);
      moved += equal ? 0 : 1;
    }
    EXPECT_GE(moved, c.elements() / 10) << name;  // rounding to the type undoes many
  }
}

TEST_P(DisturbanceOf, GroupsWithTooWideStepsIsNone) {
  const NoiseCase& c = noise_case(GetParam(), "curved, half wide");
  const Bytes block = disturbed(c, c.data, {4, 1, 8});
  std::size_t wide_groups = 0, moved = 0;
  for_each_group(c, [&](std::size_t first, std::size_t count) {
    double low = INFINITY, high = -INFINITY;
    for (std::size_t e = first; e < first + count; ++e) {
      low = std::min(low, value_at(c.spec.type, c.data.data(), e));
      high = std::max(high, value_at(c.spec.type, c.data.data(), e));
    }
    const bool wide = (high - low) / 15 > 0.5;
    wide_groups += wide ? 1 : 0;
    for (std::size_t e = first; e < first + count; ++e) {
      const bool equal = same_element(c, c.data, block, e);
      EXPECT_TRUE(equal || !wide);
      moved += equal ? 0 : 1;
    }
  });
  EXPECT_GE(wide_groups, 30u);
  EXPECT_GE(moved, c.elements() / 3);
}

TEST_P(DisturbanceOf, ExactLinesIsNone) {
  for (const char* const name : {"flat rows", "flat columns"}) {
    const NoiseCase& c = noise_case(GetParam(), name);
    BlockSpec spec = c.spec;
    spec.bits = 4;
    const BlockPlan plan = plan_block(c.source(), spec, false, Effort::kThorough);
    ASSERT_EQ(plan.spec.bits, 4);
    ASSERT_FALSE(plan.lines.exact.empty());
    const Bytes block = disturbed(c, c.data, {4, -1, 8});
    std::size_t moved = 0;
    for (std::size_t e = 0; e < c.elements(); ++e) {
      const std::size_t length = c.spec.lines.length;
      const std::size_t line = c.spec.lines.look == Look::kColumns ? e % length : e / length;
      const bool exact =
          std::any_of(plan.lines.exact.begin(), plan.lines.exact.end(), [&](const LineRun& run) {
            return line >= run.first && line < run.first + std::size_t{run.count};
          });
      const bool equal = same_element(c, c.data, block, e);
      EXPECT_TRUE(equal || !exact) << name;
      moved += equal ? 0 : 1;
    }
    EXPECT_GE(moved, c.elements() / 2) << name;
  }
}

TEST_P(DisturbanceOf, TheSameNonceIsTheSameOnEveryPathWithAnyThreads) {
  for (const char* const name : {"mixture", "relu", "spans of zeros and above", "padded rows"}) {
    const NoiseCase& c = noise_case(GetParam(), name);
    const Bytes from = *through_codec(c, 2, 3);
    const Bytes block = disturbed(c, from, {4, 0.75f, 8});
    EXPECT_FALSE(same(block, disturbed(c, from, {4, 0.75f, 9})));
    for (const Executor& executor : {thread_executor(1), backwards_executor()}) {
      EXPECT_TRUE(same(block, disturbed(c, from, {4, 0.75f, 8}, executor)));
    }
    for (const Path& path : paths()) {
      const UsePath use(path);
      EXPECT_TRUE(same(block, disturbed(c, from, {4, 0.75f, 8}))) << path.name;
    }
  }
}

TEST_P(DisturbanceOf, SpansLeavesWhatLiesBetweenThem) {
  const NoiseCase& c = noise_case(GetParam(), "spans");
  const Bytes block = disturbed(c, c.data, {4, 1, 8});
  std::vector<bool> inside(c.data.size());
  for (const ByteRange& range : c.ranges) {
    std::fill(inside.begin() + long(range.begin), inside.begin() + long(range.end), true);
  }
  for (std::size_t i = 0; i < inside.size(); ++i) {
    EXPECT_TRUE(inside[i] || block.data()[i] == c.data.data()[i]) << i;
  }
  EXPECT_FALSE(same(block, c.data));
}

TEST(Disturbance, IsNoneOfBlocksWhoseValuesAreNotKept) {
  const NoiseCase& floats = noise_case(ElementType::kFloat32, "gaussian");
  const Sides sides{Sides::Kind::kClosed, false, 0, INFINITY};
  for (const BlockSpec& spec :
       {BlockSpec{.type = ElementType::kInt32},
        BlockSpec{.type = ElementType::kFloat32, .kept = Kept::kNothing},
        BlockSpec{.type = ElementType::kFloat32, .kept = Kept::kSides, .sides = sides}}) {
    NoiseCase c{"", spec, copy_of(floats.data), floats.ranges};
    EXPECT_TRUE(same(c.data, disturbed(c, c.data, {4, 1, 8})));
  }
  EXPECT_TRUE(same(floats.data, disturbed(floats, floats.data, {0, 1, 8})));
}

TEST(Disturbance, IsRefusedForUnsoundRanges) {
  NoiseCase c = copy_of(noise_case(ElementType::kFloat32, "gaussian"));
  Bytes block = copy_of(c.data);
  const auto disturb = [&] {
    const BlockSource where{block.data(), block.size(), c.ranges.data(), c.ranges.size()};
    return disturb_block(block.data(), where, c.spec, {4, 1, 8}, serial_executor());
  };
  for (const std::vector<ByteRange>& ranges : {std::vector<ByteRange>{{0, block.size() + 4}},
                                               {{400, 800}, {0, 400}},
                                               {{800, 400}},
                                               {{0, 1002}}}) {
    c.ranges = ranges;
    EXPECT_FALSE(disturb());
  }
  EXPECT_TRUE(same(block, c.data));
}

}  // namespace
}  // namespace pleat::compress::block
