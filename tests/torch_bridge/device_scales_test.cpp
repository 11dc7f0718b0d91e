// Scales of keys on a device: how the values of a key are coded once a sample of an earlier tensor
// has been read.
#include "tests/torch_bridge/device_codec_support.h"

namespace pleat::bridge::cuda {
namespace {

using namespace testing;

constexpr std::uint32_t kChannels = 96;
constexpr std::size_t kRows = 400;

class DeviceScalesTest : public DeviceBlockCodecTest {
 protected:
  static BlockSpec spec_of(ElementType type = ElementType::kFloat32, std::uint8_t bits = 4) {
    return {
        .type = type, .bits = bits, .lines = {Look::kParts, kChannels}, .channels = {kChannels, 1}};
  }
  // Some channels are large.
  static Bytes outliers(ElementType type = ElementType::kFloat32, double size = 30) {
    const Bytes values = normal(type, kRows * kChannels);
    return floats(type, kRows * kChannels, [&](std::size_t e) {
      return value_at(type, values.data(), e) * (e % kChannels % 40 == 5 ? size : 1);
    });
  }
  // The error of a channel of usual size over its values, in the root mean square.
  static double error_of_usual(const Bytes& source, const Bytes& back,
                               ElementType type = ElementType::kFloat32) {
    double error = 0, all = 0;
    for (std::size_t e = 0; e < kRows * kChannels; ++e) {
      if (e % kChannels % 40 == 5) continue;
      const double x = value_at(type, source.data(), e), y = value_at(type, back.data(), e);
      error += (x - y) * (x - y);
      all += x * x;
    }
    return std::sqrt(error / all);
  }
};

TEST_F(DeviceScalesTest, AThirdTensorHasTheTableOfTheFirstTwo) {
  std::uint64_t key = 0;
  for (const ElementType type : kFloatTypes) {
    for (const bool holds : {false, true}) {
      device_.holds = holds;
      const Bytes source = outliers(type);
      const Coded first = settled(spec_of(type), source, ++key);
      EXPECT_EQ(first.form().exponents().channels, 0u) << "nothing is known of the key yet";
      EXPECT_EQ(first.form().exponents().row, kChannels);
      settled(spec_of(type), source, key);
      const Coded second = settled(spec_of(type), source, key);
      ASSERT_EQ(second.form().exponents().channels, kChannels);
      EXPECT_GT(error_of_usual(source, restored(first), type), 0.5);
      EXPECT_LT(error_of_usual(source, restored(second), type), 0.17);
      const Bytes host =
          decoded_on_host(second.payload->data(), second.result.payload_bytes, source.size());
      EXPECT_SAME_BITS(host, restored(second));
    }
  }
}

// Tensors in a row, while the device has done nothing.
TEST_F(DeviceScalesTest, TheSampleOfTheTensorBeforeIsWaitedFor) {
  const Bytes source = outliers();
  encode(spec_of(), source);
  device_.holds = true;
  encode(spec_of(), source);
  const int waits = device_.waits;
  const Coded second = encode(spec_of(), source);
  EXPECT_GT(device_.waits, waits);
  EXPECT_EQ(second.form().exponents().channels, kChannels);
  EXPECT_EQ(encode(spec_of(), source, 2).form().exponents().channels, 0u) << "another key";
  device_.run();
}

TEST_F(DeviceScalesTest, MoreKeysThanSamplesWaitForTheOldest) {
  device_.holds = true;
  const Bytes source = outliers();
  const std::uint64_t keys = 3 * DeviceScales::kSamples;
  for (int tensor = 0; tensor < 2; ++tensor)
    for (std::uint64_t key = 1; key <= keys; ++key) encode(spec_of(), source, key);
  for (std::uint64_t key = 1; key <= keys; ++key)
    EXPECT_EQ(encode(spec_of(), source, key).form().exponents().channels, kChannels) << key;
  device_.run();
  encode({.type = ElementType::kBytes}, source, keys + 1);
  EXPECT_EQ(words_left(), DeviceWords::kSlots);
}

TEST_F(DeviceScalesTest, WideGroupsAreRotatedAndManyZerosAreKept) {
  const Bytes a = normal(ElementType::kFloat32, kRows * kChannels),
              b = normal(ElementType::kFloat32, kRows * kChannels, 1, 2);
  const auto at = [](const Bytes& of, std::size_t e) {
    return value_at(ElementType::kFloat32, of.data(), e);
  };
  const Bytes gated = floats(ElementType::kFloat32, kRows * kChannels, [&](std::size_t e) {
    return at(a, e) / (1 + std::exp(-at(a, e))) * at(b, e);
  });
  settled(spec_of(), gated, 1);
  const Coded rotated = settled(spec_of(), gated, 1);
  EXPECT_EQ(rotated.form().transform, Transform::kHadamardScaled);
  EXPECT_LT(error_of_usual(gated, restored(rotated)), 0.17);
  const Bytes dropped = floats(ElementType::kFloat32, kRows * kChannels,
                               [&](std::size_t e) { return e * 7919 % 10 == 0 ? 0.0 : at(a, e); });
  settled(spec_of(), dropped, 2);
  const Coded zeros = settled(spec_of(), dropped, 2);
  EXPECT_TRUE(zeros.form().zeros);
  const Bytes back = restored(zeros);
  for (std::size_t e = 0; e < kRows * kChannels; ++e) {
    if (at(dropped, e) == 0) {
      ASSERT_EQ(at(back, e), 0) << e;
    }
  }
}

// Both at once, and small channels as well.
TEST_F(DeviceScalesTest, RotatedGroupsHaveATableToo) {
  std::mt19937_64 random(1);
  std::normal_distribution<double> draw;
  std::vector<double> gains(kChannels);
  for (double& gain : gains) gain = std::exp(1.5 * draw(random));
  for (const ElementType type : kFloatTypes) {
    const Bytes source = floats(type, kRows * kChannels, [&](std::size_t e) {
      return draw(random) * draw(random) * gains[e % kChannels];
    });
    const std::uint64_t key = 1 + static_cast<std::uint64_t>(type);
    for (int i = 0; i < 2; ++i) settled(spec_of(type), source, key);
    const Coded coded = settled(spec_of(type), source, key);
    ASSERT_EQ(coded.form().transform, Transform::kHadamardScaled);
    ASSERT_EQ(coded.form().exponents().channels, kChannels);
    const Bytes back = restored(coded);
    EXPECT_SAME_BITS(
        decoded_on_host(coded.payload->data(), coded.result.payload_bytes, source.size()), back);
    for (std::uint32_t c = 0; c < kChannels; ++c) {
      double error = 0, all = 0;
      for (std::size_t e = c; e < kRows * kChannels; e += kChannels) {
        const double x = value_at(type, source.data(), e), y = value_at(type, back.data(), e);
        error += (x - y) * (x - y);
        all += x * x;
      }
      EXPECT_LT(std::sqrt(error / all), 0.4) << c;
    }
  }
}

TEST_F(DeviceScalesTest, AKeyIsMeasuredAgainAndTablesGo) {
  const Bytes source = outliers(), alike = normal(ElementType::kFloat32, kRows * kChannels);
  for (int i = 0; i < 2; ++i) settled(spec_of(), source);
  unsigned coded = 0;
  while (settled(spec_of(), alike).form().exponents().channels != 0 && coded < 10) ++coded;
  EXPECT_GE(coded, 1u);
  EXPECT_LE(coded, 2u);
}

// What has no scales is not sampled: no word is taken, and nothing is waited for.
TEST_F(DeviceScalesTest, ValuesWhoseAbsoluteErrorCountsHaveNone) {
  const Bytes source = outliers();
  BlockSpec exponent = spec_of(), sided = spec_of(), columns = spec_of();
  exponent.steps = Steps::kExponent;
  sided.sides = kSignOfRelu;
  sided.channels = {};
  columns.lines.look = Look::kColumns;
  std::uint64_t key = 0;
  for (const BlockSpec& spec : {exponent, sided, columns}) {
    ++key;
    for (int i = 0; i < 3; ++i) settled(spec, source, key);
    EXPECT_EQ(settled(spec, source, key).form().exponents().channels, 0u) << key;
  }
  const Bytes few = normal(ElementType::kFloat32, 3 * kChannels);
  settled(spec_of(), few, ++key);
  EXPECT_EQ(settled(spec_of(), few, key).form().exponents().channels, 0u);
  const std::vector<ByteRange> spans{{0, source.size() / 2}, {source.size() / 2, source.size()}};
  settled(spec_of(), source, ++key, spans);
  EXPECT_EQ(settled(spec_of(), source, key, spans).form().exponents().any(), false);
  encode(spec_of(), source, ++key, {}, kStream, true);
  EXPECT_EQ(encode(spec_of(), source, key, {}, kStream, true).form().exponents().channels, 0u);
}

TEST_F(DeviceScalesTest, ADeviceThatFailsLosesNothingElse) {
  device_.holds = true;
  const Bytes source = outliers();
  encode(spec_of(), source);
  device_.wait_error = HeldDevice::kLaunchFailed;
  device_.never_answers = true;
  const Coded second = encode(spec_of(), source);
  EXPECT_EQ(second.form().exponents().channels, 0u);
  EXPECT_EQ(second.result.status, CodecStatus::kOk) << "its launches fail later, if at all";
  device_.run();
}

}  // namespace
}  // namespace pleat::bridge::cuda
