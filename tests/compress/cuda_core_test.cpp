// The CUDA kernels' own code, run on the CPU tile by tile, against the scalar path: same bytes.
#include <functional>

#include "compress/cuda/device_codec.h"
#include "compress/format.h"
#include "tests/compress/emulated_device.h"
#include "tests/compress/emulated_payload.h"
#include "tests/compress/wide_groups.h"

namespace pleat::compress::test {
namespace {

TEST(CudaCore, KernelsGiveTheBytesOfTheScalarPath) {
  for (const Transform transform :
       {Transform::kNone, Transform::kHadamard, Transform::kHadamardScaled})
    for (const ElementType type : kFloatTypes)
      for (const unsigned bits : {1u, 2u, 3u, 4u, 6u, 8u})
        for (const std::size_t elements : kSizes)
          expect_bytes_of_scalar_path(type, bits, transform,
                                      transform == Transform::kNone ? mixed(type, elements, bits)
                                                                    : ordinary(type, elements),
                                      std::string(name_of(type)) + " " + std::to_string(bits) +
                                          " bits, " + std::to_string(elements) + ", transform " +
                                          std::to_string(static_cast<int>(transform)));
}

TEST(CudaCore, WideGroupsGiveTheBytesOfTheScalarPathAndAreNeverRefused) {
  std::mt19937_64 random(seed());
  for (const Transform transform : {Transform::kNone, Transform::kHadamard})
    for (const ElementType type : kFloatTypes)
      for (const unsigned bits : {3u, 4u, 6u, 8u})
        for (const std::size_t between : {0u, 2u}) {
          const Bytes source = wide_span(type, 100, 1 + random() % 255, random, between);
          const std::size_t elements = source.size() / element_size(type);
          const std::string what = std::string(name_of(type)) + " " + std::to_string(bits) +
                                   " bits, transform " +
                                   std::to_string(static_cast<int>(transform));
          expect_bytes_of_scalar_path(type, bits, transform, source, what);
          // As encode() gives them, and as long as the host knows beforehand.
          CodecSpec spec;
          spec.bits = static_cast<std::uint8_t>(bits);
          spec.transform = transform;
          spec.compact = false;
          Bytes room(payload_bound(spec, type, elements));
          ASSERT_EQ(encode({source.data(), elements, type}, spec, kNonce, room.data(), room.size(),
                           serial_executor(), nullptr)
                        .payload_bytes,
                    room.size());
          const Emulated got = emulated_payload(type, bits, elements, source.data(), transform);
          ASSERT_EQ(got.payload.size(), room.size());
          EXPECT_EQ(std::memcmp(got.payload.data(), room.data(), room.size()), 0) << what;
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
    for (const unsigned bits : {1u, 2u, 3u, 4u, 6u, 8u})
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
    const Emulated got = emulated_payload(ElementType::kFloat32, 2, elements, source.data());
    EXPECT_EQ(got.verdict.escapes, escapes);
    EXPECT_EQ(got.verdict.outcome, escapes == 2 ? cuda::Outcome::kDone : cuda::Outcome::kKeepRaw);
    EXPECT_EQ(got.payload.empty(), escapes == 3);
  }
}

// Whatever a payload holds, no lane leaves the two buffers (guards, and AddressSanitizer).
TEST(CudaCore, DamagedPayloadsAreRefusedOrDecodedWithinBounds) {
  std::mt19937_64 random(seed());
  const std::size_t elements = 5000;
  for (const ElementType type : kFloatTypes) {
    for (const unsigned bits : {1u, 2u, 3u, 4u, 6u, 8u}) {
      for (const Transform transform : {Transform::kNone, Transform::kHadamard}) {
        Bytes source = transform != Transform::kNone ? ordinary(type, elements)
                                                     : mixed(type, elements, 2, false);
        for (std::size_t e = 0; e < 512; ++e)  // two patterns, and an escape
          set_value(type, source.data(), e, e == 300 ? NAN : double(e % 2));
        const auto intact = reference_payload(type, bits, elements, source.data(), transform);
        if (intact.empty()) continue;  // no smaller than raw
        unsigned refused = 0;
        for (int round = 0; round < 400; ++round) {
          auto damaged = intact;
          const std::size_t within = round % 2 == 0 ? kHeaderBytes : damaged.size();
          damaged[random() % within] ^= static_cast<unsigned char>(1u << random() % 8);
          Bytes target(source.size());
          const auto outcome =
              emulated_decode(type, bits, elements, damaged, target.data(), transform);
          EXPECT_TRUE(target.guard_intact());
          refused += outcome == cuda::Outcome::kCorrupt;
        }
        EXPECT_GT(refused, 100u);  // nearly all of a header's bits are checked
        Bytes target(source.size());
        EXPECT_EQ(emulated_decode(
                      type, bits, elements, intact, target.data(),
                      transform == Transform::kNone ? Transform::kHadamard : Transform::kNone),
                  cuda::Outcome::kCorrupt);
      }
    }
  }
}

TEST(CudaCore, ADamagedGroupIsNotWrittenItsNeighboursAre) {
  const std::size_t elements = 5000;
  for (const ElementType type : kFloatTypes)
    for (const unsigned bits : {1u, 2u}) {
      const std::size_t group_bytes = 256 * element_size(type);
      Bytes source = ordinary(type, elements);
      set_value(type, source.data(), 300, NAN);  // group 1 escapes
      auto payload = reference_payload(type, bits, elements, source.data());
      const std::vector<unsigned char> intact = decode_span(payload, source.size());
      const GroupedLayout layout(type, bits, elements, false);
      const std::uint64_t beyond = 1;  // the escape table has group 0 alone
      std::memcpy(payload.data() + layout.codes_offset + layout.slot_bytes, &beyond, sizeof beyond);
      Bytes target(source.size());
      std::memset(target.data(), 0xA5, target.size());
      EXPECT_EQ(emulated_decode(type, bits, elements, payload, target.data()),
                cuda::Outcome::kCorrupt);
      for (std::size_t at = 0; at < target.size(); ++at)
        ASSERT_EQ(target.data()[at], at / group_bytes == 1 ? 0xA5 : intact[at])
            << name_of(type) << " " << bits << " bits, byte " << at;
    }
}

TEST(CudaCore, AnEscapedGroupIsRefusedAtThreeBitsAndMore) {
  const std::size_t elements = 5000;
  for (const ElementType type : kFloatTypes)
    for (const unsigned bits : {3u, 4u, 6u, 8u}) {
      const Bytes source = ordinary(type, elements);
      auto payload = reference_payload(type, bits, elements, source.data());
      const std::size_t size = element_size(type);
      std::memset(payload.data() + kHeaderBytes + 2 * size, 0, 2 * size);  // of group 1
      payload[kHeaderBytes + 3 * size - 1] = payload[kHeaderBytes + 4 * size - 1] = 0x80;
      Bytes target(source.size());
      EXPECT_EQ(emulated_decode(type, bits, elements, payload, target.data()),
                cuda::Outcome::kCorrupt);
    }
}

// A header whose sizes agree, but with more than the caller has.
TEST(CudaCore, APayloadIsNotReadBeyondItsMemory) {
  const std::size_t elements = 5000;
  const Bytes source = mixed(ElementType::kFloat32, elements, 2, false);
  auto payload = reference_payload(ElementType::kFloat32, 2, elements, source.data());
  Header header;
  std::memcpy(&header, payload.data(), sizeof header);
  ASSERT_EQ(header.escapes, 0u);
  Bytes target(source.size());
  EXPECT_EQ(emulated_decode(ElementType::kFloat32, 2, elements, payload, target.data()),
            cuda::Outcome::kDone);
  header.escapes = 1;
  header.payload_bytes += 256 * 4;
  std::memcpy(payload.data(), &header, sizeof header);
  EXPECT_EQ(emulated_decode(ElementType::kFloat32, 2, elements, payload, target.data()),
            cuda::Outcome::kCorrupt);
  payload.resize(header.payload_bytes);
  EXPECT_EQ(emulated_decode(ElementType::kFloat32, 2, elements, payload, target.data()),
            cuda::Outcome::kDone);
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
  if (result.packed.outcome == cuda::Outcome::kDone)
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
        EXPECT_EQ(packed.unpacked.outcome, cuda::Outcome::kCorrupt);
        // What would have done: with this minimum no width, or twice the width.
        cuda::DeviceTask wider;
        wider.type = ElementType::kInt64;
        wider.elements = elements;
        wider.width = 16;
        EXPECT_EQ(packed.packed.payload_bytes,
                  outlier < 100 ? 0 : cuda::device_payload_bytes(wider));
      }
    }
  }
}

TEST(CudaCore, DeviceLayoutIsTheFormats) {
  for (const std::size_t elements : {std::size_t{1}, std::size_t{256}, std::size_t{257},
                                     std::size_t{4096}, std::size_t{1} << 33}) {
    for (const ElementType type : kFloatTypes) {
      for (const unsigned bits : {0u, 1u, 2u, 3u, 4u, 6u, 8u}) {
        for (const Transform transform :
             {Transform::kNone, Transform::kHadamard, Transform::kHadamardScaled}) {
          if (transform != Transform::kNone && bits == 0) continue;
          const GroupedLayout format(type, bits, elements, transform != Transform::kNone);
          with_form(type, bits, transform, [&]<class F>() {
            const DeviceLayout<F> device(elements);
            EXPECT_EQ(device.groups, format.groups);
            EXPECT_EQ(device.codes_offset, format.codes_offset);
            EXPECT_EQ(device.end_of_codes(), format.end_of_codes());
            EXPECT_EQ(device.escape_limit(), bits < 3 ? format.escape_limit(bits) : 0);
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
