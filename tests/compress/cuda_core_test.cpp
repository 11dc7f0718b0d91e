// The CUDA kernels' own code, run on the CPU tile by tile, against the scalar path: same bytes.
#include <functional>
#include <iterator>

#include "compress/cuda/device_codec.h"
#include "compress/format.h"
#include "compress/rotation.h"
#include "compress/scaled_math.h"
#include "tests/compress/emulated_device.h"
#include "tests/compress/fixed_payload.h"
#include "tests/compress/support.h"

namespace pleat::compress::test {
namespace {

constexpr std::uint64_t kNonce = 0xFEDC'BA98'7654'3210;
constexpr std::size_t kSizes[] = {1, 100, 255, 256, 257, 2048, 16384, 65536 + 3};

std::vector<unsigned char> reference_payload(ElementType type, unsigned bits, std::size_t elements,
                                             const unsigned char* source,
                                             Transform transform = Transform::kNone) {
  return fixed_payload(type, bits, transform, elements, kNonce, source);
}

struct Emulated {
  cuda::Verdict verdict;
  std::vector<unsigned char> payload;
};
Emulated emulated_payload(ElementType type, unsigned bits, std::size_t elements, const void* source,
                          Transform transform = Transform::kNone) {
  const GroupedLayout layout(type, bits, elements, transform != Transform::kNone);
  Bytes room(layout.end_of_codes() + layout.escape_limit(bits) * layout.source_bytes_per_group);
  Emulated result;
  cuda::Job job{};
  job.source = source;
  job.target = room.data();
  job.verdict = &result.verdict;
  job.elements = elements;
  job.nonce = kNonce;
  with_form(static_cast<unsigned>(type), bits, transform,
            [&]<class F>() { emulate_encode<F>(job); });
  EXPECT_TRUE(room.guard_intact());
  EXPECT_LE(result.verdict.payload_bytes, room.size());
  result.payload.assign(room.data(), room.data() + result.verdict.payload_bytes);
  return result;
}
cuda::Outcome emulated_decode(ElementType type, unsigned bits, std::size_t elements,
                              const std::vector<unsigned char>& payload, void* target,
                              Transform transform = Transform::kNone) {
  Bytes copy(payload.size());  // aligned as payloads are
  std::memcpy(copy.data(), payload.data(), payload.size());
  cuda::Verdict verdict;
  cuda::Job job{};
  job.source = copy.data();
  job.target = target;
  job.verdict = &verdict;
  job.elements = elements;
  with_form(static_cast<unsigned>(type), bits, transform,
            [&]<class F>() { emulate_decode<F>(job); });
  return verdict.outcome;
}

// What the kernels make of `source`, and back, against the scalar path.
void expect_bytes_of_scalar_path(ElementType type, unsigned bits, Transform transform,
                                 const Bytes& source, const std::string& what) {
  const std::size_t elements = source.size() / element_size(type);
  const std::vector<unsigned char> expected =
      reference_payload(type, bits, elements, source.data(), transform);
  const Emulated got = emulated_payload(type, bits, elements, source.data(), transform);
  ASSERT_FALSE(expected.empty()) << what;
  ASSERT_EQ(got.verdict.outcome, cuda::Outcome::kDone) << what;
  EXPECT_TRUE(got.payload == expected) << what;
  Bytes restored(source.size());
  ASSERT_EQ(emulated_decode(type, bits, elements, expected, restored.data(), transform),
            cuda::Outcome::kDone)
      << what;
  EXPECT_TRUE(restored.guard_intact());
  const auto decoded = decode_span(expected, source.size());
  EXPECT_EQ(std::memcmp(decoded.data(), restored.data(), source.size()), 0) << what;
}

TEST(CudaCore, KernelsGiveTheBytesOfTheScalarPath) {
  for (const Transform transform :
       {Transform::kNone, Transform::kHadamard, Transform::kHadamardScaled})
    for (const ElementType type : kFloatTypes)
      for (const unsigned bits : {1u, 2u, 3u, 4u, 8u})
        for (const std::size_t elements : kSizes)
          expect_bytes_of_scalar_path(type, bits, transform,
                                      transform == Transform::kNone ? mixed(type, elements, bits)
                                                                    : ordinary(type, elements),
                                      std::string(name_of(type)) + " " + std::to_string(bits) +
                                          " bits, " + std::to_string(elements) + ", transform " +
                                          std::to_string(static_cast<int>(transform)));
}

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
          const std::uint32_t scales[] = {
              0x7F80'0000u, 0x7FC0'0001u, 2, 3, 0x3F80'0001u, static_cast<std::uint32_t>(random())};
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

TEST(CudaCore, UncompactedPayloadsAreThoseOfEncode) {
  for (const ElementType type : kFloatTypes) {
    for (const unsigned bits : kWidths) {
      const std::size_t elements = 40000;
      std::mt19937_64 random(seed());
      std::normal_distribution<double> normal;
      Bytes source(elements * element_size(type));
      for (std::size_t e = 0; e < elements; ++e) set_value(type, source.data(), e, normal(random));
      const Encoded reference = encode_span(source.data(), elements, type, bits, kNonce);
      ASSERT_EQ(reference.status, Status::kOk);
      EXPECT_TRUE(reference.payload ==
                  emulated_payload(type, bits, elements, source.data()).payload)
          << name_of(type) << " " << bits;
    }
  }
}

TEST(CudaCore, SourcesAndTargetsOfAnyAlignment) {
  for (const ElementType type : kFloatTypes) {
    const std::size_t elements = 3000, size = element_size(type);
    const Bytes source = mixed(type, elements, 5);
    const std::vector<unsigned char> expected = reference_payload(type, 4, elements, source.data());
    for (std::size_t shift = size; shift < 16; shift += size) {
      Bytes shifted(source.size(), shift);
      std::memcpy(shifted.data(), source.data(), source.size());
      EXPECT_TRUE(emulated_payload(type, 4, elements, shifted.data()).payload == expected);
      Bytes restored(source.size(), shift);
      ASSERT_EQ(emulated_decode(type, 4, elements, expected, restored.data()),
                cuda::Outcome::kDone);
      EXPECT_TRUE(restored.guard_intact());
      EXPECT_EQ(
          std::memcmp(decode_span(expected, source.size()).data(), restored.data(), source.size()),
          0);
    }
  }
}

// Groups of few values, where searching for patterns and looking at one element per lane part ways.
TEST(CudaCore, GroupsOfFewValuesAreToldApart) {
  std::mt19937_64 random(seed());
  for (const ElementType type : kFloatTypes) {
    const std::size_t elements = 256 * 300 - 17;
    Bytes source(elements * element_size(type));
    for (std::size_t g = 0; g * 256 < elements; ++g) {
      const double values[4] = {0.0, -0.0, 1.0 + double(g % 7), g % 3 == 0 ? -3.0 : 0.5};
      const std::size_t odd = random() % 256;  // the one element that differs
      for (std::size_t e = 0; e < 256 && g * 256 + e < elements; ++e)
        set_value(type, source.data(), g * 256 + e,
                  e == odd ? values[g / 4 % 4] : values[(g % 2 + e * (g / 16 % 2)) % 4]);
    }
    for (const unsigned bits : {1u, 2u, 3u, 4u, 8u})
      EXPECT_TRUE(emulated_payload(type, bits, elements, source.data()).payload ==
                  reference_payload(type, bits, elements, source.data()))
          << name_of(type) << " " << bits;
  }
}

TEST(CudaCore, LosslessCodesGroupsOfOneOrTwoPatternsAndEscapesFew) {
  for (const ElementType type : kFloatTypes) {
    for (const bool few : {true, false}) {
      const std::size_t elements = 256 * 64;
      Bytes source(elements * element_size(type));
      for (std::size_t e = 0; e < elements; ++e) {
        const bool exact = e / 256 % (few ? 10 : 5) != 3;
        set_value(type, source.data(), e, exact ? double(e % 2) : double(e % 100));
      }
      const auto expected = reference_payload(type, 0, elements, source.data());
      const Emulated got = emulated_payload(type, 0, elements, source.data());
      EXPECT_EQ(expected.empty(), !few);
      EXPECT_EQ(got.verdict.outcome, few ? cuda::Outcome::kDone : cuda::Outcome::kKeepRaw);
      EXPECT_TRUE(got.payload == expected);
      if (!few) continue;
      Bytes restored(source.size());
      ASSERT_EQ(emulated_decode(type, 0, elements, expected, restored.data()),
                cuda::Outcome::kDone);
      EXPECT_EQ(std::memcmp(source.data(), restored.data(), source.size()), 0);
    }
  }
}

TEST(CudaCore, TooManyEscapesLeaveAVerdictAndNoPayload) {
  const std::size_t elements = 256 * 128;
  Bytes source = mixed(ElementType::kFloat32, elements, 1, false);
  for (const unsigned escapes : {2u, 3u}) {  // the limit is 128 / 64
    for (unsigned g = 0; g < escapes; ++g) source.as<float>()[256 * (g * 40 + 7) + 9] = INFINITY;
    const Emulated got = emulated_payload(ElementType::kFloat32, 4, elements, source.data());
    EXPECT_EQ(got.verdict.escapes, escapes);
    EXPECT_EQ(got.verdict.outcome, escapes == 2 ? cuda::Outcome::kDone : cuda::Outcome::kKeepRaw);
    EXPECT_EQ(got.payload.empty(), escapes == 3);
  }
}

// Whatever a payload holds, no lane leaves the two buffers (guards, and AddressSanitizer).
TEST(CudaCore, DamagedPayloadsAreRefusedOrDecodedWithinBounds) {
  std::mt19937_64 random(seed());
  const std::size_t elements = 5000;
  for (const Transform transform : {Transform::kNone, Transform::kHadamard}) {
    Bytes source = transform != Transform::kNone
                       ? ordinary(ElementType::kBFloat16, elements)
                       : mixed(ElementType::kBFloat16, elements, 2, false);
    for (std::size_t e = 0; e < 512; ++e)  // two patterns, and an escape
      set_value(ElementType::kBFloat16, source.data(), e, e == 300 ? NAN : double(e % 2));
    const auto intact =
        reference_payload(ElementType::kBFloat16, 4, elements, source.data(), transform);
    unsigned refused = 0;
    for (int round = 0; round < 2000; ++round) {
      auto damaged = intact;
      const std::size_t within = round % 2 == 0 ? kHeaderBytes : damaged.size();
      damaged[random() % within] ^= static_cast<unsigned char>(1u << random() % 8);
      Bytes target(source.size());
      const auto outcome =
          emulated_decode(ElementType::kBFloat16, 4, elements, damaged, target.data(), transform);
      EXPECT_TRUE(target.guard_intact());
      refused += outcome == cuda::Outcome::kCorrupt;
    }
    EXPECT_GT(refused, 500u);  // nearly all of a header's bits are checked
    Bytes target(source.size());
    EXPECT_EQ(
        emulated_decode(ElementType::kBFloat16, 4, elements, intact, target.data(),
                        transform == Transform::kNone ? Transform::kHadamard : Transform::kNone),
        cuda::Outcome::kCorrupt);
  }
}

// A span encoded over itself by `blocks` blocks at a time, whose turns `pick` chooses.
struct InPlaceSpan {
  Bytes block;
  cuda::Verdict verdict;
  InPlaceTurns turns;
};
template <class Pick>
InPlaceSpan encode_in_place(ElementType type, unsigned bits, const Bytes& source, unsigned blocks,
                            Pick pick) {
  InPlaceSpan span{Bytes(source.size()), {}, {}};
  std::memcpy(span.block.data(), source.data(), source.size());
  cuda::DeviceTask task;
  task.type = type;
  task.bits = static_cast<std::uint8_t>(bits);
  task.elements = source.size() / element_size(type);
  task.source = task.target = span.block.data();
  EXPECT_TRUE(cuda::device_can_encode_in_place(task));
  Bytes scratch(cuda::device_scratch_bytes(task));
  cuda::Job job{};
  job.source = job.target = span.block.data();
  job.verdict = &span.verdict;
  job.elements = task.elements;
  job.nonce = kNonce;
  job.scratch = scratch.data();
  job.width = bits;
  with_form(static_cast<unsigned>(type), bits, Transform::kNone, [&]<class F>() {
    if constexpr (F::kBits != 0 && !F::kTransformed) {
      emulate_survey<typename F::Source>(job);
      EXPECT_TRUE(emulate_in_place<F>(job, blocks, pick, &span.turns)) << "a deadlock";
    }
  });
  EXPECT_TRUE(span.block.guard_intact() && scratch.guard_intact());
  return span;
}
void expect_in_place(ElementType type, unsigned bits, const Bytes& source, const InPlaceSpan& span,
                     const std::string& what) {
  const auto expected =
      reference_payload(type, bits, source.size() / element_size(type), source.data());
  const bool fits = !expected.empty() && expected.size() <= source.size();
  ASSERT_EQ(span.verdict.outcome, fits ? cuda::Outcome::kDone : cuda::Outcome::kKeepRaw) << what;
  EXPECT_EQ(span.verdict.payload_bytes, fits ? expected.size() : 0) << what;
  const unsigned char* const wanted = fits ? expected.data() : source.data();
  EXPECT_EQ(std::memcmp(span.block.data(), wanted, fits ? expected.size() : source.size()), 0)
      << what;
}

// Whoever of the blocks is faster, and with one that dawdles: the bytes of the ordinary encoder.
TEST(CudaCore, InPlaceGivesTheSameBytesInEveryOrderOfBlocks) {
  std::mt19937_64 random(seed());
  InPlaceTurns all;
  for (const ElementType type : kFloatTypes) {
    for (const unsigned bits : {1u, 2u, 3u, 4u, 8u}) {
      for (const std::size_t elements :
           {std::size_t{700}, std::size_t{8192}, std::size_t{70001}, std::size_t{8192} * 330 + 5}) {
        if (elements > 100000 && bits != 4 && bits != 8) continue;
        const Bytes source = mixed(type, elements, bits);
        const auto blocks = static_cast<unsigned>(1 + random() % 12);
        const InPlaceSpan span = encode_in_place(type, bits, source, blocks, [&](unsigned n) {
          const auto turn = static_cast<unsigned>(random() % n);
          return turn == 0 && random() % 40 != 0 ? n - 1 : turn;  // block 0 is slow
        });
        expect_in_place(type, bits, source, span,
                        std::string(name_of(type)) + " " + std::to_string(bits) + " bits, " +
                            std::to_string(elements));
        all.bounced += span.turns.bounced;
        all.waited += span.turns.waited;
      }
    }
  }
  EXPECT_GT(all.bounced, 20u);  // the detour is taken
  EXPECT_GT(all.waited, 100u);  // and blocks do wait
}

TEST(CudaCore, InPlaceLeavesASourceThatIsKeptRawUntouched) {
  const auto first = [](unsigned) { return 0u; };
  Bytes many = mixed(ElementType::kFloat32, 256 * 200, 3, false);
  for (unsigned g = 0; g < 4; ++g) many.as<float>()[256 * (g * 40 + 7) + 9] = NAN;
  const InPlaceSpan span = encode_in_place(ElementType::kFloat32, 4, many, 1, first);
  EXPECT_EQ(span.verdict.outcome, cuda::Outcome::kKeepRaw);
  EXPECT_EQ(span.verdict.escapes, 4u);
  expect_in_place(ElementType::kFloat32, 4, many, span, "too many escapes");
  // One escaped group that fits beside two others' codes, but not beside one's.
  for (const std::size_t groups : {2u, 3u}) {
    Bytes few(groups * 512);
    for (std::size_t e = 0; e < groups * 256; ++e)
      set_value(ElementType::kFloat16, few.data(), e, double(e % 100) - 50);
    set_value(ElementType::kFloat16, few.data(), 300, NAN);
    const InPlaceSpan one = encode_in_place(ElementType::kFloat16, 8, few, 1, first);
    EXPECT_EQ(one.verdict.outcome, groups == 3 ? cuda::Outcome::kDone : cuda::Outcome::kKeepRaw);
    expect_in_place(ElementType::kFloat16, 8, few, one, std::to_string(groups) + " groups");
  }
}

// A short last group that escapes, or has two patterns of which padding repeats the first.
TEST(CudaCore, ShortLastGroups) {
  const auto first = [](unsigned) { return 0u; };
  for (const ElementType type : kFloatTypes) {
    for (const bool escaped : {true, false}) {
      const std::size_t elements = 256 * 70 + 37;
      Bytes source = ordinary(type, elements);
      for (std::size_t e = 256 * 70; e < elements; ++e)
        if (escaped)
          set_value(type, source.data(), e, e % 5 == 4 ? NAN : double(e % 7));
        else
          set_value(type, source.data(), e, e % 3 == 2 ? 0.0 : 1.5);
      for (const unsigned bits : {1u, 4u, 8u}) {
        const std::string what = std::string(name_of(type)) + " " + std::to_string(bits) +
                                 (escaped ? " escaped" : " two-valued");
        expect_bytes_of_scalar_path(type, bits, Transform::kNone, source, what);
        expect_bytes_of_scalar_path(type, bits, Transform::kHadamard, source, what + ", rotated");
        expect_bytes_of_scalar_path(type, bits, Transform::kHadamardScaled, source,
                                    what + ", scaled");
        expect_in_place(type, bits, source, encode_in_place(type, bits, source, 1, first),
                        what + ", in place");
      }
    }
  }
}

struct PackedSpan {
  cuda::Verdict packed, unpacked;
  std::vector<unsigned char> payload;
  Bytes restored;
};
PackedSpan pack(ElementType type, const Bytes& source, std::int64_t minimum, unsigned width,
                std::size_t shift = 0) {
  const std::size_t elements = source.size() / element_size(type);
  cuda::DeviceTask task;
  task.type = type;
  task.elements = elements;
  task.width = width;
  Bytes payload(cuda::device_payload_bytes(task));
  PackedSpan result{{}, {}, {}, Bytes(source.size(), shift)};
  cuda::Job job{};
  job.source = source.data();
  job.target = payload.data();
  job.verdict = &result.packed;
  job.elements = elements;
  job.nonce = kNonce;
  job.minimum = minimum;
  job.width = width;
  emulate_pack(job, static_cast<unsigned>(type));
  EXPECT_TRUE(payload.guard_intact());
  result.payload.assign(payload.data(), payload.data() + result.packed.payload_bytes);
  job.source = payload.data();
  job.target = result.restored.data();
  job.verdict = &result.unpacked;
  emulate_unpack(job, static_cast<unsigned>(type));
  EXPECT_TRUE(result.restored.guard_intact());
  return result;
}

TEST(CudaCore, BooleansAndIntegersGiveTheBytesOfEncode) {
  std::mt19937_64 random(seed());
  for (const ElementType type : {ElementType::kBool, ElementType::kInt64, ElementType::kInt32}) {
    const std::size_t size = element_size(type);
    for (const unsigned width : {1u, 2u, 4u, 8u, 16u, 32u}) {
      if (width >= 8 * size) continue;
      for (const std::size_t elements : {1u, 7u, 8u, 31u, 33u, 1000u, 16384u + 5}) {
        for (const std::size_t shift : {std::size_t{0}, size}) {
          Bytes source(elements * size, shift);
          const std::int64_t minimum = width == 4 ? INT32_MIN : width == 8 ? -3 : 1 << 20;
          for (std::size_t e = 0; e < elements; ++e) {
            // the ends of the range are in every frame, so that encode() finds this very width
            const std::uint64_t most = (1ULL << width) - 1;
            const std::uint64_t code = e % 1024 == 0 ? 0 : e % 1024 == 1 ? most : random() & most;
            const std::uint64_t value =
                type == ElementType::kBool ? code & 1 : static_cast<std::uint64_t>(minimum) + code;
            std::memcpy(source.data() + e * size, &value, size);
          }
          const Encoded reference = encode_span(source.data(), elements, type, 0, kNonce);
          const PackedSpan got = pack(type, source, minimum, width, shift);
          ASSERT_EQ(got.packed.outcome, cuda::Outcome::kDone);
          // Short spans are smaller raw, or constant, which only the CPU looks for.
          if (elements >= 1000) {
            ASSERT_EQ(reference.payload[6], type == ElementType::kBool ? 2 : 3);
            EXPECT_TRUE(got.payload == reference.payload)
                << name_of(type) << " " << width << " " << elements;
          }
          ASSERT_EQ(got.unpacked.outcome, cuda::Outcome::kDone);
          EXPECT_EQ(std::memcmp(got.restored.data(), source.data(), source.size()), 0);
          EXPECT_TRUE(decode_span(got.payload, source.size()) ==
                      std::vector<unsigned char>(source.data(), source.data() + source.size()));
        }
      }
    }
  }
}

TEST(CudaCore, AMissedPredictionLeavesAVerdictAndNoPayload) {
  for (const std::size_t elements : {3u, 1000u}) {
    for (const std::size_t at : {std::size_t{0}, elements - 1}) {
      Bytes flags(elements);
      std::memset(flags.data(), 1, elements);
      flags.data()[at] = 2;
      const PackedSpan bytes = pack(ElementType::kBool, flags, 0, 1);
      EXPECT_EQ(bytes.packed.outcome, cuda::Outcome::kKeepRaw);
      EXPECT_EQ(bytes.unpacked.outcome, cuda::Outcome::kCorrupt);
      for (const std::int64_t outlier : {std::int64_t{99}, std::int64_t{100 + 256}, INT64_MIN}) {
        Bytes numbers(elements * 8);
        for (std::size_t e = 0; e < elements; ++e)
          numbers.as<std::int64_t>()[e] = e == at ? outlier : 100;
        const PackedSpan packed = pack(ElementType::kInt64, numbers, 100, 8);
        EXPECT_EQ(packed.packed.outcome, cuda::Outcome::kKeepRaw);
        EXPECT_TRUE(packed.payload.empty());
        EXPECT_EQ(packed.unpacked.outcome, cuda::Outcome::kCorrupt);
      }
    }
  }
}

TEST(CudaCore, DeviceLayoutIsTheFormats) {
  for (const std::size_t elements : {std::size_t{1}, std::size_t{256}, std::size_t{257},
                                     std::size_t{4096}, std::size_t{1} << 33}) {
    for (const ElementType type : kFloatTypes) {
      for (const unsigned bits : {0u, 1u, 2u, 3u, 4u, 8u}) {
        for (const Transform transform :
             {Transform::kNone, Transform::kHadamard, Transform::kHadamardScaled}) {
          if (transform != Transform::kNone && bits == 0) continue;
          const GroupedLayout format(type, bits, elements, transform != Transform::kNone);
          with_form(static_cast<unsigned>(type), bits, transform, [&]<class F>() {
            const DeviceLayout<F> device(elements);
            EXPECT_EQ(device.groups, format.groups);
            EXPECT_EQ(device.codes_offset, format.codes_offset);
            EXPECT_EQ(device.end_of_codes(), format.end_of_codes());
            EXPECT_EQ(device.escape_limit(), format.escape_limit(bits));
            EXPECT_EQ(device.kSlotBytes, format.slot_bytes);
            EXPECT_EQ(device.kMetadataBytes, format.metadata_bytes_per_group);
            EXPECT_EQ(device.kGroupBytes, format.source_bytes_per_group);
          });
        }
      }
    }
  }
}

}  // namespace
}  // namespace pleat::compress::test
