// Rotated and scaled groups by the CUDA kernels' own code, run on the CPU tile by tile.
#include <functional>
#include <iterator>

#include "compress/format.h"
#include "compress/rotated/rotation.h"
#include "compress/rotated/scaled_math.h"
#include "tests/compress/emulated_device.h"
#include "tests/compress/emulated_payload.h"

namespace pleat::compress::test {
namespace {

// Transformed: groups kept for their one or two patterns, those that come out of the rotation with
// so few (one 1 among zeros of both signs), NaNs, and values whose sums overflow.
TEST(CudaCore, TransformedGroupsThatAreNotRotated) {
  std::mt19937_64 random(seed());
  for (const ElementType type : kFloatTypes) {
    const std::size_t size = element_size(type), elements = 256 * 640 - 31;
    Bytes source(elements * size);
    for (std::size_t e = 0; e < elements; ++e) {
      const std::size_t g = e / 256, at = e % 256;
      const bool rare = g % 100 == 7;  // an escape table holds one group in 64
      double value = double(random() % 1000) - 500;
      if (g % 5 == 1) value = 2.5;
      if (g % 5 == 2) value = (at * g) % 3 == 0 ? -1.5 : 0.0;
      if (g % 5 == 3) value = at == g % 256 ? -0.0 : 0.0;
      if (rare && g / 100 % 2 == 0) value = at == 3 ? NAN : 1.0;
      if (rare && g / 100 % 2 == 1) value = at == 9 ? -0.0 : at == g % 256 ? 1.0 : 0.0;
      if (g == 207)
        value = at % 7 == 0 ? double(at) : type == ElementType::kFloat16 ? 65504.0 : 3.3e38;
      set_value(type, source.data(), e, value);
    }
    for (const unsigned bits : {1u, 2u, 4u, 8u})
      for (const Transform transform : {Transform::kHadamard, Transform::kHadamardScaled})
        expect_bytes_of_scalar_path(type, bits, transform, source,
                                    std::string(name_of(type)) + " " + std::to_string(bits));
  }
}

std::size_t scaled_groups(const std::vector<unsigned char>& payload, std::size_t groups) {
  std::size_t count = 0;
  for (std::size_t g = 0; g < groups; ++g) {
    Metadata<Float32> metadata;
    std::memcpy(&metadata, payload.data() + 64 + 8 * g, sizeof metadata);
    count += is_scaled(metadata);
  }
  return count;
}

// One kind of group each, some on either side of a bound.
TEST(CudaCore, ScaledGroupsAndThoseTheyLeaveToDither) {
  std::mt19937_64 random(seed());
  std::normal_distribution<double> normal;
  unsigned bits = 0;
  const auto around = [&](double scale) {  // the deviation of a group with about this scale
    return scale * (bits == 1 ? 0.637 : 0.88) * (0.75 + double(random() % 1000) / 2000);
  };
  struct Kind {
    const char* name;
    std::function<void(double*)> make;
    bool some, all;  // of its groups are scaled
    bool wide;       // numbers that float16 lacks
  };
  const auto each = [](auto f) {
    return [f](double* x) {
      for (std::size_t e = 0; e < 256; ++e) x[e] = f(e);
    };
  };
  const auto gaussian = [&](double deviation) {
    return each([&, deviation](std::size_t) { return deviation * normal(random); });
  };
  const Kind kinds[] = {
      {"Gaussian", gaussian(1), true, true, false},
      {"off centre", each([&](std::size_t) { return 100 + normal(random); }), true, true, false},
      {"heavy-tailed", each([&](std::size_t) { return std::pow(normal(random), 3); }), true, false,
       false},
      {"one spike, near the gate",
       [&](double* x) {
         for (std::size_t e = 0; e < 256; ++e) x[e] = normal(random);
         x[random() % 256] = 10 + double(random() % 300) / 100;
       },
       true, false, false},
      {"40 to 60 spikes of nearly one height",
       [&](double* x) {
         const std::size_t spikes = 40 + random() % 21;
         for (std::size_t e = 0; e < 256; ++e) x[e] = e < spikes ? 1 + 0.01 * normal(random) : 0.0;
         std::shuffle(x, x + 256, random);
       },
       true, false, false},
      {"three spikes",
       [&](double* x) {
         for (std::size_t e = 0; e < 256; ++e) x[e] = e % 90 == 7 ? 300 * normal(random) : 0.0;
       },
       false, false, false},
      {"a scale about 2^-110", [&](double* x) { gaussian(around(std::ldexp(1.0, -110)))(x); }, true,
       false, true},
      {"a scale about 1e35", [&](double* x) { gaussian(around(1e35))(x); }, true, false, true},
      {"subnormal halves", gaussian(3e-7), true, true, false}};
  for (const Kind& kind : kinds) {
    for (const ElementType type : kFloatTypes) {
      if (kind.wide && type == ElementType::kFloat16) continue;
      for (bits = 1; bits <= 2; ++bits) {
        const std::size_t elements = 256 * 127 + 201;
        Bytes source(elements * element_size(type));
        for (std::size_t g = 0; g < 128; ++g) {
          double x[256];
          kind.make(x);
          for (std::size_t e = 0; e < 256 && g * 256 + e < elements; ++e)
            set_value(type, source.data(), g * 256 + e, x[e]);
        }
        const std::string what =
            std::string(kind.name) + ", " + name_of(type) + " " + std::to_string(bits) + " bits";
        expect_bytes_of_scalar_path(type, bits, Transform::kHadamardScaled, source, what);
        const std::size_t scaled = scaled_groups(
            reference_payload(type, bits, elements, source.data(), Transform::kHadamardScaled),
            128);
        EXPECT_EQ(scaled != 0, kind.some) << what;
        EXPECT_EQ(scaled == 128, kind.all) << what;
      }
    }
  }
}

// All in one span, with masks, constants, NaN and sums that overflow between them; unaligned, too.
TEST(CudaCore, ScaledGroupsBesideAllOthers) {
  std::mt19937_64 random(seed());
  std::normal_distribution<double> normal;
  for (const ElementType type : kFloatTypes) {
    const std::size_t size = element_size(type), elements = 256 * 700 - 77;
    const bool half = type == ElementType::kFloat16;
    for (const std::size_t shift : {std::size_t{0}, size}) {
      Bytes source(elements * size, shift);
      for (std::size_t e = 0; e < elements; ++e) {
        const std::size_t g = e / 256, at = e % 256;
        double value = normal(random);
        if (g % 7 == 1) value = 2.5;
        if (g % 7 == 2) value = random() % 2 != 0 ? -1.5 : 0.0;
        if (g % 7 == 3) value = at == g % 256 ? -40.0 : value;
        if (g % 7 == 4) value = half ? 65504 * std::tanh(value) : 1e36 * value;
        if (g == 90 && at == 17) value = NAN;
        if (g == 190) value = at % 2 != 0 ? NAN : 1.0;  // two patterns
        if (g == 290 && at == 255) value = -INFINITY;
        if (g == 390) value = half ? value : 1.5e37 * value;   // passes the gate, overflows
        if (g == 490) value = at == 3 || at == 9 ? 1.0 : 0.0;  // rotated, of two or three values
        if (g == 699) value = at < 100 ? value : NAN;
        set_value(type, source.data(), e, value);
      }
      for (const unsigned bits : {1u, 2u}) {
        const std::string what = std::string(name_of(type)) + " " + std::to_string(bits);
        expect_bytes_of_scalar_path(type, bits, Transform::kHadamardScaled, source, what);
        const auto payload =
            reference_payload(type, bits, elements, source.data(), Transform::kHadamardScaled);
        EXPECT_GT(scaled_groups(payload, 700), 250u) << what;
        Header header;
        std::memcpy(&header, payload.data(), sizeof header);
        EXPECT_GE(header.escapes, 3u) << what;
      }
    }
  }
}

// As docs/payload_format.md orders them.
template <class Term>
double ordered_sum(Term&& term) {
  double part[8] = {};
  for (std::size_t e = 0; e < 256; ++e) part[e % 8] += term(e);
  return ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
}

// Too little depends on a sum's last bits for payloads to show its order.
TEST(CudaCore, SumsOfScaledGroupsAreTheScalarPathsToTheLastBit) {
  std::mt19937_64 random(seed());
  std::normal_distribution<float> normal;
  for (std::uint64_t group = 0; group < 200; ++group) {
    float x[256];
    for (float& value : x) value = std::pow(normal(random), 3.0f);
    EmulatedTile<Float32> tile;
    tile.each([&](auto& lane) {
      load_lane<Float32>(reinterpret_cast<const std::uint32_t*>(x), 256, true, lane);
      flip_lane_signs(lane, kNonce, group);
    });
    turn_tile(tile);
    const Sums<3> gate = gate_sums(tile);
    EXPECT_EQ(gate.of[0], ordered_sum([&](std::size_t e) { return square(x[e]); }));
    EXPECT_EQ(gate.of[1], ordered_sum([&](std::size_t e) { return square(x[e]) * square(x[e]); }));
    EXPECT_EQ(gate.of[2], ordered_sum([&](std::size_t e) { return double(magnitude(x[e])); }));
    rotate_turned(tile);
    rotate(kNonce, group, x);
    const double energy = ordered_sum([&](std::size_t e) { return square(x[e]); });
    EXPECT_EQ(energy_sum(tile).of[0], energy);
    const float outer = outer_threshold(energy);
    // By the levels that the format names, in float.
    EXPECT_EQ(product_sum<1>(tile, outer).of[0], ordered_sum([&](std::size_t e) {
                return double(x[e]) * double(x[e] >= 0 ? 0.797884561f : -0.797884561f);
              }));
    EXPECT_EQ(product_sum<2>(tile, outer).of[0], ordered_sum([&](std::size_t e) {
                const float levels[] = {-1.51041761f, -0.452780034f, 0.452780034f, 1.51041761f};
                return double(x[e]) * double(levels[scaled_code<2>(x[e], outer)]);
              }));
  }
}

// Any scale, NaN and Inf among them, and marks on groups that have none: as the scalar path
// restores them, and without the flag they are no scaled groups.
TEST(CudaCore, HostileScaledGroupsAreRestoredAsTheScalarPathDoes) {
  std::mt19937_64 random(seed());
  const UsePath scalar(paths()[0]);
  const std::size_t elements = 256 * 40 + 9;
  for (const ElementType type : kFloatTypes) {
    for (const unsigned bits : {1u, 2u}) {
      const Bytes source = ordinary(type, elements);
      const auto intact =
          reference_payload(type, bits, elements, source.data(), Transform::kHadamardScaled);
      unsigned refused = 0, restored = 0;
      for (int round = 0; round < 300; ++round) {
        auto damaged = intact;
        for (int n = 0; n < 20; ++n) {
          const std::uint32_t scales[] = {0x7F80'0000u, 0x7FC0'0001u,
                                          17u << 23,    (17u << 23) + 1,
                                          0x3F80'0001u, static_cast<std::uint32_t>(random())};
          const std::uint32_t words[] = {
              n % 5 == 0 ? static_cast<std::uint32_t>(random()) : kScaledMark,
              scales[random() % std::size(scales)]};
          std::memcpy(damaged.data() + 64 + 8 * (random() % 41), words, 8);
        }
        Transform transform = Transform::kHadamardScaled;
        if (round % 3 == 1) {
          damaged[9] &= static_cast<unsigned char>(~kFlagScaled);
          transform = Transform::kHadamard;
        }
        if (round % 3 == 2)
          damaged[random() % (round % 2 == 0 ? kHeaderBytes : damaged.size())] ^=
              static_cast<unsigned char>(1u << random() % 8);
        Bytes target(source.size()), expected(source.size());
        const bool decodes = emulated_decode(type, bits, elements, damaged, target.data(),
                                             transform) == cuda::Outcome::kDone;
        EXPECT_TRUE(target.guard_intact());
        const bool wanted = decode(damaged.data(), damaged.size(), expected.data(), source.size(),
                                   serial_executor()) == Status::kOk;
        if (round % 3 == 2) {  // the CPU takes more
          EXPECT_TRUE(wanted || !decodes);
        } else {
          EXPECT_EQ(wanted, decodes);
        }
        EXPECT_TRUE(!decodes || std::memcmp(target.data(), expected.data(), source.size()) == 0);
        ++(decodes ? restored : refused);
      }
      EXPECT_GT(restored, 20u);
      EXPECT_GT(refused, 20u);
      // Each form's payloads are refused where the other's are expected.
      Bytes target(source.size());
      EXPECT_EQ(emulated_decode(type, bits, elements, intact, target.data(), Transform::kHadamard),
                cuda::Outcome::kCorrupt);
      const auto rotated =
          reference_payload(type, bits, elements, source.data(), Transform::kHadamard);
      EXPECT_EQ(
          emulated_decode(type, bits, elements, rotated, target.data(), Transform::kHadamardScaled),
          cuda::Outcome::kCorrupt);
    }
  }
}

}  // namespace
}  // namespace pleat::compress::test
