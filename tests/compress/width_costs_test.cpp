// Predicted bytes and errors against payloads that are made and decoded.
#include "compress/block/width_costs.h"

#include <array>
#include <map>

#include "tests/compress/noise_cases.h"

namespace pleat::compress::block {
namespace {

using namespace compress::test;
using namespace block::testing;

struct Truth {
  bool possible = false;
  double bytes = 0;
  double error = 0, deviation = 0;      // in the mean over nonces; of that mean
  std::optional<NoisePayload> payload;  // may be of a wider width
};
using Truths = std::array<Truth, kCostWidths.size()>;

// By payloads of many nonces: of 160 Ki elements in all.
Truth truth_of(const NoiseCase& c, std::uint8_t bits) {
  BlockSpec spec = c.spec;
  spec.bits = bits;
  Truth truth;
  truth.payload = noise_payload(c.source(), spec, 100);
  truth.possible = truth.payload && truth.payload->form.bits == bits;
  if (!truth.possible) {
    return truth;
  }
  const std::size_t nonces = std::max<std::size_t>(2, 160 * 1024 / c.elements());
  const double n = double(nonces);
  double squares = 0;
  for (std::size_t i = 0; i < nonces; ++i) {
    const std::optional<NoisePayload> payload = noise_payload(c.source(), spec, 1000 * bits + i);
    EXPECT_TRUE(payload && payload->form.bits == bits) << c.name;
    const Bytes restored = restored_block(*payload, c.data.size());
    const double error = squared_difference(c, restored.data(), c.data.data());
    truth.bytes += double(payload->bytes.size()) / n;
    truth.error += error / n;
    squares += error * error / n;
  }
  truth.deviation = std::sqrt(std::max(0.0, squares - truth.error * truth.error) / (n - 1));
  return truth;
}

// How far a prediction may be from the truth.
struct Bounds {
  double bytes, error;
  double more_bytes = 0, more_error = 0;
};

void expect_near(const WidthCosts& costs, const Truths& truths, Bounds bounds,
                 const std::string& what) {
  for (std::size_t w = 0; w < costs.size(); ++w) {
    const WidthCost& cost = costs[w];
    const Truth& truth = truths[w];
    const std::string at = what + " at " + std::to_string(kCostWidths[w]);
    EXPECT_EQ(cost.bits, kCostWidths[w]);
    EXPECT_EQ(cost.possible, truth.possible) << at;
    if (!cost.possible || !truth.possible) {
      EXPECT_EQ(cost.payload_bytes, cost.possible ? cost.payload_bytes : 0u) << at;
      continue;
    }
    EXPECT_NEAR(double(cost.payload_bytes), truth.bytes,
                bounds.bytes * truth.bytes + bounds.more_bytes)
        << at;
    EXPECT_NEAR(cost.squared_error, truth.error,
                bounds.error * truth.error + bounds.more_error + 4 * truth.deviation)
        << at;
  }
}

std::optional<WidthCosts> costs_of(const NoiseCase& c, const NoisePayload& payload) {
  return width_costs(payload.form, payload.bytes.data(), payload.bytes.size(), c.data.size(),
                     c.spec);
}

// From values, bytes are exact. From codes, errors are off by most where elements crowd near the
// lowest level, as probabilities do, and from few bits where values come back on their side. What a
// group of one bit holds of zeros is not known.
constexpr Bounds kFromValues{1e-9, 0.04};
Bounds bounds_from(unsigned bits, const NoiseCase& c) {
  const bool crowds = c.name == "softmax";
  // The patch has the flat lines of the payload's own width.
  const bool flat = c.spec.lines.look == Look::kRows || c.spec.lines.look == Look::kColumns;
  const double bytes = flat ? 0.10 : 0.02;
  // A group whose step is about as wide as it may be is kept beside the codes, or is not.
  const bool any = c.spec.steps == Steps::kAny;
  const double group = any ? 0 : 256 * double(element_size(c.spec.type));
  const double step = any ? 0 : widest_step(c.spec.steps);
  const double error = 1.1 * 256 * step * step / 12;
  switch (bits) {
    case 1:
      return {0.5, 0.8, group, error};
    case 2:
      return {bytes, crowds ? 0.50 : 0.22, group, error};
    case 3:
      return {bytes, crowds ? 0.28 : 0.15, group, error};
    default:
      return {bytes, crowds ? 0.20 : 0.12, group, error};
  }
}

std::size_t width_index(unsigned bits) {
  return std::size_t(std::find(kCostWidths.begin(), kCostWidths.end(), bits) - kCostWidths.begin());
}

class WidthCostsOf : public ::testing::TestWithParam<ElementType> {};

TEST_P(WidthCostsOf, EveryKindOfBlockAreThoseOfItsPayloads) {
  for (const NoiseCase& c : noise_cases(GetParam())) {
    Truths truths;
    std::transform(kCostWidths.begin(), kCostWidths.end(), truths.begin(),
                   [&](std::uint8_t bits) { return truth_of(c, bits); });
    const std::optional<WidthCosts> costs = width_costs(c.source(), c.spec, serial_executor());
    ASSERT_TRUE(costs) << c.name;
    expect_near(*costs, truths, kFromValues, c.name);
    for (const Truth& from : truths) {
      if (!from.payload) {
        continue;
      }
      const unsigned bits = from.payload->form.bits;
      std::optional<WidthCosts> costs_from = costs_of(c, *from.payload);
      ASSERT_TRUE(costs_from) << c.name;
      EXPECT_EQ((*costs_from)[width_index(bits)].payload_bytes, from.payload->bytes.size());
      for (std::size_t w = 0; w < truths.size() && c.spec.lines.look != Look::kNone; ++w) {
        if (!truths[w].possible && kCostWidths[w] < 3) {  // more lines are flat there
          (*costs_from)[w] = {.bits = kCostWidths[w]};
        }
      }
      expect_near(*costs_from, truths, bounds_from(bits, c),
                  c.name + " from " + std::to_string(bits));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, WidthCostsOf, ::testing::ValuesIn(kFloatTypes),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST(WidthCosts, BelowTheFloorNoWidthIsPossible) {
  NoiseCase c = copy_of(noise_case(ElementType::kFloat32, "gaussian"));
  c.spec.bits = 1;
  c.spec.floor = 3;
  const std::optional<NoisePayload> payload = noise_payload(c.source(), c.spec, 5);
  ASSERT_TRUE(payload);
  for (const auto& costs :
       {width_costs(c.source(), c.spec, serial_executor()), costs_of(c, *payload)}) {
    ASSERT_TRUE(costs);
    for (const WidthCost& cost : *costs) {
      EXPECT_EQ(cost.possible, cost.bits >= 3);
    }
  }
}

TEST(WidthCosts, BlocksThatSaveTooLittleHaveNone) {
  NoiseCase c = copy_of(noise_case(ElementType::kBFloat16, "a short group"));
  c.ranges = {{0, 40}};
  const std::optional<WidthCosts> costs = width_costs(c.source(), c.spec, serial_executor());
  ASSERT_TRUE(costs);
  c.ranges = {{40, 20}};  // unsound
  const std::optional<WidthCosts> none = width_costs(c.source(), c.spec, serial_executor());
  ASSERT_TRUE(none);
  for (std::size_t w = 0; w < costs->size(); ++w) {
    c.ranges = {{0, 40}};
    EXPECT_EQ((*costs)[w].possible, truth_of(c, kCostWidths[w]).possible);
    EXPECT_FALSE((*none)[w].possible);
  }
}

TEST(WidthCosts, ThereAreNoneOfWhatHasNoCodes) {
  const NoiseCase& c = noise_case(ElementType::kFloat32, "gaussian");
  const BlockSpec sides{.type = c.spec.type,
                        .kept = Kept::kSides,
                        .sides = {Sides::Kind::kClosed, false, 0, INFINITY}};
  for (const BlockSpec& spec : {BlockSpec{.type = ElementType::kInt32}, sides,
                                BlockSpec{.type = c.spec.type, .kept = Kept::kNothing}}) {
    EXPECT_FALSE(width_costs(c.source(), spec, serial_executor()));
    if (const std::optional<NoisePayload> payload = noise_payload(c.source(), spec, 5)) {
      EXPECT_FALSE(costs_of(c, *payload));
      EXPECT_FALSE(width_costs(payload->form, payload->bytes.data(), payload->bytes.size(),
                               c.data.size(), spec));
    }
  }
}

TEST(WidthCosts, OfValuesDoNotDependOnThreads) {
  const NoiseCase& c = noise_case(ElementType::kBFloat16, "mixture");
  const auto serial = width_costs(c.source(), c.spec, serial_executor());
  for (const Executor& executor : {thread_executor(1), backwards_executor()}) {
    const auto costs = width_costs(c.source(), c.spec, executor);
    ASSERT_TRUE(serial && costs);
    for (std::size_t w = 0; w < costs->size(); ++w) {
      EXPECT_EQ((*costs)[w].payload_bytes, (*serial)[w].payload_bytes);
      EXPECT_EQ((*costs)[w].squared_error, (*serial)[w].squared_error);
    }
  }
}

// In a buffer of exactly the payload's bytes.
TEST(WidthCosts, DamagedPayloadsAreReadWithinTheirBytes) {
  std::mt19937_64 random(seed());
  for (const char* const name :
       {"mixture", "padded rows", "log-probabilities of 21", "curved, some wide", "masked scores",
        "spans of zeros and above"}) {
    const NoiseCase& c = noise_case(ElementType::kFloat16, name);
    BlockSpec spec = c.spec;
    spec.bits = 4;
    const std::optional<NoisePayload> payload = noise_payload(c.source(), spec, 5);
    ASSERT_TRUE(payload);
    for (int i = 0; i < 60; ++i) {
      std::vector<unsigned char> bytes = payload->bytes;
      const std::size_t head = i % 2 == 0 ? std::min<std::size_t>(bytes.size(), 600) : bytes.size();
      for (int n = 0; n < 4; ++n) {
        bytes[random() % head] = static_cast<unsigned char>(random());
      }
      bytes.resize(i % 5 == 0 ? random() % bytes.size() : bytes.size());
      Bytes exact(bytes.size());
      std::copy(bytes.begin(), bytes.end(), exact.data());
      (void)width_costs(payload->form, exact.data(), exact.size(), c.data.size(), spec);
    }
    std::vector<unsigned char> cut = payload->bytes;
    cut.pop_back();
    EXPECT_FALSE(width_costs(payload->form, cut.data(), cut.size(), c.data.size(), spec));
  }
}

}  // namespace
}  // namespace pleat::compress::block
