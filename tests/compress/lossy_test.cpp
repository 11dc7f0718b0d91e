#include <algorithm>
#include <functional>
#include <set>
#include <tuple>

#include "compress/format.h"
#include "compress/grouped/group_math.h"
#include "tests/compress/support.h"

namespace pleat::compress::test {
namespace {

constexpr std::size_t kLossySizes[] = {1, 255, 256, 257, 65536 + 3};

// Range of each group and the bound it promises, straight from the data.
struct GroupRange {
  double low, high;
  double smallest;  // above zero
};
GroupRange range_of(ElementType type, const void* data, std::size_t from, std::size_t to) {
  GroupRange range{INFINITY, -INFINITY, INFINITY};
  for (std::size_t e = from; e < to; ++e) {
    const double x = value_at(type, data, e);
    range.low = std::min(range.low, x);
    range.high = std::max(range.high, x);
    if (x > 0) range.smallest = std::min(range.smallest, x);
  }
  return range;
}
// The step is rounded up: by 2^-22 for float32, by 2^-6 for 16-bit metadata. Groups of zeros and
// positive values keep a code for zero; where all of these are one value (three bit patterns, as
// zero has two), nothing is left to divide and the step is the smallest there is.
double step_of(ElementType type, const GroupRange& range, unsigned bits) {
  const bool zero_kept = bits >= 2 && range.low == 0 && range.high > 0;
  return (zero_kept
              ? std::max<double>((range.high - range.smallest) / ((1 << bits) - 2), kSmallestStep)
              : (range.high - range.low) / ((1 << bits) - 1)) *
         (type == ElementType::kFloat32 ? 1 + 1e-6 : 1 + 1.0 / 64 + 1e-6);
}

// How a group of a payload that is not transformed comes back, as its metadata says.
struct Restoring {
  bool exactly = true;  // not quantised
  bool dithered = false;
  double step = 0;
};
template <class T>
Restoring restoring_of(const unsigned char* metadata, unsigned bits) {
  Metadata<T> words;
  std::memcpy(&words, metadata, sizeof words);
  if (kind_of(words) != GroupKind::kRegular) return {};
  const Dequantiser group = read_group(words, bits);
  return {false, group.dither, std::fabs(double(group.step))};
}
Restoring restoring_of(const std::vector<unsigned char>& payload, std::size_t group) {
  Header header;
  std::memcpy(&header, payload.data(), sizeof header);
  if (header.kind != static_cast<std::uint8_t>(PayloadKind::kGrouped)) return {};
  const auto type = static_cast<ElementType>(header.type);
  const unsigned char* const metadata =
      payload.data() + kHeaderBytes + group * 2 * element_size(type);
  return type == ElementType::kFloat32    ? restoring_of<Float32>(metadata, header.bits)
         : type == ElementType::kBFloat16 ? restoring_of<BFloat16>(metadata, header.bits)
                                          : restoring_of<Float16>(metadata, header.bits);
}

// The spacing of the type's numbers around `x`.
double spacing(ElementType type, double x) {
  const int least = type == ElementType::kFloat16 ? -14 : -126;
  const int digits = type == ElementType::kFloat32 ? 23 : type == ElementType::kBFloat16 ? 7 : 10;
  return std::ldexp(1, (x == 0 ? least : std::max(std::ilogb(x), least)) - digits);
}
// The farthest from its element that `y` may be: D/2 dithered (the noise's grain leaves 255 of 256
// parts of it, n's rounding takes the last), else D. On top, only roundings: two of 2^-24 in
// (x - anchor) / D <= K; then those of the result, to float32 and to the type, each half a spacing
// at most and, x being representable itself, no more than the error before it.
double farthest(ElementType type, const Restoring& group, unsigned bits, double y) {
  if (group.exactly) return 0;
  double error = group.step * ((group.dithered ? 0.5 : 1.0) + std::ldexp((1 << bits) - 1, -23));
  for (const ElementType rounded : {ElementType::kFloat32, type})
    error += std::min(error, spacing(rounded, y) / 2);
  return error;
}

enum class Data {
  kNormal,
  kShifted,
  kPositive,
  kRelu,
  kNegative,
  kHeavy,
  kTiny,
  kHuge,
  kAlternating
};
constexpr Data kAllData[] = {Data::kNormal, Data::kShifted,  Data::kPositive,
                             Data::kRelu,   Data::kNegative, Data::kHeavy,
                             Data::kTiny,   Data::kHuge,     Data::kAlternating};
double draw(Data data, std::mt19937_64& random, ElementType type) {
  std::normal_distribution<double> normal;
  const double x = normal(random);
  const bool half = type == ElementType::kFloat16;
  switch (data) {
    case Data::kNormal:
      return x;
    case Data::kShifted:
      return (half ? 1000 : 1e4) + x;
    case Data::kPositive:
      return std::min(std::exp(3 * x), 6e4);  // codes near the largest float16 are clamped
    case Data::kRelu:
      return std::max(x, 0.0);
    case Data::kNegative:
      return -std::exp(x);
    case Data::kHeavy:
      return std::clamp(x * x * x * x * x, -6e4, 6e4);
    case Data::kTiny:
      return x * (half ? 1e-6 : 1e-28);
    case Data::kHuge:
      return std::clamp(x, -3.0, 3.0) * (half ? 2e4 : 1e37);
    case Data::kAlternating:
      return random() % 2 ? -1.0 : 1.0 + 0.001 * x;
  }
  return 0;
}

class EveryWidth : public testing::TestWithParam<std::tuple<ElementType, unsigned>> {};
INSTANTIATE_TEST_SUITE_P(Lossy, EveryWidth,
                         testing::Combine(testing::ValuesIn(kFloatTypes),
                                          testing::ValuesIn(kWidths)),
                         [](const auto& info) {
                           return std::string(name_of(std::get<0>(info.param))) + "_" +
                                  std::to_string(std::get<1>(info.param)) + "bits";
                         });

TEST_P(EveryWidth, EveryElementStaysWithinItsBoundAndSign) {
  const auto [type, bits] = GetParam();
  std::mt19937_64 random(seed());
  for (const Data data : kAllData) {
    for (const std::size_t elements : kLossySizes) {
      for (const std::size_t shift : {std::size_t{0}, element_size(type), 3 * element_size(type)}) {
        Bytes source(elements * element_size(type), shift);
        for (std::size_t e = 0; e < elements; ++e)
          set_value(type, source.data(), e, draw(data, random, type));
        const Encoded out = encode_span(source.data(), elements, type, bits, random());
        ASSERT_EQ(out.status, Status::kOk);
        const auto restored = decode_span(out.payload, source.size());
        for (std::size_t from = 0; from < elements; from += 256) {
          const std::size_t to = std::min(from + 256, elements);
          const GroupRange range = range_of(type, source.data(), from, to);
          const Restoring group = restoring_of(out.payload, from / 256);
          if (!group.exactly) {
            const double most = step_of(type, range, bits);
            ASSERT_LE(group.step, most);
            ASSERT_GE(group.step,
                      most / (type == ElementType::kFloat32 ? 1 + 2e-6 : 1 + 1.0 / 64 + 2e-6));
            if (data == Data::kNormal && range.low < 0 && range.high > 0) {
              ASSERT_TRUE(group.dithered);  // the looser bound is for other groups
            }
          }
          for (std::size_t e = from; e < to; ++e) {
            const double x = value_at(type, source.data(), e);
            const double y = value_at(type, restored.data(), e);
            ASSERT_TRUE(std::isfinite(y));
            ASSERT_LE(std::fabs(x - y), farthest(type, group, bits, y))
                << int(data) << " element " << e << " x " << x
                << (group.dithered ? " dithered" : " plain");
            if (range.low >= 0) {
              ASSERT_GE(y, 0);
            }
            if (range.high <= 0) {
              ASSERT_LE(y, 0);
            }
            if (range.low > 0 || (bits >= 2 && range.low == 0 && x > 0)) {
              ASSERT_GT(y, 0);
            }
            if (range.high < 0) {
              ASSERT_LT(y, 0);
            }
          }
        }
      }
    }
  }
}

TEST_P(EveryWidth, ReluZerosComeBackAsZero) {
  const auto [type, bits] = GetParam();
  std::mt19937_64 random(seed());
  for (const double sign : {1.0, -1.0}) {
    const std::size_t elements = 256 * 40 + 100;
    Bytes source(elements * element_size(type));
    for (std::size_t e = 0; e < elements; ++e)
      set_value(type, source.data(), e, sign * draw(Data::kRelu, random, type));
    const Encoded out = encode_span(source.data(), elements, type, bits, random());
    const auto restored = decode_span(out.payload, source.size());
    for (std::size_t e = 0; e < elements; ++e) {
      if (value_at(type, source.data(), e) != 0) continue;
      ASSERT_EQ(value_at(type, restored.data(), e), 0);
    }
  }
}

// Three bit patterns, as zero has two, but one value above it: code 0 and code 1 are all it takes.
TEST_P(EveryWidth, ZerosOfBothSignsBesideOneValueAreExact) {
  const auto [type, bits] = GetParam();
  if (bits < 2) GTEST_SKIP() << "no code to spare for zero";
  std::mt19937_64 random(seed());
  for (const double value : {0.00079, 1.0, 30000.0}) {
    const std::size_t elements = 256 + 3;
    Bytes source(elements * element_size(type));
    const double patterns[] = {0.0, -0.0, value};
    for (std::size_t e = 0; e < elements; ++e) {
      const std::size_t which = e < 256 && e >= 3 ? random() % 3 : e % 256;  // all three in each
      set_value(type, source.data(), e, patterns[which]);
    }
    const Encoded out = encode_span(source.data(), elements, type, bits, random());
    const auto restored = decode_span(out.payload, source.size());
    for (std::size_t group = 0; group < 2; ++group)
      ASSERT_LE(restoring_of(out.payload, group).step, kSmallestStep);
    for (std::size_t e = 0; e < elements; ++e)
      ASSERT_EQ(value_at(type, restored.data(), e), value_at(type, source.data(), e)) << e;
  }
}

// Groups of one sign whose values reach down to the smallest number the type has.
TEST_P(EveryWidth, StrictlySignedGroupsNeverReachZero) {
  const auto [type, bits] = GetParam();
  std::mt19937_64 random(seed());
  const double smallest = type == ElementType::kFloat16    ? std::ldexp(1, -24)
                          : type == ElementType::kBFloat16 ? std::ldexp(1, -133)
                                                           : std::ldexp(1, -149);
  for (const double sign : {1.0, -1.0}) {
    for (int trial = 0; trial < 300; ++trial) {
      const std::size_t elements = 256;
      Bytes source(elements * element_size(type));
      const double base = smallest * std::exp2(double(random() % 60));
      const double range = base * std::exp2(double(random() % 40) - 10);
      for (std::size_t e = 0; e < elements; ++e)
        set_value(type, source.data(), e,
                  sign * std::min(base + range * (double(random() % 1000) / 999), 60000.0));
      const Encoded out = encode_span(source.data(), elements, type, bits, random());
      ASSERT_EQ(out.status, Status::kOk);
      const auto restored = decode_span(out.payload, source.size());
      for (std::size_t e = 0; e < elements; ++e)
        ASSERT_GT(sign * value_at(type, restored.data(), e), 0) << trial;
    }
  }
}

// Mean over many nonces within 5 standard errors of x; mean squared error D^2/12 (dithered groups).
TEST_P(EveryWidth, IsUnbiasedWithVarianceOfSubtractiveDither) {
  const auto [type, bits] = GetParam();
  if (type != ElementType::kFloat32 && bits == 8) GTEST_SKIP() << "below the type's own rounding";
  std::mt19937_64 random(seed());
  const std::size_t elements = 512;
  const int trials = 4000;
  for (const Data data : {Data::kNormal, Data::kPositive, Data::kRelu, Data::kNegative}) {
    Bytes source(elements * element_size(type));
    for (std::size_t e = 0; e < elements; ++e)
      set_value(type, source.data(), e, draw(data, random, type));
    std::vector<double> sum(elements), squares(elements);
    for (int trial = 0; trial < trials; ++trial) {
      const Encoded out = encode_span(source.data(), elements, type, bits, random());
      const auto restored = decode_span(out.payload, source.size());
      for (std::size_t e = 0; e < elements; ++e) {
        const double error = value_at(type, restored.data(), e) - value_at(type, source.data(), e);
        sum[e] += error;
        squares[e] += error * error;
      }
    }
    for (std::size_t from = 0; from < elements; from += 256) {
      const GroupRange range = range_of(type, source.data(), from, from + 256);
      const double step = step_of(type, range, bits);
      double mean_square = 0, mean_sum = 0, variance_sum = 0, ulp_squares = 0;
      for (std::size_t e = from; e < from + 256; ++e) {
        mean_square += squares[e] / trials / 256;
        mean_sum += sum[e] / trials;
        variance_sum += squares[e] / trials / trials;
        // 8-bit noise: up to D/512 of bias per element. Rounding to the type adds its own: at most
        // half an ulp where codes are decoded plainly, far less under dither.
        const double x = std::fabs(value_at(type, source.data(), e)) + step;
        const double ulp = type == ElementType::kFloat32    ? x * 1e-7
                           : type == ElementType::kBFloat16 ? x / 256
                                                            : x / 2048;
        ulp_squares += ulp * ulp;
        // Of 26,000 elements over all types and widths one is beyond 5 sigma in every 70th run.
        const double allowed = 6.5 * std::sqrt(squares[e] / trials / trials) + step / 256 +
                               (data == Data::kNormal ? 0.15 * std::min(ulp, step) : ulp);
        EXPECT_LE(std::fabs(sum[e] / trials), allowed) << int(data) << " element " << e;
      }
      // Where codes are decoded plainly, all elements of a level err by the same rounding.
      const double a_level = data == Data::kNormal ? 0 : std::max(1.0, std::ldexp(256, -int(bits)));
      EXPECT_LE(std::fabs(mean_sum), 5 * std::sqrt(variance_sum + a_level * ulp_squares / 12) +
                                         256 * step * (type == ElementType::kFloat32 ? 2e-4 : 4e-3))
          << int(data);
      const double uniform = step * step / 12;
      if (data == Data::kNormal) {
        EXPECT_NEAR(mean_square / uniform, 1, type == ElementType::kFloat32 ? 0.02 : 0.08);
      } else {
        EXPECT_LE(mean_square, 3.05 * uniform);  // stochastic rounding: D^2 / 4 at worst
      }
    }
  }
}

// Groups that a quantiser could treat unfairly; the steps of their quantisers at `bits`.
struct Adversary {
  const char* what;
  std::vector<float> x;
  double step;
};
std::vector<Adversary> adversaries(unsigned bits, std::mt19937_64& random) {
  const double largest = (1 << bits) - 1;
  std::normal_distribution<float> normal;
  std::vector<Adversary> all;
  const auto add = [&](const char* what, const std::function<double(std::size_t)>& value) {
    Adversary one{what, std::vector<float>(256), 0};
    for (std::size_t e = 0; e < 256; ++e) one.x[e] = static_cast<float>(value(e));
    const auto [low, high] = std::minmax_element(one.x.begin(), one.x.end());
    one.step = (double(*high) - *low) / largest;
    if (*low == 0.0f && bits >= 2) {  // zero-kept: from the smallest above zero
      float least = *high;
      for (const float v : one.x) least = v > 0 ? std::min(least, v) : least;
      one.step = (double(*high) - least) / (largest - 1);
    }
    all.push_back(std::move(one));
  };
  add("a spike of 50 deviations", [&](std::size_t e) { return e == 100 ? 50.0 : normal(random); });
  add("half way between levels", [&](std::size_t e) {
    return e == 0 ? -1.0 : e == 1 ? largest - 1.0 : double(e % std::size_t(largest)) - 0.5;
  });
  add("just beside a level", [&](std::size_t e) {
    return e == 0 ? -1.0 : e == 1 ? largest - 1.0 : double(e % std::size_t(largest)) - 0.999;
  });
  add("far from zero", [&](std::size_t e) { return 100.0 + double(e) / 25.6; });
  add("negative, near zero", [&](std::size_t e) { return -1e-3 * double(e + 1); });
  add("half of them zero",
      [&](std::size_t e) { return e % 2 != 0 ? std::abs(normal(random)) : 0.0; });
  add("huge", [&](std::size_t) { return 1e30 * normal(random); });
  add("tiny", [&](std::size_t) { return 1e-30 * normal(random); });
  return all;
}

// Over 10^5 draws each element's mean is its own to within D/512, which the noise's 8 bits leave,
// and 4.5 standard errors. The nonces are the same in every run.
TEST(Lossy, AdversarialGroupsAreUnbiasedOverAHundredThousandDraws) {
  std::mt19937_64 random(7);
  const int draws = 100'000;
  for (const unsigned bits : kWidths) {
    const std::vector<Adversary> groups = adversaries(bits, random);
    std::vector<float> x, restored(groups.size() * 256);
    for (const Adversary& group : groups) x.insert(x.end(), group.x.begin(), group.x.end());
    std::vector<double> sum(x.size()), squares(x.size());
    CodecSpec spec;
    spec.bits = static_cast<std::uint8_t>(bits);
    std::vector<unsigned char> payload(payload_bound(spec, ElementType::kFloat32, x.size()));
    for (int draw = 0; draw < draws; ++draw) {
      const EncodeResult out =
          encode({x.data(), x.size(), ElementType::kFloat32}, spec, std::uint64_t(draw),
                 payload.data(), payload.size(), serial_executor(), nullptr);
      ASSERT_EQ(out.status, Status::kOk);
      ASSERT_EQ(decode(payload.data(), out.payload_bytes, restored.data(), 4 * x.size(),
                       serial_executor()),
                Status::kOk);
      for (std::size_t e = 0; e < x.size(); ++e) {
        const double error = double(restored[e]) - x[e];
        sum[e] += error;
        squares[e] += error * error;
      }
    }
    for (std::size_t e = 0; e < x.size(); ++e) {
      const double mean = sum[e] / draws;
      const double deviation = std::sqrt(std::max(0.0, squares[e] / draws - mean * mean));
      EXPECT_LE(std::fabs(mean),
                groups[e / 256].step / 512 + 4.5 * deviation / std::sqrt(double(draws)))
          << groups[e / 256].what << ", " << bits << " bits, element " << e % 256;
    }
  }
}

// Over a million offsets within the steps the noise's grain averages out as well: D/512 would show.
TEST(Lossy, TheMeanOverAMillionOffsetsIsUnbiased) {
  for (const unsigned bits : kWidths) {
    const double largest = (1 << bits) - 1;
    const std::size_t groups = 4000, offsets = groups * 254;
    std::vector<float> x(groups * 256);
    std::size_t offset = 0;
    for (std::size_t e = 0; e < x.size(); ++e) {
      const std::size_t place = e % 256;
      x[e] = static_cast<float>(place == 0   ? -1.0
                                : place == 1 ? largest - 1.0
                                             : double(offset % std::size_t(largest)) - 1.0 +
                                                   double(offset) / double(offsets));
      offset += place > 1 ? 1 : 0;
    }
    const Encoded out = encode_span(x.data(), x.size(), ElementType::kFloat32, bits, 5);
    const auto restored = decode_span(out.payload, 4 * x.size());
    double sum = 0;
    for (std::size_t e = 0; e < x.size(); ++e)
      if (e % 256 > 1) sum += value_at(ElementType::kFloat32, restored.data(), e) - x[e];
    EXPECT_LE(std::fabs(sum), 3 * std::sqrt(double(offsets) / 12)) << bits;  // D is 1
  }
}

TEST(Lossy, LargeFloat32TensorsShrinkMoreThanSevenAndAHalfTimes) {
  const std::size_t elements = 1 << 20;
  std::vector<float> x(elements);
  std::mt19937_64 random(seed());
  for (float& value : x) value = std::normal_distribution<float>()(random);
  const Encoded out = encode_span(x.data(), elements, ElementType::kFloat32, 4);
  EXPECT_GE(4.0 * elements / out.payload.size(), 7.5);
}

TEST(Lossy, ExtremeRangesStayFiniteAndBounded) {
  std::mt19937_64 random(seed());
  for (const unsigned bits : kWidths) {
    struct Case {
      ElementType type;
      double low, high;
    };
    const Case cases[] = {
        {ElementType::kFloat32, -1e38, 1e38},
        {ElementType::kFloat32, 0, 3.4028234663852886e38},
        {ElementType::kFloat32, -3.4028234663852886e38, 0},
        {ElementType::kFloat32, 3.4e38, 3.4028234663852886e38},
        {ElementType::kFloat32, 1e8, 1e8 + 64},
        {ElementType::kFloat32, -1e8 - 64, -1e8},
        {ElementType::kFloat32, 1e8, 1e8 + 1000},
        {ElementType::kBFloat16, 0, 3.3895313892515355e38},
        {ElementType::kBFloat16, -1e38, 1e38},
        {ElementType::kBFloat16, 3.3e38, 3.3895313892515355e38},
        {ElementType::kFloat16, -65504, 0},
        {ElementType::kFloat16, 0, 65504},
        {ElementType::kFloat16, -65504, 65504},
        {ElementType::kFloat16, 65000, 65504},
        {ElementType::kFloat16, 0, std::ldexp(300, -24)},
        {ElementType::kFloat16, -std::ldexp(5, -24), std::ldexp(5, -24)},
        {ElementType::kFloat16, std::ldexp(1, -24), std::ldexp(9, -24)},
    };
    for (const Case& c : cases) {
      for (int trial = 0; trial < 50; ++trial) {
        const std::size_t elements = 256;
        Bytes source(elements * element_size(c.type));
        for (std::size_t e = 0; e < elements; ++e)
          set_value(c.type, source.data(), e,
                    c.low + (c.high - c.low) * (double(random() % 4097) / 4096));
        set_value(c.type, source.data(), 17, c.low);
        set_value(c.type, source.data(), 100, c.high);
        const Encoded out = encode_span(source.data(), elements, c.type, bits, random());
        ASSERT_EQ(out.status, Status::kOk);
        const auto restored = decode_span(out.payload, source.size());
        const Restoring group = restoring_of(out.payload, 0);
        ASSERT_LE(group.step, step_of(c.type, range_of(c.type, source.data(), 0, elements), bits));
        for (std::size_t e = 0; e < elements; ++e) {
          const double y = value_at(c.type, restored.data(), e);
          ASSERT_TRUE(std::isfinite(y)) << c.low << ".." << c.high;
          ASSERT_LE(std::fabs(y - value_at(c.type, source.data(), e)),
                    farthest(c.type, group, bits, y))
              << c.low << ".." << c.high << " " << bits << " bits";
        }
      }
    }
  }
}

TEST(Lossy, NonFiniteGroupsAreKeptBitExactAtOneAndTwoBits) {
  std::mt19937_64 random(seed());
  for (const ElementType type : kFloatTypes) {
    for (const unsigned bits : {1u, 2u}) {
      const std::size_t elements = 256 * 300 + 7, size = element_size(type);
      Bytes source(elements * size);
      for (std::size_t e = 0; e < elements; ++e)
        set_value(type, source.data(), e, draw(Data::kNormal, random, type));
      const std::size_t poisoned[] = {0, 150, 200, 300};  // the last one is the short group
      const std::uint32_t patterns[] = {0x7FC01234, 0x7F800000, 0x7F810001, 0xFF800000};
      const std::uint16_t halves[] = {0x7E01, 0x7C00, 0x7C01, 0xFC00};
      for (int i = 0; i < 4; ++i) {  // the third NaN signals
        unsigned char* const at = source.data() + (poisoned[i] * 256 + 5) * size;
        const std::uint16_t half = type == ElementType::kBFloat16
                                       ? static_cast<std::uint16_t>(patterns[i] >> 16)
                                       : halves[i];
        std::memcpy(at, size == 4 ? static_cast<const void*>(&patterns[i]) : &half, size);
      }
      const Encoded out = encode_span(source.data(), elements, type, bits, random());
      ASSERT_EQ(out.status, Status::kOk);
      EXPECT_EQ(out.statistics.escaped_groups, 4u);
      const auto restored = decode_span(out.payload, source.size());
      for (const std::size_t g : poisoned) {
        const std::size_t from = g * 256 * size, to = std::min(from + 256 * size, source.size());
        EXPECT_EQ(std::memcmp(restored.data() + from, source.data() + from, to - from), 0);
      }
      EXPECT_NE(std::memcmp(restored.data(), source.data(), source.size()), 0);
    }
  }
}

TEST(Lossy, TooManyNonFiniteGroupsAreRefusedAtOneAndTwoBits) {
  std::vector<float> x(256 * 640);
  for (std::size_t e = 0; e < x.size(); ++e) x[e] = std::sin(double(e));
  for (int g = 0; g < 10; ++g) x[g * 64 * 256] = NAN;
  for (const unsigned bits : {1u, 2u})
    EXPECT_EQ(encode_span(x.data(), x.size(), ElementType::kFloat32, bits).status, Status::kOk);
  x[5 * 256] = INFINITY;
  for (const unsigned bits : {1u, 2u})
    EXPECT_EQ(encode_span(x.data(), x.size(), ElementType::kFloat32, bits).status,
              Status::kTooManyEscapes);
}

TEST(Lossy, TooManyNonFiniteGroupsEndItInHoweverManyParts) {
  constexpr std::size_t kBlockSlots = 64 * 64;  // bytes of a block's codes at 2 bits
  std::vector<float> x(256 * 64 * 64);          // 64 blocks, of whose groups one block's may escape
  for (std::size_t e = 0; e < x.size(); ++e) x[e] = e % 256 == 7 ? NAN : std::sin(double(e));
  CodecSpec spec;
  spec.bits = 2;
  const Span span{x.data(), x.size(), ElementType::kFloat32};
  std::vector<std::uint8_t> payload(payload_bound(spec, span.type, span.elements), 0xAB);
  const EncodeResult result =
      encode(span, spec, 1, payload.data(), payload.size(), backwards_executor(), nullptr);
  EXPECT_EQ(result.status, Status::kTooManyEscapes);
  const auto written = payload.size() - static_cast<std::size_t>(std::count(
                                            payload.begin(), payload.end(), std::uint8_t{0xAB}));
  EXPECT_GT(written, kBlockSlots);
  EXPECT_LT(written, 4 * kBlockSlots);
}

TEST(Lossy, OverflowingRangesAreKeptBitExactAtOneAndTwoBits) {
  std::vector<float> x(256 * 128);
  std::mt19937_64 random(seed());
  for (std::size_t e = 0; e < x.size(); ++e) x[e] = std::normal_distribution<float>()(random);
  for (int e = 0; e < 256; ++e) x[e] = (e % 2 ? 3e38f : -3e38f) + 1e36f * float(e) / 256;
  for (const unsigned bits : {1u, 2u}) {
    const Encoded out = encode_span(x.data(), x.size(), ElementType::kFloat32, bits);
    ASSERT_EQ(out.status, Status::kOk);
    EXPECT_EQ(out.statistics.escaped_groups, 1u);
    const auto restored = decode_span(out.payload, x.size() * 4);
    EXPECT_EQ(std::memcmp(restored.data(), x.data(), 256 * 4), 0);
  }
}

// However near to each other, and however many such groups there are: steps end at 2^-110.
TEST(Lossy, VanishingRangesComeBackWithinTheSmallestStep) {
  for (const ElementType type : {ElementType::kFloat32, ElementType::kBFloat16}) {
    for (const unsigned bits : kWidths) {
      for (const double sign : {1.0, -1.0, 0.0}) {  // 0: of both signs
        const std::size_t elements = 256 * 40 + 3;
        Bytes source(elements * element_size(type));
        for (std::size_t e = 0; e < elements; ++e)
          set_value(type, source.data(), e,
                    std::ldexp(double(e * 37 % 251 + 1), -140 + int(e / 256 % 24)) *
                        (sign == 0 ? (e % 2 == 0 ? 1 : -1) : sign));
        const Encoded out = encode_span(source.data(), elements, type, bits);
        ASSERT_EQ(out.status, Status::kOk);
        EXPECT_EQ(out.statistics.escaped_groups, 0u);
        const auto restored = decode_span(out.payload, source.size());
        for (std::size_t e = 0; e < elements; ++e) {
          const double x = value_at(type, source.data(), e), y = value_at(type, restored.data(), e);
          ASSERT_LE(std::fabs(x - y), farthest(type, restoring_of(out.payload, e / 256), bits, y));
          const GroupRange range =
              range_of(type, source.data(), e / 256 * 256, std::min(elements, e / 256 * 256 + 256));
          ASSERT_LE(restoring_of(out.payload, e / 256).step,
                    std::max(step_of(type, range, bits), double(kSmallestStep)));
          if (range.low > 0 || range.high < 0) {
            ASSERT_GT(sign * y, 0);
          }
        }
      }
    }
  }
}

TEST(Lossy, GroupsAreCountedByTheirPatterns) {
  std::mt19937_64 random(seed());
  for (const ElementType type : kFloatTypes) {
    const std::size_t elements = 256 * 200 + 77;
    Bytes source(elements * element_size(type));
    for (std::size_t e = 0; e < elements; ++e) {
      const Data data = kAllData[e / 256 % 6];
      set_value(type, source.data(), e, e / 256 == 7 ? 0.5 : draw(data, random, type));
      if (e / 256 == 9) set_value(type, source.data(), e, e % 3 == 0 ? -2.0 : 0.0);
    }
    set_value(type, source.data(), 11 * 256, 0);
    SpanStatistics expected;
    for (std::size_t from = 0; from < elements; from += 256) {
      const std::size_t to = std::min(from + 256, elements);
      ++expected.groups;
      std::set<std::string> patterns;  // a coarse type may round a group to very few values
      const std::size_t size = element_size(type);
      for (std::size_t e = from; e < to; ++e)
        patterns.emplace(reinterpret_cast<const char*>(source.data() + e * size), size);
      if (patterns.size() == 1) {
        ++expected.constant_groups;
      } else if (patterns.size() == 2) {
        ++expected.two_valued_groups;
      }
    }
    const Encoded out = encode_span(source.data(), elements, type, 4);
    EXPECT_EQ(out.statistics.groups, expected.groups);
    EXPECT_EQ(out.statistics.constant_groups, expected.constant_groups);
    EXPECT_EQ(out.statistics.two_valued_groups, expected.two_valued_groups);
    EXPECT_EQ(out.statistics.escaped_groups, 0u);
  }
}

TEST(Lossy, SameNonceSameBytesAnotherNonceOthers) {
  std::vector<float> x(10000);
  std::mt19937_64 random(seed());
  for (float& value : x) value = std::normal_distribution<float>()(random);
  const auto a = encode_span(x.data(), x.size(), ElementType::kFloat32, 4, 77).payload;
  const auto b = encode_span(x.data(), x.size(), ElementType::kFloat32, 4, 77).payload;
  const auto c = encode_span(x.data(), x.size(), ElementType::kFloat32, 4, 78).payload;
  EXPECT_EQ(a, b);
  ASSERT_EQ(a.size(), c.size());
  std::size_t differing = 0;
  for (std::size_t i = 64 + 40 * 8; i < a.size(); ++i) differing += a[i] != c[i];
  EXPECT_GT(differing, a.size() / 4);
}

TEST(Lossy, NoiseOfTwoNoncesIsUncorrelated) {
  const std::size_t elements = 1 << 16;
  std::vector<float> x(elements);
  std::mt19937_64 random(seed());
  for (float& value : x) value = std::normal_distribution<float>()(random);
  const auto a = decode_span(encode_span(x.data(), elements, ElementType::kFloat32, 2, 1).payload,
                             elements * 4);
  const auto b = decode_span(encode_span(x.data(), elements, ElementType::kFloat32, 2, 2).payload,
                             elements * 4);
  double aa = 0, bb = 0, ab = 0;
  for (std::size_t e = 0; e < elements; ++e) {
    const double p = value_at(ElementType::kFloat32, a.data(), e) - x[e];
    const double q = value_at(ElementType::kFloat32, b.data(), e) - x[e];
    aa += p * p;
    bb += q * q;
    ab += p * q;
  }
  EXPECT_LE(std::fabs(ab / std::sqrt(aa * bb)), 5 / std::sqrt(double(elements)));
}

TEST(Lossy, AWidthThatTheFormatLacksBecomesTheNextNarrowerOne) {
  std::vector<float> x(5000);
  for (std::size_t e = 0; e < x.size(); ++e) x[e] = std::cos(double(e));
  const auto of = [&](unsigned bits) {
    return encode_span(x.data(), x.size(), ElementType::kFloat32, bits, 99).payload;
  };
  EXPECT_EQ(of(5), of(4));
  EXPECT_EQ(of(7), of(6));
  EXPECT_EQ(of(9), of(8));
  EXPECT_EQ(of(6)[8], 6);
  EXPECT_EQ(of(6).size(), 64u + 192 + 20 * 192);  // header, metadata, slots of 192 bytes
}

TEST(Lossy, InspectTellsWhatThePayloadIs) {
  std::vector<float> x(5000);
  for (std::size_t e = 0; e < x.size(); ++e) x[e] = std::cos(double(e));
  const auto payload = encode_span(x.data(), x.size(), ElementType::kFloat32, 3, 99).payload;
  PayloadInfo info;
  ASSERT_EQ(inspect(payload.data(), payload.size(), &info), Status::kOk);
  EXPECT_EQ(info.type, ElementType::kFloat32);
  EXPECT_EQ(info.spec.bits, 3);
  EXPECT_EQ(info.elements, 5000u);
  EXPECT_EQ(info.nonce, 99u);
  EXPECT_TRUE(info.lossy);
  EXPECT_EQ(inspect(payload.data(), 10, &info), Status::kCorrupt);
}

}  // namespace
}  // namespace pleat::compress::test
