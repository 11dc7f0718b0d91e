#include <iterator>
#include <limits>

#include "tests/compress/support.h"

namespace pleat::compress::test {
namespace {

constexpr std::size_t kLosslessSizes[] = {0,  1,   7,   8,   9,     63,    64,
                                          65, 255, 256, 257, 16383, 16385, 65536 + 3};

void expect_exact(const void* data, std::size_t elements, ElementType type, unsigned bits = 0,
                  bool force_raw = false) {
  const Encoded out = encode_span(data, elements, type, bits, 5, serial_executor(), force_raw);
  ASSERT_EQ(out.status, Status::kOk);
  const auto restored = decode_span(out.payload, elements * element_size(type));
  if (elements != 0) {
    EXPECT_EQ(std::memcmp(restored.data(), data, restored.size()), 0)
        << name_of(type) << " " << elements;
  }
  PayloadInfo info;
  ASSERT_EQ(inspect(out.payload.data(), out.payload.size(), &info), Status::kOk);
  EXPECT_EQ(info.elements, elements);
  EXPECT_FALSE(info.lossy);
}
std::size_t payload_size(const void* data, std::size_t elements, ElementType type,
                         unsigned bits = 0) {
  return encode_span(data, elements, type, bits).payload.size();
}

TEST(Lossless, AnyBytesOfAnyTypeComeBackExactly) {
  std::mt19937_64 random(seed());
  for (const Path& path : paths()) {
    const UsePath use(path);
    for (int t = 0; t <= 6; ++t) {
      const auto type = static_cast<ElementType>(t);
      for (const std::size_t elements : kLosslessSizes) {
        for (const std::size_t shift : {std::size_t{0}, element_size(type)}) {
          Bytes source(elements * element_size(type), shift);
          for (std::size_t i = 0; i < source.size(); ++i)
            source.data()[i] = static_cast<unsigned char>(random());
          expect_exact(source.data(), elements, type);
          expect_exact(source.data(), elements, type, 0, true);
        }
      }
    }
  }
}

TEST(Lossless, BooleansTakeOneBit) {
  std::mt19937_64 random(seed());
  for (const Path& path : paths()) {
    const UsePath use(path);
    for (const std::size_t elements : kLosslessSizes) {
      Bytes source(elements, 1);
      for (std::size_t e = 0; e < elements; ++e) source.data()[e] = random() & 1;
      if (elements > 1) source.data()[0] = 0, source.data()[elements - 1] = 1;
      expect_exact(source.data(), elements, ElementType::kBool);
      if (elements > 1) {
        EXPECT_EQ(payload_size(source.data(), elements, ElementType::kBool),
                  64 + (elements + 7) / 8);
      }
      if (elements > 64) {
        source.data()[elements / 2] = 2;  // not a bool: kept as it is
        expect_exact(source.data(), elements, ElementType::kBool);
        EXPECT_EQ(payload_size(source.data(), elements, ElementType::kBool), 64 + elements);
      }
    }
  }
}

TEST(Lossless, IntegersTakeTheNarrowestExactWidth) {
  std::mt19937_64 random(seed());
  for (const Path& path : paths()) {
    const UsePath use(path);
    for (const ElementType type : {ElementType::kInt64, ElementType::kInt32}) {
      const unsigned own = 8 * static_cast<unsigned>(element_size(type));
      for (const std::size_t elements : kLosslessSizes) {
        if (elements < 2) continue;
        for (unsigned width = 1; width < own; ++width) {
          for (const bool low_end : {true, false}) {
            // Values span exactly `width` bits, from the bottom of the type or to its top.
            std::vector<std::int64_t> wide(elements);
            const std::uint64_t span = (std::uint64_t{1} << width) - 1;
            const std::int64_t low = type == ElementType::kInt64
                                         ? std::numeric_limits<std::int64_t>::min()
                                         : std::numeric_limits<std::int32_t>::min();
            const std::int64_t high = type == ElementType::kInt64
                                          ? std::numeric_limits<std::int64_t>::max()
                                          : std::numeric_limits<std::int32_t>::max();
            const std::uint64_t base = low_end ? std::uint64_t(low) : std::uint64_t(high) - span;
            for (std::size_t e = 0; e < elements; ++e)
              wide[e] = static_cast<std::int64_t>(base + (random() & span));
            wide[0] = static_cast<std::int64_t>(base);
            wide[elements - 1] = static_cast<std::int64_t>(base + span);
            std::vector<std::int32_t> narrow(wide.begin(), wide.end());
            const void* data =
                type == ElementType::kInt64 ? static_cast<const void*>(wide.data()) : narrow.data();
            expect_exact(data, elements, type);
            EXPECT_EQ(payload_size(data, elements, type),
                      type == ElementType::kInt64 ? framed_size(wide) : framed_size(narrow))
                << width;
          }
        }
      }
    }
  }
}

TEST(Lossless, RepeatedElementsTakeNoBits) {
  for (int t = 0; t <= 6; ++t) {
    const auto type = static_cast<ElementType>(t);
    for (const std::size_t elements : kLosslessSizes) {
      if (elements == 0) continue;
      Bytes source(elements * element_size(type));
      const unsigned char pattern[8] = {1, 0x80, 0xC0, 0x7F, 5, 6, 7, 8};  // a NaN in float32
      for (std::size_t i = 0; i < source.size(); ++i)
        source.data()[i] = pattern[i % element_size(type)];
      expect_exact(source.data(), elements, type);
      EXPECT_EQ(payload_size(source.data(), elements, type), 64u);
      if (is_floating(type) && elements > 256) {
        expect_exact(source.data(), elements, type, 4);
        EXPECT_EQ(payload_size(source.data(), elements, type, 4), 64u);
      }
    }
  }
}

// Every pair of awkward patterns, constant or mixed, is exact in lossy and lossless requests.
TEST(TwoValued, AnyTwoPatternsAreExact) {
  std::mt19937_64 random(seed());
  const std::uint32_t awkward32[] = {0,          0x80000000, 0x3F800000, 0xBF800000, 0x7F800000,
                                     0xFF800000, 0x7FC00001, 0xFFC12345, 1,          0x80000001,
                                     0x7F7FFFFF, 0xFF7FFFFF, 0x3F800001, 0x7F800001, 0xFFBFFFFF};
  const std::uint16_t awkward16[] = {0, 0x8000, 0x3C00, 0xBC00, 0x7C00, 0xFC00, 0x7E01, 0xFFC1,
                                     1, 0x8001, 0x7BFF, 0xFBFF, 0x3C01, 0x7C01, 0x7F81};
  // The last two are signalling NaNs; of float16 and of bfloat16.
  static_assert(std::size(awkward16) == std::size(awkward32));
  constexpr std::size_t kPatterns = std::size(awkward32);
  for (const Path& path : paths()) {
    const UsePath use(path);
    for (const ElementType type : kFloatTypes) {
      for (std::size_t i = 0; i < kPatterns; ++i) {
        for (std::size_t j = 0; j < kPatterns; ++j) {
          const std::size_t elements = 256 * 9 + 30, size = element_size(type);
          Bytes source(elements * size);
          for (std::size_t e = 0; e < elements; ++e) {
            const std::size_t which = random() % 2 ? i : j;
            if (size == 4)
              std::memcpy(source.data() + 4 * e, &awkward32[which], 4);
            else
              std::memcpy(source.data() + 2 * e, &awkward16[which], 2);
          }
          for (const unsigned bits : {0u, 1u, 2u, 3u, 4u, 6u, 8u}) {
            expect_exact(source.data(), elements, type, bits);
            if (i == j || bits == 1) continue;
            const std::size_t metadata = (10 * 2 * size + 63) / 64 * 64;
            const std::size_t offsets = bits == 0 ? 0 : 8;
            EXPECT_EQ(payload_size(source.data(), elements, type, bits),
                      64 + metadata + 320 + offsets)
                << bits;
          }
        }
      }
    }
  }
}

TEST(TwoValued, ScaledDropoutMaskTakesAboutABitAndAQuarter) {
  std::mt19937_64 random(seed());
  std::vector<float> mask(1 << 20);
  for (float& value : mask) value = random() % 10 ? 1.0f / 0.9f : 0.0f;
  for (const unsigned bits : {0u, 2u, 4u, 8u}) {
    const double size =
        8.0 * double(payload_size(mask.data(), mask.size(), ElementType::kFloat32, bits));
    EXPECT_LE(size / double(mask.size()), 1.26);
    expect_exact(mask.data(), mask.size(), ElementType::kFloat32, bits);
  }
}

// Mostly two-valued, some other groups: lossless keeps those raw, lossy quantises only them.
TEST(TwoValued, MixedTensorsCompactAndKeepMasksExact) {
  std::mt19937_64 random(seed());
  for (const Path& path : paths()) {
    const UsePath use(path);
    for (const ElementType type : kFloatTypes) {
      const std::size_t elements = 256 * 1000 + 9, size = element_size(type);
      Bytes source(elements * size);
      for (std::size_t e = 0; e < elements; ++e) {
        const std::size_t g = e / 256;
        set_value(type, source.data(), e,
                  g % 20 == 3  ? std::normal_distribution<double>()(random)
                  : g % 7 == 1 ? 1.5
                               : double(random() % 2));
      }
      expect_exact(source.data(), elements, type, 0);
      EXPECT_LT(payload_size(source.data(), elements, type, 0), elements * size / 4);
      for (const unsigned bits : {2u, 3u, 4u, 6u, 8u}) {
        const Encoded out = encode_span(source.data(), elements, type, bits);
        ASSERT_EQ(out.status, Status::kOk);
        EXPECT_EQ(out.statistics.constant_groups + out.statistics.two_valued_groups, 951u);
        const auto restored = decode_span(out.payload, source.size());
        for (std::size_t g = 0; g < 1000; ++g) {
          const bool same = std::memcmp(restored.data() + g * 256 * size,
                                        source.data() + g * 256 * size, 256 * size) == 0;
          EXPECT_TRUE(same || g % 20 == 3) << g;
        }
      }
    }
  }
}

TEST(Encode, LossyAndForcedRawNeedTheirBound) {
  std::vector<float> x(1000, 1.0f);
  x[3] = 2;
  for (const bool force_raw : {true, false}) {
    const CodecSpec spec{4, force_raw};
    const std::size_t bound = payload_bound(spec, ElementType::kFloat32, x.size());
    Bytes buffer(bound);
    const Span span{x.data(), x.size(), ElementType::kFloat32};
    EXPECT_EQ(encode(span, spec, 1, buffer.data(), bound - 1, serial_executor(), nullptr).status,
              Status::kNoRoom);
    EXPECT_EQ(encode(span, spec, 1, buffer.data(), bound, serial_executor(), nullptr).status,
              Status::kOk);
    EXPECT_EQ(encode(span, spec, 1, buffer.data(), bound, Executor{}, nullptr).status, Status::kOk);
  }
}

}  // namespace
}  // namespace pleat::compress::test
