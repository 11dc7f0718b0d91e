// Damaged payloads. The promise is about memory: run under -fsanitize=address,undefined to hold it.
#include <algorithm>

#include "compress/sides/sides.h"
#include "tests/compress/support.h"

namespace pleat::compress::test {
namespace {

struct Sample {
  std::vector<unsigned char> payload;
  std::size_t bytes;
};

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
