// Noise of the quantisers, with and without the randomised Hadamard transform, against stochastic
// rounding at the same bits; and the values that the transform must keep.
#include <functional>

#include "compress/rotated/transform_kernels.h"
#include "tests/compress/support.h"
#include "tests/compress/wide_groups.h"

namespace pleat::compress::test {
namespace {

using Values = std::vector<float>;

double silu(double x) { return x / (1 + std::exp(-x)); }
Values gaussian(std::mt19937_64& random, std::size_t elements) {
  std::normal_distribution<float> normal;
  Values x(elements);
  for (float& value : x) value = normal(random);
  return x;
}
Values gelu(std::mt19937_64& random, std::size_t elements) {
  Values x = gaussian(random, elements);
  for (float& value : x) value *= 0.5f * std::erfc(-value / std::sqrt(2.0f));
  return x;
}
Values swiglu(std::mt19937_64& random, std::size_t elements) {
  std::normal_distribution<double> normal;
  Values x(elements);
  for (float& value : x) value = static_cast<float>(silu(normal(random)) * normal(random));
  return x;
}
Values outlier_channels(std::mt19937_64& random, std::size_t elements) {  // 1 % of 1000, x 20
  Values x = gaussian(random, elements);
  for (std::size_t e = 0; e < elements; ++e)
    if (e % 1000 % 100 == 37) x[e] *= 20;
  return x;
}

// Expected squared error of min-max stochastic rounding, from its definition: D^2 f (1 - f).
double stochastic_rounding(const Values& x, unsigned bits) {
  double sum = 0;
  for (std::size_t from = 0; from < x.size(); from += 256) {
    const std::size_t to = std::min(from + 256, x.size());
    const auto [low, high] = std::minmax_element(x.begin() + long(from), x.begin() + long(to));
    const double step = (double(*high) - *low) / ((1 << bits) - 1);
    for (std::size_t e = from; e < to; ++e) {
      const double t = (double(x[e]) - *low) / step, f = t - std::floor(t);
      sum += step * step * f * (1 - f);
    }
  }
  return sum;
}
double codec_error(const Values& x, unsigned bits, Transform transform) {
  const Encoded out = encode_span(x.data(), x.size(), ElementType::kFloat32, bits, 11,
                                  serial_executor(), false, transform);
  EXPECT_EQ(out.status, Status::kOk);
  const auto restored = decode_span(out.payload, 4 * x.size());
  double sum = 0;
  for (std::size_t e = 0; e < x.size(); ++e) {
    const double error = value_at(ElementType::kFloat32, restored.data(), e) - x[e];
    sum += error * error;
  }
  return sum;
}

TEST(Noise, DitherHalvesThatOfStochasticRounding) {
  std::mt19937_64 random(seed());
  const std::size_t elements = 1 << 20;
  const Values normal = gaussian(random, elements), activation = gelu(random, elements);
  const auto noise = [](const Values& x, unsigned bits) {
    return codec_error(x, bits, Transform::kNone) / stochastic_rounding(x, bits);
  };
  for (const unsigned bits : {2u, 4u, 8u})
    expect_at_most("gaussian_" + std::to_string(bits) + "bit", noise(normal, bits), 0.51);
  expect_at_most("gelu_4bit", noise(activation, 4), 0.60);
  expect_at_most("gelu_2bit", noise(activation, 2), 0.75);
}

TEST(Noise, RotationTakesItToASeventhWhereOutliersSetTheRange) {
  std::mt19937_64 random(seed());
  const std::size_t elements = 1 << 20;
  for (const auto& make : {swiglu, outlier_channels}) {
    const Values x = make(random, elements);
    expect_at_most(make == swiglu ? "swiglu_4bit" : "outlier_channels_4bit",
                   codec_error(x, 4, Transform::kHadamard) / stochastic_rounding(x, 4), 0.15);
  }
}

double energy(const Values& x) {
  double sum = 0;
  for (const double value : x) sum += value * value;
  return sum;
}

// The energy of groups that docs/payload_format.md ("Scaled") lets through its gate.
double energy_within_gate(const Values& x) {
  double within = 0;
  for (std::size_t from = 0; from < x.size(); from += 256) {
    double sum = 0, squares = 0, fourths = 0;
    for (std::size_t e = from; e < from + 256; ++e) {
      const double value = x[e];
      sum += std::fabs(value);
      squares += value * value;
      fourths += value * value * value * value;
    }
    if (8 * fourths <= squares * squares && sum * sum >= 48 * squares) within += squares;
  }
  return within;
}

// With levels whose mean squared error on a Gaussian is d of its energy, made unbiased by a scale
// (EDEN), the error is d / (1 - d): d = 1 - 2 / pi with two levels, 0.1175 with four (Max 1960).
// Dithered it is range^2 / (12 K^2), 2.7 and 0.30 of the energy; so are groups outside the gate.
TEST(Noise, ScaledLevelsTakeItToAFifthAndAHalfAtFewBits) {
  std::mt19937_64 random(seed());
  const std::size_t elements = 1 << 19;
  struct Bar {
    unsigned bits;
    double scaled, dithered;
  };
  for (const auto& make : {gaussian, gelu, swiglu}) {
    const Values x = make(random, elements);
    const double all = energy(x), share = energy_within_gate(x) / all;
    EXPECT_GE(share, make == swiglu ? 0.8 : 1 - 1e-9);
    for (const Bar& bar : {Bar{1, M_PI / 2 - 1, 2.7}, Bar{2, 0.1175 / (1 - 0.1175), 0.30}}) {
      const double error = codec_error(x, bar.bits, Transform::kHadamardScaled);
      const double rotated = codec_error(x, bar.bits, Transform::kHadamard);
      const double expected = share * bar.scaled + (1 - share) * bar.dithered;
      EXPECT_LE(error, 1.02 * expected * all) << bar.bits;
      EXPECT_LE(error, 1.03 * expected / bar.dithered * rotated) << bar.bits;
    }
  }
}

TEST(Transform, IsTheWalshHadamardTransformWithRandomSigns) {
  float signs[256];
  for (float& sign : signs) sign = 1;
  flip_signs(77, 5, signs, signs);
  int negative = 0;
  for (const float sign : signs) negative += sign < 0;
  EXPECT_GT(negative, 80);
  EXPECT_LT(negative, 176);
  for (unsigned e = 0; e < 256; ++e) {
    float x[256] = {};
    x[e] = 16;
    rotate(77, 5, x);
    for (unsigned p = 0; p < 256; ++p) {
      const unsigned natural = (p >> 3 | p << 5) & 255;
      const float expected = __builtin_parity(natural & e) != 0 ? -1 : 1;
      ASSERT_EQ(x[p], expected * signs[e]) << e << " " << p;
    }
    rotate_back(77, 5, x);
    for (unsigned i = 0; i < 256; ++i) ASSERT_EQ(x[i], i == e ? 16 : 0);
  }
}

// A spike, a step and a ramp: over 10^5 draws each element's mean is its own to within 4.5 standard
// errors, and a group's 256 means together are hardly farther off than without any bias. What n's
// rounding leaves a coefficient, up to D/512 (D is sqrt(12) deviations), differs from draw to draw;
// but the step's coefficients are eight different ones, 32 times each, and there some of it adds
// up. Data and nonces are the same in every run: of 7000 elements random ones would put one
// beyond 4.5 in every 20th.
TEST(Transform, IsUnbiasedOnAdversarialGroupsOverAHundredThousandDraws) {
  const int draws = 100'000;
  const std::size_t elements = 256 * 3;
  std::vector<double> values(65536);
  for (const ElementType type : kFloatTypes) {
    const bool wide = type == ElementType::kFloat32;
    for (unsigned pattern = 0; pattern < values.size(); ++pattern) {
      const auto word = static_cast<std::uint16_t>(pattern);
      values[pattern] = type == ElementType::kFloat16 ? value_of_half(word) : value_of_bfloat(word);
    }
    std::mt19937_64 random(7);
    Bytes source(elements * element_size(type)), restored(elements * element_size(type));
    for (std::size_t e = 0; e < 256; ++e) {
      const double noise = double(random() % 2001) / 1000 - 1;
      set_value(type, source.data(), e, noise + (e == 100 ? 50 : 0));
      set_value(type, source.data(), 256 + e, e < 7 ? 100 + double(e) : 0);
      set_value(type, source.data(), 512 + e, double(e) - 3);
    }
    std::vector<double> x(elements);
    for (std::size_t e = 0; e < elements; ++e) x[e] = value_at(type, source.data(), e);
    for (const unsigned bits : {1u, 2u, 4u}) {
      CodecSpec spec;
      spec.bits = static_cast<std::uint8_t>(bits);
      spec.transform = Transform::kHadamard;
      Bytes payload(payload_bound(spec, type, elements));
      std::vector<double> sum(elements), squares(elements);
      for (int draw = 0; draw < draws; ++draw) {
        const EncodeResult out = encode({source.data(), elements, type}, spec, std::uint64_t(draw),
                                        payload.data(), payload.size(), serial_executor(), nullptr);
        ASSERT_EQ(out.status, Status::kOk);
        ASSERT_EQ(decode(payload.data(), out.payload_bytes, restored.data(), restored.size(),
                         serial_executor()),
                  Status::kOk);
        for (std::size_t e = 0; e < elements; ++e) {
          const double y =
              wide ? double(restored.as<float>()[e]) : values[restored.as<std::uint16_t>()[e]];
          sum[e] += y - x[e];
          squares[e] += (y - x[e]) * (y - x[e]);
        }
      }
      const std::string what = std::string(name_of(type)) + ", " + std::to_string(bits) + " bits, ";
      for (std::size_t from = 0; from < elements; from += 256) {
        double bias = 0, noise = 0;  // squared lengths: of the mean error, and of what noise leaves
        for (std::size_t e = from; e < from + 256; ++e) {
          const double mean = sum[e] / draws, deviation = std::sqrt(squares[e] / draws);
          const double rounding = from == 256 ? 4 * std::sqrt(12) / 512 * deviation : 0;
          EXPECT_LE(std::fabs(mean), rounding + 4.5 * deviation / std::sqrt(draws))
              << what << "element " << e;
          bias += mean * mean;
          noise += squares[e] / draws / draws;
        }
        EXPECT_LE(bias, 1.5 * noise) << what << "group " << from / 256;  // 5.6 sigma
      }
    }
  }
}

// ---- scaled groups ----

std::size_t scaled_groups(const Encoded& out, std::size_t groups) {
  std::size_t count = 0;
  for (std::size_t g = 0; g < groups; ++g) {
    Metadata<Float32> metadata;
    std::memcpy(&metadata, out.payload.data() + 64 + 8 * g, sizeof metadata);
    count += is_scaled(metadata);
  }
  return count;
}
Encoded encode_scaled_span(const Values& x, unsigned bits, std::uint64_t nonce) {
  return encode_span(x.data(), x.size(), ElementType::kFloat32, bits, nonce, serial_executor(),
                     false, Transform::kHadamardScaled);
}

// The squared length of the mean error is what is left of the energy when all draws are averaged.
TEST(Scaled, IsNearlyUnbiasedWhereItIsUsed) {
  std::mt19937_64 random(seed());
  std::vector<Values> groups = {gaussian(random, 256), gelu(random, 256), swiglu(random, 256)};
  while (!scaling_suits(groups.back().data()))
    groups.back() = swiglu(random, 256);  // one in twenty
  groups.push_back(gaussian(random, 256));
  groups.back()[100] = 9;  // nearly as far out as the gate lets
  groups.emplace_back(256);
  for (std::size_t e = 0; e < 256; ++e) groups.back()[e] = 1000 + float(e % 7);
  groups.emplace_back(256);
  for (float& value : groups.back()) value = random() % 2 != 0 ? 1.0f : -1.0f;
  groups.back()[9] = 11;
  const std::size_t hardest =
      groups.size();  // the fewest of nearly one height that the gate lets in
  groups.emplace_back(256);
  for (std::size_t e = 0; e < 49; ++e) groups.back()[e * 5] = 1.0f + 1e-4f * static_cast<float>(e);
  for (const unsigned bits : {1u, 2u}) {
    for (std::size_t group = 0; group < groups.size(); ++group) {
      const Values& x = groups[group];
      const double most = group == hardest ? (bits == 1 ? 0.025 : 0.005)
                          : bits == 1      ? 0.012
                                           : 0.001;
      const int trials = 20000;
      std::vector<double> sum(256);
      double squares = 0;
      for (int trial = 0; trial < trials; ++trial) {
        const Encoded out = encode_scaled_span(x, bits, random());
        ASSERT_EQ(scaled_groups(out, 1), 1u);
        const auto restored = decode_span(out.payload, 4 * 256);
        for (std::size_t e = 0; e < 256; ++e) {
          const double error = value_at(ElementType::kFloat32, restored.data(), e) - x[e];
          sum[e] += error;
          squares += error * error;
        }
      }
      double bias = 0;
      for (const double s : sum) bias += s / trials * (s / trials);
      const double noise = squares / trials / trials;  // what `bias` would be without any
      EXPECT_LE(bias - noise, most * energy(x)) << bits << " bits, group " << group;
      EXPECT_LE(squares / trials, (bits == 1 ? 0.65 : 0.15) * energy(x)) << bits << " " << group;
    }
  }
}

TEST(Scaled, GroupsThatRotationDoesNotMakeGaussianAreDithered) {
  std::mt19937_64 random(seed());
  Values x = gaussian(random, 256 * 4);
  x[100] = 50;
  for (std::size_t e = 256; e < 512; ++e)
    x[e] = e % 10 == 0 ? 1 + 1e-4f * float(e) : 0.0f;     // 25 spikes
  for (std::size_t e = 512; e < 768; ++e) x[e] *= 1e36f;  // sums of its levels would overflow
  for (const unsigned bits : {1u, 2u}) {
    const Encoded out = encode_scaled_span(x, bits, 5);
    EXPECT_EQ(scaled_groups(out, 4), 1u);
    const Encoded rotated = encode_span(x.data(), x.size(), ElementType::kFloat32, bits, 5,
                                        serial_executor(), false, Transform::kHadamard);
    const std::size_t slot = 32 * bits;
    EXPECT_EQ(std::memcmp(out.payload.data() + 64, rotated.payload.data() + 64, 8 * 3), 0);
    EXPECT_EQ(std::memcmp(out.payload.data() + 128, rotated.payload.data() + 128, slot * 3), 0);
  }
  for (const unsigned bits : {3u, 4u, 6u, 8u}) {
    const Encoded rotated = encode_span(x.data(), x.size(), ElementType::kFloat32, bits, 5,
                                        serial_executor(), false, Transform::kHadamard);
    EXPECT_TRUE(encode_scaled_span(x, bits, 5).payload == rotated.payload);
  }
}

// The gate's bounds, met exactly by integers, and just missed.
TEST(Scaled, TheGateTakesWhatTheFormatSays) {
  const auto suits = [](const Values& x) { return scaling_suits(x.data()); };
  Values x(256);
  for (std::size_t e = 0; e < 48; ++e) x[e * 5] = e % 2 != 0 ? 3.0f : -3.0f;
  EXPECT_TRUE(suits(x));  // (48 * 3)^2 = 48 * 48 * 9
  x[0] = 0;
  EXPECT_FALSE(suits(x));
  // One spike s among 255 ones: 8 (255 + s^4) <= (255 + s^2)^2 up to s = 11.749
  std::fill(x.begin(), x.end(), 1.0f);
  x[77] = -11.74f;
  EXPECT_TRUE(suits(x));
  x[77] = -11.76f;
  EXPECT_FALSE(suits(x));
  x[77] = NAN;
  EXPECT_FALSE(suits(x));
  std::fill(x.begin(), x.end(), 1.9e37f);  // the sum of squares is below 1e77, then above
  EXPECT_TRUE(suits(x));
  x[3] = 1.0e38f;
  EXPECT_FALSE(suits(x));
}

class EveryTransform : public testing::TestWithParam<Transform> {};
INSTANTIATE_TEST_SUITE_P(Transform, EveryTransform,
                         testing::Values(Transform::kHadamard, Transform::kHadamardScaled),
                         [](const auto& about) {
                           return about.param == Transform::kHadamard ? "Rotated" : "Scaled";
                         });

TEST_P(EveryTransform, MasksAndConstantsStayExactAndAtFewBitsNonFiniteGroups) {
  std::mt19937_64 random(seed());
  for (const ElementType type : kFloatTypes) {
    for (const unsigned bits : kWidths) {
      const std::size_t elements = 256 * 200 + 31, size = element_size(type);
      Bytes source(elements * size);
      for (std::size_t e = 0; e < elements; ++e)
        set_value(type, source.data(), e,
                  e / 256 % 4 == 0   ? 1.25
                  : e / 256 % 4 == 1 ? -0.75 * double(random() % 2)
                                     : std::normal_distribution<double>()(random));
      set_value(type, source.data(), 256 * 6 + 9, 60000);
      std::memset(source.data() + (256 * 7 + 9) * size, 0xFF, size);  // NaN
      const Encoded out = encode_span(source.data(), elements, type, bits, 3, thread_executor(2),
                                      false, GetParam());
      ASSERT_EQ(out.status, Status::kOk);
      EXPECT_EQ(out.statistics.escaped_groups, bits < 3 ? 1u : 0u);
      EXPECT_EQ(wide_groups(out.payload), bits < 3 ? 0u : 1u);
      const auto restored = decode_span(out.payload, source.size(), backwards_executor());
      for (std::size_t g = 0; g * 256 < elements; ++g) {
        const std::size_t from = g * 256 * size, to = std::min(from + 256 * size, source.size());
        EXPECT_EQ(std::memcmp(restored.data() + from, source.data() + from, to - from) == 0,
                  g % 4 < 2 || (g == 7 && bits < 3))
            << g;
      }
      PayloadInfo info;
      ASSERT_EQ(inspect(out.payload.data(), out.payload.size(), &info), Status::kOk);
      EXPECT_EQ(info.spec.transform, bits > 2 ? Transform::kHadamard : GetParam());
    }
  }
}

// Of a rotated payload too: patterns that float arithmetic would make quiet.
TEST_P(EveryTransform, SignallingNansStayExact) {
  std::mt19937_64 random(seed());
  for (const Path& path : paths()) {
    const UsePath use(path);
    for (const ElementType type : kFloatTypes) {
      const std::size_t elements = 256 * 130, size = element_size(type);
      const bool half = type == ElementType::kFloat16;
      const std::uint32_t signalling = size == 4 ? 0x7F800001 : half ? 0x7C01 : 0x7F81;
      Bytes source(elements * size);
      for (std::size_t e = 0; e < elements; ++e) {
        set_value(type, source.data(), e, std::normal_distribution<double>()(random));
        if (e < 256) set_value(type, source.data(), e, -1.5);
        if (e < 512 && (e >= 256 || e % 3 == 0))  // two-valued, then constant
          std::memcpy(source.data() + e * size, &signalling, size);
      }
      for (const unsigned bits : {1u, 2u, 4u}) {
        const Encoded out = encode_span(source.data(), elements, type, bits, 3, serial_executor(),
                                        false, GetParam());
        ASSERT_EQ(out.status, Status::kOk);
        EXPECT_EQ(out.statistics.escaped_groups, half && bits < 3 ? 2u : 0u);
        const auto restored = decode_span(out.payload, source.size());
        if (half && bits >= 3) {  // wide groups: NaNs are NaNs, the one other value is exact
          EXPECT_EQ(wide_groups(out.payload), 2u);
          for (std::size_t e = 0; e < 512; ++e) {
            const double x = value_at(type, source.data(), e);
            const double y = value_at(type, restored.data(), e);
            ASSERT_TRUE(std::isnan(x) ? std::isnan(y) : x == y) << path.name << " " << e;
          }
          continue;
        }
        EXPECT_EQ(std::memcmp(restored.data(), source.data(), 512 * size), 0)
            << path.name << " " << name_of(type) << " " << bits;
      }
    }
  }
}

// Rotated, this group has two values; its own are three.
TEST(Transform, GroupsThatBecomeTwoValuedAreNotRotated) {
  float x[256] = {};
  x[3] = x[200] = 32;
  rotate_back(9, 0, x);
  for (const unsigned bits : {2u, 4u}) {
    const Encoded out = encode_span(x, 256, ElementType::kFloat32, bits, 9, serial_executor(),
                                    false, Transform::kHadamard);
    ASSERT_EQ(out.status, Status::kOk);
    EXPECT_EQ(out.statistics.escaped_groups, bits == 2 ? 1u : 0u);
    EXPECT_EQ(wide_groups(out.payload), bits == 2 ? 0u : 1u);
    EXPECT_EQ(out.statistics.two_valued_groups, 0u);
    const auto back = decode_span(out.payload, sizeof x);
    if (bits == 2) {
      EXPECT_EQ(std::memcmp(back.data(), x, sizeof x), 0);
    } else {  // 13 levels between the least and the largest
      const auto [low, high] = std::minmax_element(x, x + 256);
      for (std::size_t e = 0; e < 256; ++e)
        EXPECT_LE(std::fabs(value_at(ElementType::kFloat32, back.data(), e) - double(x[e])),
                  (double(*high) - *low) / 24 * 1.0001);
    }
  }
}

TEST_P(EveryTransform, EveryPathGivesTheSameBytesInPlaceOrNot) {
  std::mt19937_64 random(seed());
  for (const ElementType type : kFloatTypes) {
    for (const unsigned bits : kWidths) {
      for (const std::size_t elements : {255, 256, 256 * 67 + 5, 256 * 400}) {
        Bytes source(elements * element_size(type));
        for (std::size_t e = 0; e < elements; ++e)
          set_value(type, source.data(), e,
                    std::pow(std::normal_distribution<double>()(random), e / 256 % 5 + 1));
        Encoded first;
        std::vector<unsigned char> restored;
        for (const Path& path : paths()) {
          if (path.name == "avx512 emulated" && elements > 30000) continue;  // slow
          const UsePath use(path);
          const Encoded out = encode_span(source.data(), elements, type, bits, 21,
                                          thread_executor(1), false, GetParam());
          ASSERT_EQ(out.status, Status::kOk);
          const auto back = decode_span(out.payload, source.size(), thread_executor(1));
          if (first.payload.empty()) {
            first = out;
            restored = back;
          }
          EXPECT_TRUE(out.payload == first.payload) << path.name;
          EXPECT_TRUE(back == restored) << path.name;
          Bytes buffer(source.size() + 4096);
          std::memcpy(buffer.data(), source.data(), source.size());
          CodecSpec spec;
          spec.bits = static_cast<std::uint8_t>(bits);
          spec.transform = GetParam();
          const EncodeResult result = encode_in_place(buffer.data(), buffer.size(), elements, type,
                                                      spec, 21, thread_executor(1), nullptr);
          ASSERT_EQ(result.status, Status::kOk);
          ASSERT_EQ(result.payload_bytes, first.payload.size());
          EXPECT_EQ(std::memcmp(buffer.data(), first.payload.data(), first.payload.size()), 0);
        }
      }
    }
  }
}

// Large enough for the in-place encoder to work tile by tile, with groups that it must escape.
TEST_P(EveryTransform, LargeSpansAreEncodedInPlaceToTheSameBytes) {
  std::mt19937_64 random(seed());
  const std::size_t elements = 256 * 2100 + 9;
  const Values x = swiglu(random, elements);
  for (const ElementType type : kFloatTypes) {
    Bytes source(elements * element_size(type));
    for (std::size_t e = 0; e < elements; ++e) set_value(type, source.data(), e, x[e]);
    for (const std::size_t group : {3, 1500, 2099})  // NaN
      std::memset(source.data() + (group * 256 + 77) * element_size(type), 0xFF,
                  element_size(type));
    for (const Path& path : paths()) {
      if (path.name == "avx512 emulated") continue;  // slow
      const UsePath use(path);
      const Encoded out =
          encode_span(source.data(), elements, type, 2, 8, thread_executor(2), false, GetParam());
      ASSERT_EQ(out.status, Status::kOk);
      EXPECT_EQ(out.statistics.escaped_groups, 3u);
      Bytes buffer(source.size() + 4096);
      std::memcpy(buffer.data(), source.data(), source.size());
      CodecSpec spec;
      spec.bits = 2;
      spec.transform = GetParam();
      const EncodeResult result = encode_in_place(buffer.data(), buffer.size(), elements, type,
                                                  spec, 8, thread_executor(2), nullptr);
      ASSERT_EQ(result.status, Status::kOk);
      ASSERT_EQ(result.payload_bytes, out.payload.size());
      EXPECT_EQ(std::memcmp(buffer.data(), out.payload.data(), out.payload.size()), 0) << path.name;
    }
  }
}

}  // namespace
}  // namespace pleat::compress::test
