// Noise on a device: the kernels' code on the CPU, tiles in some order, against what the host does.
#include "compress/block/disturb.h"
#include "compress/cuda/device_asides.h"
#include "compress/sides/side_bounds.h"
#include "compress/sides/sides.h"
#include "tests/compress/emulated_launch.h"
#include "tests/compress/emulated_payload.h"
#include "tests/compress/noise_cases.h"
#include "tests/compress/recorder.h"

namespace pleat::compress::test {
namespace {

using block::BlockSource;
using block::BlockSpec;
using block::ByteRange;
using block::Disturbance;
using block::testing::noise_cases;
using block::testing::NoiseCase;
using cuda::DeviceTask;
using cuda::MixTask;

constexpr std::uint64_t kNonceOfNoise = 0x1234'5678'9ABC'DEF0;

// A device that is done with each launch at once.
class AtOnce final : public KernelLauncher {
 public:
  LaunchStatus prepare(const DeviceImage&) noexcept override { return LaunchStatus::kOk; }
  LaunchStatus launch(const DeviceImage&, const char* name, unsigned, unsigned, const void* batch,
                      StreamHandle) noexcept override {
    const auto kernel = kernel_named(name);
    EXPECT_TRUE(kernel.has_value()) << name;
    if (kernel->is_of_lines())
      emulate_launch(*kernel, *static_cast<const cuda::LineBatch*>(batch));
    else
      EXPECT_TRUE(emulate_launch(*kernel, *static_cast<const cuda::Batch*>(batch)));
    return LaunchStatus::kOk;
  }
  int driver_error() const noexcept override { return 0; }
};

// Disturbs a span as a device does. Returns the verdict of the mix.
cuda::Verdict disturb(const BlockSpec& spec, const CodecSpec& codec, const Disturbance& how,
                      void* span, std::size_t elements) {
  DeviceTask encode = task_of(spec.type, how.bits, elements);
  encode.transform = codec.transform;
  encode.exponents = codec.exponents;
  encode.zeros = codec.zeros;
  const std::size_t half = cuda::mix_values_bytes(elements, spec.type) / 2;
  Bytes codes(cuda::device_payload_bound(encode)), values(2 * half);
  cuda::Verdict ignored, verdict;
  encode.source = span;
  encode.target = codes.data();
  encode.nonce = how.nonce;
  encode.verdict = &ignored;
  MixTask mix;
  mix.target = span;
  mix.codes = codes.data();
  mix.values = values.data();
  mix.elements = elements;
  mix.type = spec.type;
  mix.bits = how.bits;
  mix.transform = codec.transform;
  mix.exponents = encode.exponents;
  mix.amplitude = how.amplitude;
  mix.widest_step = block::widest_step(spec.steps);
  mix.near_zero = spec.near_zero;
  if (spec.sides.any()) mix.beside = sides_beside_values(spec.sides, spec.type);
  mix.verdict = &verdict;
  DeviceTask again = encode, decode = encode;
  again.source = values.data();
  decode.source = codes.data();
  decode.target = values.data() + half;
  decode.capacity = codes.size();
  AtOnce device;
  std::size_t queued = 0;
  EXPECT_EQ(cuda::encode_on_device(device, {&encode, 1}, {}, &queued), LaunchStatus::kOk);
  EXPECT_EQ(cuda::spread_on_device(device, {&mix, 1}, {}, &queued), LaunchStatus::kOk);
  EXPECT_EQ(verdict.outcome, ignored.outcome);
  EXPECT_EQ(cuda::encode_on_device(device, {&again, 1}, {}, &queued), LaunchStatus::kOk);
  EXPECT_EQ(cuda::decode_on_device(device, {&decode, 1}, {}, &queued), LaunchStatus::kOk);
  EXPECT_EQ(cuda::mix_on_device(device, {&mix, 1}, {}, &queued), LaunchStatus::kOk);
  EXPECT_TRUE(codes.guard_intact() && values.guard_intact());
  return verdict;
}

cuda::Verdict disturb(const BlockSpec& spec, const Disturbance& how, void* span,
                      std::size_t elements) {
  return disturb(spec, spec.codec(), how, span, elements);
}

Bytes copied(const Bytes& from, std::size_t shift = 0) {
  Bytes to(from.size(), shift);
  std::memcpy(to.data(), from.data(), from.size());
  return to;
}

Bytes disturbed_on_host(const NoiseCase& c, const Disturbance& how, const Bytes& values) {
  Bytes to = copied(values);
  EXPECT_TRUE(block::disturb_block(
      to.data(), BlockSource{to.data(), to.size(), c.ranges.data(), c.ranges.size()}, c.spec, how,
      serial_executor()));
  return to;
}

Bytes disturbed_on_device(const NoiseCase& c, const Disturbance& how, const Bytes& values,
                          std::size_t shift) {
  Bytes to = copied(values, shift);
  const std::size_t size = element_size(c.spec.type);
  for (std::size_t i = 0; i < c.ranges.size(); ++i) {
    const std::size_t elements = (c.ranges[i].end - c.ranges[i].begin) / size;
    if (!device_can_encode(task_of(c.spec.type, how.bits, elements))) continue;
    disturb(c.spec, {how.bits, how.amplitude, how.nonce + i}, to.data() + c.ranges[i].begin,
            elements);
  }
  EXPECT_TRUE(to.guard_intact());
  return to;
}

// What a payload of that width gives back, as far as codes go.
Bytes restored(const NoiseCase& c, unsigned bits) {
  Bytes to = copied(c.data);
  const std::size_t size = element_size(c.spec.type);
  for (const ByteRange& range : c.ranges) {
    const std::size_t elements = (range.end - range.begin) / size;
    const Emulated coded =
        emulated_payload(c.spec.type, bits, elements, c.data.data() + range.begin);
    if (coded.verdict.outcome != cuda::Outcome::kDone) continue;
    EXPECT_EQ(emulated_decode(c.spec.type, bits, elements, coded.payload, to.data() + range.begin),
              cuda::Outcome::kDone);
  }
  return to;
}

// The device keeps flat lines beside the codes, and codes elements near zero among the others.
bool codes_alike(const NoiseCase& c, unsigned bits) {
  const bool refused = bits < 3 && (c.name == "many not finite" || c.name == "masked scores");
  return !c.spec.near_zero && c.spec.lines.look <= Look::kParts && !refused;
}

// By more than the rounding of sums: a few units in the last place of the group's largest element.
std::size_t groups_that_differ(ElementType type, const Bytes& a, const Bytes& b) {
  const std::size_t elements = a.size() / element_size(type);
  const double unit = std::ldexp(4, type == ElementType::kFloat32    ? -24
                                    : type == ElementType::kBFloat16 ? -8
                                                                     : -11);
  std::size_t count = 0;
  for (std::size_t begin = 0; begin < elements; begin += 256) {
    const std::size_t end = std::min(elements, begin + 256);
    double largest = 0, most = 0;
    for (std::size_t e = begin; e < end; ++e) {
      const double x = value_at(type, a.data(), e), y = value_at(type, b.data(), e);
      if (std::isfinite(x) != std::isfinite(y)) most = INFINITY;
      if (!std::isfinite(x) || !std::isfinite(y)) continue;
      largest = std::max(largest, std::fabs(x));
      most = std::max(most, std::fabs(x - y));
    }
    count += most > unit * largest ? 1 : 0;
  }
  return count;
}

// Whether a group was rounded before is told by a sum, whose rounding depends on its order: one
// group in some millions is so near to the bound that this matters. A span may begin within it.
TEST(CudaMix, TheNoiseIsTheHosts) {
  std::size_t compared = 0, spread = 0, near_the_bound = 0;
  for (const ElementType type : kFloatTypes)
    for (const NoiseCase& c : noise_cases(type))
      for (const unsigned bits : {1u, 2u, 3u, 4u, 6u, 8u}) {
        if (!codes_alike(c, bits)) continue;
        for (const bool once_restored : {false, true}) {
          const Bytes values = once_restored ? restored(c, bits) : copied(c.data);
          for (const float amplitude : {1.0f, -0.37f}) {
            const Disturbance how{static_cast<std::uint8_t>(bits), amplitude, kNonceOfNoise};
            const Bytes host = disturbed_on_host(c, how, values);
            const std::size_t shift = amplitude < 0 ? element_size(type) : 0;
            const Bytes device = disturbed_on_device(c, how, values, shift);
            const std::size_t differ = groups_that_differ(type, host, device);
            EXPECT_LE(differ, bits == 8 && once_restored ? 2u : 0u)
                << c.name << " of " << name_of(type) << " at " << bits << " bits, "
                << (once_restored ? "restored" : "as it was") << ", amplitude " << amplitude;
            near_the_bound += differ;
            const bool changed = std::memcmp(values.data(), device.data(), host.size()) != 0;
            compared += changed ? 1 : 0;
            spread += changed && once_restored && c.name == "relu" ? 1 : 0;
          }
        }
      }
  EXPECT_LE(near_the_bound, 8u);
  EXPECT_GT(compared, 900u);
  EXPECT_GE(spread, 3 * 4 * 2u) << "where codes are there is noise too";
}

// By the forms that a key has. Values that were restored before are spread.
TEST(CudaMix, TheNoiseOfTablesKeptZerosAndRotatedGroupsIsTheHosts) {
  constexpr std::uint32_t kChannels = 96;
  std::vector<std::int8_t> table(kChannels, -3);
  table[5] = -8;
  table[70] = 0;
  std::mt19937_64 random(seed());
  std::normal_distribution<double> normal;
  for (const ElementType type : kFloatTypes)
    for (const unsigned bits : {1u, 2u, 4u, 8u})
      for (const bool positive : {false, true})
        for (const Transform transform : {Transform::kNone, Transform::kHadamardScaled})
          for (const bool has_table : {false, true}) {
            const std::size_t elements = kChannels * 100 + 50;
            Bytes values(elements * element_size(type));
            for (std::size_t e = 0; e < elements; ++e) {
              const double x = normal(random) * (e / kChannels % 5 == 2 ? 0.01 : 1) *
                               (e % kChannels == 5 ? 30 : 1) * (e / kChannels % 9 == 4 ? 0 : 1);
              set_value(type, values.data(), e, positive ? std::max(x, 0.0) : x);
            }
            const BlockSpec spec{
                .type = type, .lines = {Look::kParts, kChannels}, .channels = {kChannels, 1}};
            CodecSpec codec = spec.codec();
            codec.transform = transform;
            codec.zeros = transform == Transform::kNone;
            if (has_table) codec.exponents = {kChannels, kChannels, 1, table.data()};
            const Disturbance how{static_cast<std::uint8_t>(bits), 1, kNonceOfNoise};
            for (const bool again : {false, true}) {
              Bytes host = copied(values), device = copied(values);
              const block::ByteRange all{0, host.size()};
              ASSERT_TRUE(block::disturb_block(host.data(),
                                               BlockSource{host.data(), host.size(), &all, 1}, spec,
                                               codec, how, serial_executor()));
              disturb(spec, codec, how, device.data(), elements);
              EXPECT_TRUE(device.guard_intact());
              EXPECT_LE(groups_that_differ(type, host, device), again ? 1u : 0u)
                  << name_of(type) << " " << bits << " " << positive << has_table
                  << static_cast<int>(transform) << again;
              if (!again) {
                EXPECT_NE(std::memcmp(host.data(), values.data(), host.size()), 0);
              }
              std::memcpy(values.data(), host.data(), host.size());
            }
          }
}

TEST(CudaMix, WhereCodesDifferFromTheHostsTheNoiseIsAsLarge) {
  for (const ElementType type : kFloatTypes)
    for (const NoiseCase& c : noise_cases(type)) {
      if (codes_alike(c, 4) || c.spec.lines.look != Look::kNone) continue;
      const Disturbance how{4, 1, kNonceOfNoise};
      const Bytes host = disturbed_on_host(c, how, c.data);
      const Bytes device = disturbed_on_device(c, how, c.data, 0);
      const double expected = block::testing::squared_difference(c, host.data(), c.data.data());
      const double found = block::testing::squared_difference(c, device.data(), c.data.data());
      // On a device, groups are as wide as their elements near zero make them.
      EXPECT_GE(found, 0.9 * expected) << c.name;
      const std::size_t size = element_size(type);
      for (std::size_t e = 0; e < c.elements(); ++e)
        if (value_at(type, c.data.data(), e) > -1) {
          ASSERT_EQ(std::memcmp(device.data() + e * size, c.data.data() + e * size, size), 0);
        }
    }
}

TEST(CudaMix, WhereTheEncodeIsRefusedNothingMoves) {
  for (const ElementType type : kFloatTypes) {
    const std::size_t elements = 8192;
    Bytes source(elements * element_size(type));
    for (std::size_t e = 0; e < elements; ++e)
      set_value(type, source.data(), e, e % 256 == 0 ? NAN : double(e % 17));
    Bytes got = copied(source);
    const cuda::Verdict verdict = disturb({.type = type}, {2, 1, 7}, got.data(), elements);
    EXPECT_EQ(verdict.outcome, cuda::Outcome::kKeepRaw);
    EXPECT_EQ(std::memcmp(got.data(), source.data(), source.size()), 0);
  }
}

TEST(CudaMix, RangesThatOverflowDoNoHarm) {
  for (const ElementType type : kFloatTypes) {
    const std::size_t elements = 1000;
    const double far = type == ElementType::kFloat16 ? 65504 : 3e38;
    for (const std::uint8_t bits : {3, 4, 6, 8}) {
      Bytes source(elements * element_size(type));
      for (std::size_t e = 0; e < elements; ++e)
        set_value(type, source.data(), e, e % 3 == 0 ? far : e % 3 == 1 ? -far : 1.0);
      Bytes got = copied(source);
      disturb({.type = type}, {bits, 1, 7}, got.data(), elements);
      for (std::size_t e = 0; e < elements; ++e)
        ASSERT_TRUE(std::isfinite(value_at(type, got.data(), e))) << e;
    }
  }
}

TEST(CudaMix, TasksOfOneTypeShareALaunch) {
  std::vector<MixTask> tasks(60);
  for (std::size_t t = 0; t < tasks.size(); ++t) {
    tasks[t].elements = 8192 * (t % 3) + 1;
    tasks[t].bits = 4;
    if (t >= 58) tasks[t].type = ElementType::kFloat16;
  }
  for (const auto queue : {&cuda::spread_on_device, &cuda::mix_on_device}) {
    const std::string name = queue == &cuda::mix_on_device ? "pleat_mix_" : "pleat_spread_";
    Recorder recorder;
    std::size_t queued = 0;
    ASSERT_EQ(queue(recorder, tasks, {}, &queued), LaunchStatus::kOk);
    EXPECT_EQ(queued, 60u);
    ASSERT_EQ(recorder.launches.size(), 3u);
    EXPECT_EQ(recorder.launches[0].batch.jobs, cuda::kMostLineJobs);
    EXPECT_EQ(recorder.launches[1].batch.jobs, 58 - cuda::kMostLineJobs);
    EXPECT_EQ(recorder.launches[0].kernel, name + "float32");
    EXPECT_EQ(recorder.launches[2].kernel, name + "float16");
    recorder.fail_at = recorder.launches.size() + 1;
    EXPECT_EQ(queue(recorder, tasks, {}, &queued), LaunchStatus::kFailed);
    EXPECT_EQ(queued, cuda::kMostLineJobs);
  }
}

}  // namespace
}  // namespace pleat::compress::test
