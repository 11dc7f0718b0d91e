// Elements near zero of log-probabilities: exact beside the codes of the rest.
#include "compress/near_zero/near_zero.h"

#include "compress/block/block_payload.h"
#include "compress/codec.h"
#include "tests/compress/block_reference.h"
#include "tests/compress/support.h"

namespace pleat::compress {
namespace {

using namespace compress::test;
using block::BlockPlan;
using block::BlockSource;
using block::BlockSpec;
using block::ByteRange;
using block::Effort;
using block::Steps;

CodecSpec near_spec(unsigned bits, Transform transform = Transform::kNone) {
  CodecSpec spec{static_cast<std::uint8_t>(bits), false, transform};
  spec.near_zero = true;
  return spec;
}

// Log-probabilities of `classes` classes, of which one in each row is near zero.
Bytes log_probabilities(ElementType type, std::size_t elements, std::size_t classes) {
  std::mt19937_64 random(seed() + classes);
  std::uniform_real_distribution<double> uniform;
  Bytes data(elements * element_size(type));
  std::size_t right = 0;
  for (std::size_t e = 0; e < elements; ++e) {
    if (e % classes == 0) right = random() % classes;
    set_value(type, data.data(), e,
              e % classes == right ? -1e-3 * uniform(random) : -2 - 18 * uniform(random));
  }
  return data;
}

struct Near {
  std::vector<std::uint8_t> payload;
  std::vector<unsigned char> back;
};

Near coded(ElementType type, const Bytes& data, const CodecSpec& spec) {
  const Span span{data.data(), data.size() / element_size(type), type};
  Bytes room(payload_bound(spec, type, span.elements) +
             near_zero_room(span, true, serial_executor()));
  const EncodeResult result =
      encode(span, spec, 77, room.data(), room.size(), serial_executor(), nullptr);
  EXPECT_EQ(result.status, Status::kOk);
  EXPECT_TRUE(room.guard_intact());
  Near near{{room.data(), room.data() + result.payload_bytes}, {}};
  Bytes target(data.size());
  EXPECT_EQ(decode(near.payload.data(), near.payload.size(), target.data(), target.size(),
                   serial_executor()),
            Status::kOk);
  EXPECT_TRUE(target.guard_intact());
  near.back.assign(target.data(), target.data() + target.size());
  return near;
}

TEST(NearZero, ElementsAboveMinusOneAreExactAndTheRestHasARangeOfItsOwn) {
  for (const Path& path : paths()) {
    const UsePath use(path);
    for (const ElementType type : kFloatTypes) {
      for (const std::size_t classes : {3u, 21u, 1000u, 50257u}) {
        const std::size_t elements = 64 * 256 * 3 + 77, size = element_size(type);
        const Bytes data = log_probabilities(type, elements, classes);
        const Near near = coded(type, data, near_spec(8));
        EXPECT_TRUE(near.back == reference_block(near.payload, data.size(), false)) << classes;
        for (std::size_t e = 0; e < elements; ++e) {
          const double x = value_at(type, data.data(), e), y = value_at(type, near.back.data(), e);
          if (x > -1) {
            ASSERT_EQ(std::memcmp(data.data() + e * size, &near.back[e * size], size), 0) << e;
          } else {  // a range of 18 at most, so a step below 18 / 254
            ASSERT_LE(std::fabs(x - y), 18.0 / 254 + (type == ElementType::kFloat32 ? 0 : 0.07));
          }
        }
      }
    }
  }
}

TEST(NearZero, OneOfTwentyOneClassesTakesAQuarterMoreThanEightBits) {
  const ElementType type = ElementType::kFloat32;
  const std::size_t elements = 21 * 65536;
  const Bytes data = log_probabilities(type, elements, 21);
  const double plain = double(coded(type, data, {8}).payload.size());
  const double near = double(coded(type, data, near_spec(8)).payload.size());
  EXPECT_LT(near / plain, 1.25);
  // 256/21 elements of 4 + 1 bytes, a count of 2, and offsets, on top of 256 + 8 bytes.
  EXPECT_NEAR((near - plain) / (elements / 256.0), 256.0 / 21 * 5 + 2 + 0.125, 0.5);
}

TEST(NearZero, AnyMixtureOfGroupsIsWhatTheDocumentSays) {
  for (const Path& path : paths()) {
    const UsePath use(path);
    std::mt19937_64 random(seed() + 5);
    for (const ElementType type : kFloatTypes) {
      for (const unsigned bits : {1u, 2u, 3u, 4u, 6u, 8u}) {
        const std::size_t elements = 256 * 140 + 1 + random() % 255, size = element_size(type);
        Bytes data(elements * size);
        for (std::size_t e = 0; e < elements; ++e) {
          const std::size_t group = e / 256, kind = group % 9;
          const double u = double(random() % 1000) / 1000;
          const double x = kind == 0   ? -u * 0.9                         // all near zero
                           : kind == 1 ? (e % 8 == 0 ? -u : -3 - 5 * u)   // listed: 32
                           : kind == 2 ? (e % 9 == 0 ? 0.0 : -3 - 5 * u)  // listed: fewer
                           : kind == 3 ? -1 - u                           // -1 itself is not near
                           : kind == 4 ? (e % 256 == 9 ? 0.5 : -7)        // the rest is constant
                           : kind == 5 ? (e % 3 == 0   ? -0.1
                                          : e % 3 == 1 ? -2
                                                       : -5)
                           : kind == 6 ? (e % 256 == 3 ? INFINITY : -2 - u)
                           : kind == 7 ? (e % 256 == 3 ? -0.0 : -60 * u)
                                       : -8 * u;
          set_value(type, data.data(), e, x);
        }
        set_value(type, data.data(), 16 * 256 + 5, -INFINITY);  // escaped, near elements or none
        const Near near = coded(type, data, near_spec(bits));
        EXPECT_TRUE(near.back == reference_block(near.payload, data.size(), false));
        for (std::size_t e = 0; e < elements; ++e)
          if (value_at(type, data.data(), e) > -1) {
            ASSERT_EQ(std::memcmp(data.data() + e * size, &near.back[e * size], size), 0);
          }
        for (const Transform transform : {Transform::kHadamard, Transform::kHadamardScaled}) {
          const Near rotated = coded(type, data, near_spec(bits, transform));
          for (std::size_t e = 0; e < elements; ++e)
            if (value_at(type, data.data(), e) > -1) {
              ASSERT_EQ(std::memcmp(data.data() + e * size, &rotated.back[e * size], size), 0);
            }
        }
      }
    }
  }
}

TEST(NearZero, WithoutSuchElementsThePayloadIsThatOfAnyOther) {
  for (const ElementType type : kFloatTypes) {
    Bytes data(30000 * element_size(type));
    for (std::size_t e = 0; e < 30000; ++e)
      set_value(type, data.data(), e, -1 - std::fabs(std::sin(double(e))));
    EXPECT_EQ(near_zero_room({data.data(), 30000, type}, true, serial_executor()), 0u);
    EXPECT_TRUE(coded(type, data, near_spec(8)).payload == coded(type, data, {8}).payload);
  }
}

TEST(NearZero, AllNearZeroIsExactAndNoConstantPayload) {
  const ElementType type = ElementType::kFloat32;
  Bytes data(5000 * 4);
  for (std::size_t e = 0; e < 5000; ++e) set_value(type, data.data(), e, -1e-3 * double(e % 97));
  EXPECT_TRUE(coded(type, data, near_spec(8)).back ==
              std::vector<unsigned char>(data.data(), data.data() + data.size()));
}

TEST(NearZero, TheRoomOfAQuickLookHoldsAndIsLittleMoreThanIsUsed) {
  const ElementType type = ElementType::kFloat32;
  for (const std::size_t classes : {2u, 21u, 1000u, 50257u}) {
    const std::size_t elements = std::size_t{1} << 21;
    const Bytes data = log_probabilities(type, elements, classes);
    const Span span{data.data(), elements, type};
    const std::size_t exact = near_zero_room(span, true, serial_executor());
    const std::size_t quick = near_zero_room(span, false, serial_executor());
    EXPECT_GE(quick, exact) << classes;
    EXPECT_LE(quick - exact, elements * 4 / 200) << classes;
  }
}

TEST(NearZero, ABlockWhoseSamplesMissTheElementsIsPlannedAgain) {
  const ElementType type = ElementType::kFloat32;
  const std::size_t groups = 4096;
  Bytes data(groups * 1024);
  for (std::size_t e = 0; e < groups * 256; ++e)
    set_value(type, data.data(), e, -2 - std::fabs(std::sin(double(e))));
  for (std::size_t e = 1300 * 256; e < 1316 * 256; ++e) set_value(type, data.data(), e, -0.25);
  const ByteRange all{0, data.size()};
  const BlockSource source{data.data(), data.size(), &all, 1};
  const BlockSpec spec{.type = type, .bits = 8, .steps = Steps::kExponent, .near_zero = true};
  for (const Effort effort : {Effort::kQuick, Effort::kThorough}) {
    const BlockPlan plan = plan_block(source, spec, false, effort);
    EXPECT_EQ(plan.guesses, effort == Effort::kQuick);
    Bytes payload(plan.room);
    const auto result =
        encode_block(source, plan, 3, payload.data(), payload.size(), serial_executor());
    if (effort == Effort::kQuick && result.status != Status::kOk) {
      EXPECT_EQ(result.status, Status::kNoRoom);
      continue;
    }
    ASSERT_EQ(result.status, Status::kOk);
    Bytes back(data.size());
    ASSERT_EQ(decode_block(result.form, payload.data(), result.payload_bytes, back.data(),
                           back.size(), serial_executor()),
              Status::kOk);
    EXPECT_EQ(std::memcmp(back.data() + 1300 * 1024, data.data() + 1300 * 1024, 16 * 1024), 0);
  }
}

TEST(NearZero, DamageIsSeenOrHarmless) {
  const ElementType type = ElementType::kBFloat16;
  const std::size_t elements = 256 * 70 + 9;
  const Bytes data = log_probabilities(type, elements, 5);
  const std::vector<std::uint8_t> whole = coded(type, data, near_spec(8)).payload;
  const std::size_t section = whole.size() - whole.size() / 4;
  std::mt19937_64 random(seed());
  std::size_t refused = 0;
  for (int i = 0; i < 3000; ++i) {
    std::vector<std::uint8_t> damaged = whole;
    if (i % 3 == 0) damaged.resize(random() % whole.size());
    for (int n = 0; n < 3 && !damaged.empty(); ++n)
      damaged[(i % 2 == 0 ? section : 0) < damaged.size()
                  ? (i % 2 == 0 ? section : 0) +
                        random() % (damaged.size() - (i % 2 == 0 ? section : 0))
                  : 0] = static_cast<std::uint8_t>(random());
    Bytes target(data.size());
    auto* const copy = static_cast<std::uint8_t*>(std::malloc(damaged.size() + 1));
    std::copy(damaged.begin(), damaged.end(), copy);
    refused +=
        decode(copy, damaged.size(), target.data(), target.size(), serial_executor()) != Status::kOk
            ? 1
            : 0;
    std::free(copy);
    EXPECT_TRUE(target.guard_intact());
  }
  EXPECT_GT(refused, 1000u);
}

}  // namespace
}  // namespace pleat::compress
