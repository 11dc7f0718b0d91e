// Damaged payloads. The promise is about memory: run under -fsanitize=address,undefined to hold it.
#include <algorithm>

#include "compress/format.h"
#include "compress/sides/sides.h"
#include "tests/compress/exponent_support.h"
#include "tests/compress/support.h"

namespace pleat::compress::test {
namespace {

struct Sample {
  std::vector<unsigned char> payload;
  std::size_t bytes;
};

// Parts of rows, tables of channels and kept zeros; some compacted, rotated or with escaped groups.
std::vector<Sample> samples_with_exponents() {
  std::mt19937_64 random(seed());
  std::vector<Sample> all;
  for (const ElementType type : kFloatTypes) {
    for (const std::size_t row : {24, 300}) {
      for (unsigned kind = 0; kind < 5; ++kind) {
        const ReferenceExponents exponents{
            row, 1, kind % 2 == 0 ? std::vector<std::int8_t>{} : random_table(row, random)};
        CodecSpec spec = spec_of(kind == 4 ? 2 : kWidths[random() % 6], exponents);
        spec.transform = kind == 3 ? Transform::kHadamard : Transform::kNone;
        spec.zeros = kind == 2;
        spec.compact = kind != 4;
        spec.escape_64ths = 64;
        const Bytes source =
            rows_of_all_sorts(type, 256 * (kind == 1 ? 66 : 4) + 31, row, row, random);
        all.push_back({encode_with(source, type, spec).payload, source.size()});
        EXPECT_NE(all.back().payload.at(9) & 64, 0);
      }
    }
  }
  return all;
}

std::vector<Sample> samples() {
  std::mt19937_64 random(seed());
  std::vector<Sample> all;
  for (const ElementType type : kFloatTypes) {
    for (const unsigned bits : {0u, 1u, 2u, 3u, 4u, 6u, 8u}) {
      for (const bool mask : {true, false}) {
        const std::size_t elements = 256 * 130 + 31, size = element_size(type);
        Bytes source(elements * size);
        for (std::size_t e = 0; e < elements; ++e)
          set_value(type, source.data(), e,
                    mask && e / 256 % 9 != 0 ? double(e / 512 % 3 == 0 ? 0 : random() % 2)
                                             : std::normal_distribution<double>()(random));
        if (!mask || bits != 0) {
          const std::uint32_t inf = 0x7F800000;
          const std::uint16_t inf16 = type == ElementType::kBFloat16 ? 0x7F80 : 0x7C00;
          std::memcpy(source.data() + 9 * 256 * size,
                      size == 4 ? static_cast<const void*>(&inf) : &inf16, size);
        }
        all.push_back({encode_span(source.data(), elements, type, bits).payload, source.size()});
      }
    }
  }
  std::vector<std::int64_t> numbers(3001);
  for (const std::uint64_t values : {2ull, 4ull, 16ull, 256ull, 65536ull, 1ull << 32, ~0ull}) {
    for (auto& number : numbers) number = static_cast<std::int64_t>(random() % values);
    all.push_back({encode_span(numbers.data(), 3001, ElementType::kInt64, 0).payload, 3001 * 8});
  }
  for (const ElementType type : kFloatTypes) {  // rotated, some groups exact
    Bytes source(3001 * element_size(type));
    for (std::size_t e = 0; e < 3001; ++e)
      set_value(type, source.data(), e, e < 1500 ? e / 600 : double(random() % 90) / 7);
    for (const Transform transform : {Transform::kHadamard, Transform::kHadamardScaled}) {
      const unsigned bits = transform == Transform::kHadamard ? 3 : 2;
      all.push_back(
          {encode_span(source.data(), 3001, type, bits, 1, serial_executor(), false, transform)
               .payload,
           source.size()});
    }
  }
  for (const ElementType type : kFloatTypes) {  // mostly zeros: squeezed slots, and others
    const std::size_t elements = 256 * 67 + 31;
    Bytes source(elements * element_size(type));
    for (std::size_t e = 0; e < elements; ++e)
      set_value(type, source.data(), e,
                e / 256 % 5 == 4    ? std::normal_distribution<double>()(random)
                : random() % 4 != 0 ? 0.0
                                    : 1 + double(random() % 90));
    for (const unsigned bits : {2u, 3u, 4u, 6u, 8u}) {
      all.push_back({encode_span(source.data(), elements, type, bits).payload, source.size()});
      EXPECT_EQ(all.back().payload[9] & 1, 1);
    }
  }
  for (const ElementType type : kFloatTypes) {  // frames, with and without zeros of their own
    Bytes source(3001 * element_size(type));
    for (std::size_t e = 0; e < 3001; ++e)
      set_value(type, source.data(), e, e < 1500 || random() % 2 ? 1 + double(random() % 90) : 0.0);
    all.push_back({encode_span(source.data(), 3001, type, 0).payload, source.size()});
    EXPECT_EQ(all.back().payload[6], 3);
  }
  for (const ElementType type : kFloatTypes) {  // sides
    Bytes source(3001 * element_size(type));
    for (std::size_t e = 0; e < 3001; ++e)
      set_value(type, source.data(), e, double(random() % 90) - 45);
    for (const Sides& sides : {Sides{Sides::Kind::kOpen, false, 0, INFINITY},
                               Sides{Sides::Kind::kThree, false, -8, 8}}) {
      const CodecSpec spec{.sides = sides};
      std::vector<unsigned char> payload(payload_bound(spec, type, 3001));
      EXPECT_EQ(encode({source.data(), 3001, type}, spec, 1, payload.data(), payload.size(),
                       serial_executor(), nullptr)
                    .status,
                Status::kOk);
      all.push_back({payload, source.size()});
    }
  }
  for (Sample& sample : samples_with_exponents()) all.push_back(std::move(sample));
  std::vector<unsigned char> flags(3001);
  for (auto& flag : flags) flag = random() & 1;
  all.push_back({encode_span(flags.data(), 3001, ElementType::kBool, 0).payload, 3001});
  std::fill(numbers.begin(), numbers.end(), 77);
  all.push_back({encode_span(numbers.data(), 3001, ElementType::kInt64, 0).payload, 3001 * 8});
  return all;
}

// In a buffer of exactly the payload's bytes, so that the sanitizer sees the first byte beyond.
Status decode_exactly(const std::vector<unsigned char>& payload, std::size_t bytes, bool* guarded) {
  auto* const copy =
      static_cast<unsigned char*>(std::malloc(std::max<std::size_t>(payload.size(), 1)));
  if (!payload.empty()) std::memcpy(copy, payload.data(), payload.size());
  auto* const target = static_cast<unsigned char*>(std::malloc(bytes + 64));
  std::memset(target + bytes, 0x5A, 64);
  const Status status = decode(copy, payload.size(), target, bytes, serial_executor());
  *guarded =
      std::all_of(target + bytes, target + bytes + 64, [](unsigned char c) { return c == 0x5A; });
  std::free(copy);
  std::free(target);
  return status;
}

// The same, as sides beside values.
Status restore_exactly(const std::vector<unsigned char>& payload, std::size_t bytes,
                       bool* guarded) {
  auto* const copy = static_cast<unsigned char*>(std::malloc(payload.size()));
  std::memcpy(copy, payload.data(), payload.size());
  auto* const target = static_cast<unsigned char*>(std::malloc(bytes + 64));
  std::memset(target, 0x3E, bytes);
  std::memset(target + bytes, 0x5A, 64);
  const Status status = restore_sides(copy, payload.size(), target, bytes, serial_executor());
  *guarded =
      std::all_of(target + bytes, target + bytes + 64, [](unsigned char c) { return c == 0x5A; });
  std::free(copy);
  std::free(target);
  return status;
}

TEST(Hostile, TruncatedPayloadsAreRefused) {
  for (const Path& path : paths()) {
    const UsePath use(path);
    for (const Sample& sample : samples()) {
      for (std::size_t length : {std::size_t{0}, std::size_t{1}, std::size_t{63}, std::size_t{64},
                                 sample.payload.size() / 2, sample.payload.size() - 1}) {
        length = std::min(length, sample.payload.size() - 1);
        bool guarded = true;
        EXPECT_EQ(decode_exactly({sample.payload.begin(), sample.payload.begin() + long(length)},
                                 sample.bytes, &guarded),
                  Status::kCorrupt);
        EXPECT_TRUE(guarded);
      }
    }
  }
}

TEST(Hostile, WrongTargetLengthsAreRefused) {
  for (const Sample& sample : samples()) {
    for (const std::size_t bytes :
         {sample.bytes - 1, sample.bytes + 1, std::size_t{0}, sample.bytes / 2}) {
      bool guarded = true;
      EXPECT_EQ(decode_exactly(sample.payload, bytes, &guarded), Status::kCorrupt);
      EXPECT_TRUE(guarded);
    }
  }
}

TEST(Hostile, MutatedPayloadsNeverReachOutside) {
  std::mt19937_64 random(seed());
  for (const Path& path : paths()) {
    const UsePath use(path);
    for (const Sample& sample : samples()) {
      for (int trial = 0; trial < 150; ++trial) {
        std::vector<unsigned char> payload = sample.payload;
        const int changes = 1 + int(random() % 4);
        for (int c = 0; c < changes; ++c) {
          // Half of the changes hit the header, a quarter the metadata.
          const std::size_t where = random() % 4 < 2 ? random() % 64
                                    : random() % 2
                                        ? random() % std::min<std::size_t>(payload.size(), 1200)
                                        : random() % payload.size();
          payload[where] = random() % 2
                               ? static_cast<unsigned char>(random())
                               : static_cast<unsigned char>(payload[where] ^ (1 << random() % 8));
        }
        bool guarded = true;
        (void)decode_exactly(payload, sample.bytes, &guarded);
        EXPECT_TRUE(guarded);
        (void)restore_exactly(payload, sample.bytes, &guarded);
        EXPECT_TRUE(guarded);
        PayloadInfo info;
        (void)inspect(payload.data(), payload.size(), &info);
      }
    }
  }
}

TEST(Hostile, RandomBytesBehindAGoodHeaderNeverReachOutside) {
  std::mt19937_64 random(seed());
  for (const Path& path : paths()) {
    const UsePath use(path);
    for (const Sample& sample : samples()) {
      for (int trial = 0; trial < 10; ++trial) {
        std::vector<unsigned char> payload = sample.payload;
        for (std::size_t i = 64; i < payload.size(); ++i)
          payload[i] = static_cast<unsigned char>(random());
        bool guarded = true;
        (void)decode_exactly(payload, sample.bytes, &guarded);
        EXPECT_TRUE(guarded);
      }
    }
  }
}

TEST(Hostile, OfWidthsOnlyThoseOfTheFormatAreRead) {
  std::vector<float> x(1000);
  for (std::size_t e = 0; e < x.size(); ++e) x[e] = std::sin(double(e));
  for (const Path& path : paths()) {
    const UsePath use(path);
    for (const unsigned bits : kWidths) {
      auto payload = encode_span(x.data(), x.size(), ElementType::kFloat32, bits).payload;
      ASSERT_EQ(payload[8], bits);
      for (unsigned claimed = 0; claimed < 256; ++claimed) {
        payload[8] = static_cast<unsigned char>(claimed);
        bool guarded = true;
        EXPECT_EQ(decode_exactly(payload, 4000, &guarded),
                  claimed == bits ? Status::kOk : Status::kCorrupt)
            << bits << " as " << claimed;
        EXPECT_TRUE(guarded);
        const bool exists = claimed == 0 || std::ranges::count(kWidths, claimed) != 0;
        PayloadInfo info;
        if (!exists) {
          EXPECT_EQ(inspect(payload.data(), payload.size(), &info), Status::kCorrupt) << claimed;
        }
      }
    }
  }
}

TEST(Hostile, ExponentsOutOfRangeAreRefused) {
  std::mt19937_64 random(seed());
  const std::size_t row = 40, elements = 256 * 3 + 30, bytes = elements * 4;
  const Bytes source = make(ElementType::kFloat32, elements, [&](std::size_t e) {
    return e / row % 5 == 2 ? 0.0 : std::normal_distribution<double>()(random) + 0.01;
  });
  const ReferenceExponents exponents{row, 1, random_table(row, random)};
  CodecSpec spec = spec_of(4, exponents);
  spec.compact = false;
  const auto good = encode_with(source, ElementType::kFloat32, spec).payload;
  const std::size_t parts = part_ends(row, elements).size();
  const std::size_t section = good.size() - (parts + row + 63) / 64 * 64;
  const auto status_of = [&](const auto& damage) {
    auto payload = good;
    damage(payload);
    Status first = Status::kOk;
    for (const Path& path : paths()) {
      const UsePath use(path);
      bool guarded = true;
      const Status status = decode_exactly(payload, bytes, &guarded);
      EXPECT_TRUE(guarded) << path.name;
      if (path.table == &kScalarKernels) first = status;
      EXPECT_EQ(status, first) << path.name;
    }
    return first;
  };
  using Payload = std::vector<unsigned char>;
  EXPECT_EQ(status_of([](Payload&) {}), Status::kOk);
  std::size_t zero_parts = 0;
  for (std::size_t part = 0; part < parts; ++part) {
    for (int byte = -128; byte < 128; byte += part == 3 ? 1 : 31) {
      const bool zeros = byte == -128 && static_cast<signed char>(good[section + part]) != -128;
      const bool refused = (byte > -128 && byte < 0) || byte > 120 || zeros;
      EXPECT_EQ(
          status_of([&](Payload& p) { p[section + part] = static_cast<unsigned char>(byte); }),
          refused ? Status::kCorrupt : Status::kOk)
          << part << " " << byte;
    }
    zero_parts += good[section + part] == 128;
  }
  EXPECT_GT(zero_parts, 3u);
  for (int byte = -128; byte < 128; ++byte)
    EXPECT_EQ(
        status_of([&](Payload& p) { p[section + parts + 7] = static_cast<unsigned char>(byte); }),
        byte < -30 || byte > 0 ? Status::kCorrupt : Status::kOk)
        << byte;
  const auto header = [&](std::size_t at, std::uint32_t value) {
    return status_of([&](Payload& p) { std::memcpy(&p[at], &value, 4); });
  };
  for (const std::uint32_t number : {0u, ~0u, 1u, 3u, 31u, 0x8000'0000u}) {
    if (number < 31) {  // rows of a single part, a table that fits
      EXPECT_EQ(header(40, number), Status::kCorrupt) << number;
    }
    EXPECT_EQ(header(44, number) == Status::kOk, number != 0) << number;  // any channel will do
    EXPECT_EQ(header(60, number) == Status::kOk, number == 0) << number;
  }
  for (const std::uint32_t channels : {104u, 4000u, ~0u, 0x8000'0000u})
    EXPECT_EQ(header(56, channels), Status::kCorrupt) << channels;
  for (const unsigned flag : {16u, 32u})
    EXPECT_EQ(status_of([&](Payload& p) { p[9] ^= flag; }), Status::kCorrupt) << flag;
  EXPECT_EQ(status_of([&](Payload& p) { p[9] ^= 64; }), Status::kCorrupt);
  EXPECT_EQ(status_of([&](Payload& p) { p[8] = 0; }), Status::kCorrupt);
}

TEST(Hostile, KeptZerosOfOtherFormsAreRefused) {
  const Bytes source = make(ElementType::kFloat32, 1000, [](std::size_t e) {
    return e % 90 == 0 ? 0 : std::sin(double(e)) - 5;
  });
  for (const unsigned bits : {1u, 4u}) {
    for (const Transform transform : {Transform::kNone, Transform::kHadamard}) {
      for (const bool near_zero : {false, true}) {
        CodecSpec spec = spec_of(bits, {});
        spec.transform = transform;
        spec.near_zero = near_zero;
        auto payload = encode_with(source, ElementType::kFloat32, spec).payload;
        ASSERT_FALSE(payload.empty());
        ASSERT_EQ(payload[6], 1);
        payload[9] |= 128;
        bool guarded = true;
        const bool fits = bits >= 2 && transform == Transform::kNone && !near_zero;
        EXPECT_EQ(decode_exactly(payload, source.size(), &guarded),
                  fits ? Status::kOk : Status::kCorrupt);
        EXPECT_TRUE(guarded);
      }
    }
  }
}

// An exponent of any value gives finite elements, or those that codes say.
TEST(Hostile, ExponentsOfAnyValueKeepElementsFinite) {
  std::mt19937_64 random(seed());
  for (const ElementType type : kFloatTypes) {
    const std::size_t row = 24, elements = 256 * 9 + 5;
    const Bytes source = make(type, elements, [&](std::size_t e) {
      return (type == ElementType::kFloat16 ? 6e4 : 3e38) * std::sin(double(e)) *
             std::pow(0.1, double(e / row % 4));
    });
    const ReferenceExponents exponents{row, 1, random_table(row, random)};
    CodecSpec spec = spec_of(4, exponents);
    spec.compact = false;
    const auto good = encode_with(source, type, spec).payload;
    const std::size_t parts = part_ends(row, elements).size();
    const std::size_t section = good.size() - (parts + row + 63) / 64 * 64;
    for (int trial = 0; trial < 20; ++trial) {
      auto payload = good;
      for (std::size_t i = 0; i < parts; ++i)
        payload[section + i] = static_cast<unsigned char>(random() % 121);
      for (std::size_t i = 0; i < row; ++i)
        payload[section + parts + i] = static_cast<unsigned char>(-int(random() % 31));
      std::vector<unsigned char> first;
      for (const Path& path : paths()) {
        const UsePath use(path);
        const auto restored = decode_span(payload, source.size());
        if (first.empty()) first = restored;
        ASSERT_TRUE(restored == first) << path.name;
      }
      for (std::size_t e = 0; e < elements; ++e)
        ASSERT_TRUE(std::isfinite(value_at(type, first.data(), e)));
    }
  }
}

TEST(Hostile, HugeCountsDoNotWrap) {
  std::vector<float> x(1000);
  for (std::size_t e = 0; e < x.size(); ++e) x[e] = std::sin(double(e));
  const auto good = encode_span(x.data(), x.size(), ElementType::kFloat32, 4).payload;
  for (const std::uint64_t count :
       {~0ull, ~0ull / 4, ~0ull / 4 + 1, ~0ull / 4 + 251, 1ull << 62, (1ull << 62) + 1000}) {
    auto payload = good;
    std::memcpy(payload.data() + 16, &count, 8);
    bool guarded = true;
    EXPECT_EQ(decode_exactly(payload, 4000, &guarded), Status::kCorrupt);
  }
}

}  // namespace
}  // namespace pleat::compress::test
