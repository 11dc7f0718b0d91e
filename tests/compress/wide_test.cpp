// Groups with codes for -Inf, +Inf and NaN, at 3 bits and more, and requests that are never
// refused.
#include <cstring>
#include <set>
#include <string>

#include "compress/block/group_steps.h"
#include "compress/format.h"
#include "compress/sides/side_bounds.h"
#include "tests/compress/block_reference.h"
#include "tests/compress/support.h"
#include "tests/compress/wide_groups.h"

namespace pleat::compress::test {
namespace {

constexpr unsigned kWideWidths[] = {3, 4, 6, 8};

CodecSpec never_refused(unsigned bits, Transform transform = Transform::kNone) {
  CodecSpec spec;
  spec.bits = static_cast<std::uint8_t>(bits);
  spec.transform = transform;
  spec.compact = false;
  return spec;
}

// Into exactly the bytes of the bound, which no payload of such a request falls short of.
Encoded encode_exactly(const Bytes& source, ElementType type, const CodecSpec& spec,
                       std::uint64_t nonce = 5, const Executor& executor = serial_executor()) {
  const std::size_t elements = source.size() / element_size(type);
  const std::size_t bytes = payload_bound(spec, type, elements);
  Encoded out;
  Bytes room(bytes);
  const EncodeResult result = encode({source.data(), elements, type}, spec, nonce, room.data(),
                                     room.size(), executor, &out.statistics);
  EXPECT_EQ(result.status, Status::kOk);
  EXPECT_EQ(result.payload_bytes, bytes);
  EXPECT_TRUE(room.guard_intact());
  out.status = result.status;
  out.payload.assign(room.data(), room.data() + room.size());
  return out;
}

// The bound that docs/payload_format.md gives the finite elements of a wide group.
struct Range {
  double low = INFINITY, high = -INFINITY, smallest = INFINITY;
  std::size_t finite = 0;
  bool zero_kept = false;

  Range(ElementType type, const void* data, std::size_t count) {
    for (std::size_t e = 0; e < count; ++e) {
      const double x = value_at(type, data, e);
      if (!std::isfinite(x)) continue;
      ++finite;
      low = std::min(low, x);
      high = std::max(high, x);
      if (x > 0) smallest = std::min(smallest, x);
    }
    zero_kept = low == 0 && high > 0;
  }
  // The widest step there may be. Steps are rounded up: by 2^-18, 2^-2 and 2^-4.
  double step(ElementType type, unsigned bits) const {
    const double levels = (1 << bits) - 3;
    const double step = zero_kept ? (high - smallest) / (levels - 2) : (high - low) / (levels - 1);
    const double more = type == ElementType::kFloat32    ? std::ldexp(1, -18)
                        : type == ElementType::kBFloat16 ? 0.25
                                                         : 0.0625;
    return std::max(step * (1 + more) * (1 + 1e-6),
                    std::ldexp(1, type == ElementType::kFloat16 ? -32 : -110));
  }
};

bool same_kind(double x, double y) {
  return std::isnan(x) ? std::isnan(y) : std::isinf(x) ? x == y : std::isfinite(y);
}

class EveryWide : public testing::TestWithParam<std::tuple<ElementType, unsigned>> {};
INSTANTIATE_TEST_SUITE_P(Wide, EveryWide,
                         testing::Combine(testing::ValuesIn(kFloatTypes),
                                          testing::ValuesIn(kWideWidths)),
                         [](const auto& info) {
                           return std::string(name_of(std::get<0>(info.param))) + "_" +
                                  std::to_string(std::get<1>(info.param)) + "bits";
                         });

TEST_P(EveryWide, NonFiniteElementsComeBackAndFiniteOnesWithinTheirStep) {
  const auto [type, bits] = GetParam();
  std::mt19937_64 random(seed());
  const std::size_t size = element_size(type);
  for (const Transform transform : {Transform::kNone, Transform::kHadamard}) {
    for (int trial = 0; trial < 20; ++trial) {
      const Bytes source = wide_span(type, 48, 1 + random() % 255, random);
      const std::size_t elements = source.size() / size;
      const Encoded out = encode_exactly(source, type, never_refused(bits, transform), random());
      const auto back = decode_span(out.payload, source.size());
      EXPECT_EQ(out.statistics.escaped_groups, 0u);
      for (std::size_t g = 0; g * 256 < elements; ++g) {
        const std::size_t count = std::min<std::size_t>(256, elements - g * 256);
        const unsigned char* const from = source.data() + g * 256 * size;
        const Range range(type, from, count);
        // Ordinary groups are rotated; their elements have no bound of their own.
        if (transform != Transform::kNone && range.finite == count) continue;
        const double step = range.step(type, bits);
        for (std::size_t e = 0; e < count; ++e) {
          const double x = value_at(type, from, e);
          const double y = value_at(type, back.data(), g * 256 + e);
          const std::string what = "group " + std::to_string(g) + " element " + std::to_string(e) +
                                   ": " + std::to_string(x) + " became " + std::to_string(y);
          ASSERT_TRUE(same_kind(x, y)) << what;
          if (!std::isfinite(x)) continue;
          // Half a step, or one where codes are restored plainly; rounding to the type no more.
          const bool dithered = range.low < 0 && range.high > 0 &&
                                range.high - range.low + 3 * step < largest_of(type) / 2;
          const double most = (dithered ? 0.5 : 1.0) * step * 1.0001;
          const double ulp = std::max(std::fabs(y), std::fabs(x)) *
                             (type == ElementType::kFloat32    ? std::ldexp(1, -24)
                              : type == ElementType::kBFloat16 ? std::ldexp(1, -8)
                                                               : std::ldexp(1, -11));
          const double least = std::ldexp(1, type == ElementType::kFloat16    ? -25
                                             : type == ElementType::kBFloat16 ? -134
                                                                              : -150);
          ASSERT_LE(std::fabs(x - y), most + std::min(most, ulp + least)) << what;
          if (range.low >= 0) {
            ASSERT_GE(y, 0) << what;
          }
          if (range.high <= 0) {
            ASSERT_LE(y, 0) << what;
          }
          if (x == 0 && (range.low == 0 || range.high == 0)) {
            ASSERT_EQ(y, 0) << what;
          }
          if (range.low > 0 || (range.low == 0 && x > 0)) {
            ASSERT_GT(y, 0) << what;
          }
          if (range.high < 0) {
            ASSERT_LT(y, 0) << what;
          }
        }
      }
    }
  }
}

TEST_P(EveryWide, PayloadsAreWhatTheDocumentSays) {
  const auto [type, bits] = GetParam();
  std::mt19937_64 random(seed());
  for (const std::size_t between : {0u, 3u}) {
    const Bytes source = wide_span(type, 150, 77, random, between);
    const Encoded out = encode_exactly(source, type, never_refused(bits), random());
    EXPECT_TRUE(decode_span(out.payload, source.size()) ==
                reference_block(out.payload, source.size(), false));
  }
}

TEST_P(EveryWide, EveryPathGivesTheSameBytesInPlaceOrNotInHoweverManyParts) {
  const auto [type, bits] = GetParam();
  std::mt19937_64 random(seed());
  for (const Transform transform : {Transform::kNone, Transform::kHadamard}) {
    for (const bool compact : {false, true}) {
      const Bytes source = wide_span(type, 150, 1 + random() % 255, random, random() % 3);
      const std::size_t elements = source.size() / element_size(type);
      CodecSpec spec = never_refused(bits, transform);
      spec.compact = compact;
      const std::size_t bound = payload_bound(spec, type, elements);
      use_kernels(&kScalarKernels);
      Bytes first(bound);
      SpanStatistics seen;
      const EncodeResult expected = encode({source.data(), elements, type}, spec, 9, first.data(),
                                           bound, serial_executor(), &seen);
      ASSERT_EQ(expected.status, Status::kOk);
      std::vector<unsigned char> payload(first.data(), first.data() + expected.payload_bytes);
      EXPECT_GT(wide_groups(payload), 30u);
      const auto restored = decode_span(payload, source.size());
      for (const Path& path : paths()) {
        const UsePath use(path);
        Bytes room(bound), over(source.size() + 64);
        SpanStatistics again;
        const EncodeResult result = encode({source.data(), elements, type}, spec, 9, room.data(),
                                           bound, thread_executor(1), &again);
        ASSERT_EQ(result.payload_bytes, expected.payload_bytes) << path.name;
        EXPECT_EQ(std::memcmp(room.data(), payload.data(), payload.size()), 0) << path.name;
        EXPECT_EQ(std::memcmp(&again, &seen, sizeof seen), 0) << path.name;
        EXPECT_TRUE(decode_span(payload, source.size(), backwards_executor()) == restored)
            << path.name;
        std::memcpy(over.data(), source.data(), source.size());
        ASSERT_EQ(encode_in_place(over.data(), over.size(), elements, type, spec, 9,
                                  serial_executor(), nullptr)
                      .payload_bytes,
                  expected.payload_bytes)
            << path.name;
        EXPECT_EQ(std::memcmp(over.data(), payload.data(), payload.size()), 0) << path.name;
      }
      set_isa(Isa::kAuto);
    }
  }
}

// Whatever lies in memory, any pattern of bits.
TEST_P(EveryWide, NoRequestIsRefusedAndTheSizeIsKnownBeforehand) {
  const auto [type, bits] = GetParam();
  std::mt19937_64 random(seed());
  const std::size_t size = element_size(type);
  for (const Transform transform :
       {Transform::kNone, Transform::kHadamard, Transform::kHadamardScaled}) {
    for (const std::size_t elements : {1u, 100u, 255u, 256u, 257u, 16384u, 16385u, 70001u}) {
      for (int content = 0; content < 4; ++content) {
        Bytes source(elements * size);
        for (std::size_t at = 0; at < source.size(); ++at)
          source.data()[at] = static_cast<unsigned char>(content == 0   ? random()
                                                         : content == 1 ? 0
                                                         : content == 2 ? 0xFF
                                                                        : at / 512 % 3 * 0x7F);
        const Encoded out = encode_exactly(source, type, never_refused(bits, transform), random());
        EXPECT_EQ(out.statistics.escaped_groups, 0u);
        // From the sections of the document: header, metadata, codes; or raw where that is smaller.
        const std::size_t groups = (elements + 255) / 256;
        const std::size_t metadata = groups * 2 * (transform == Transform::kNone ? size : 4);
        const std::size_t grouped = 64 + (metadata + 63) / 64 * 64 + groups * 32 * bits;
        EXPECT_EQ(out.payload.size(), std::min(grouped, 64 + source.size()));
        const auto back = decode_span(out.payload, source.size());
        for (std::size_t e = 0; e < elements; ++e)
          ASSERT_TRUE(same_kind(value_at(type, source.data(), e), value_at(type, back.data(), e)));
      }
    }
  }
}

// With many nonces the mean error vanishes, and its square is that of uniform noise of a step.
TEST_P(EveryWide, FiniteElementsAreUnbiasedWithThePredictedVariance) {
  const auto [type, bits] = GetParam();
  std::mt19937_64 random(seed());
  const std::size_t size = element_size(type);
  const int trials = 3000;
  for (const Wide kind : {Wide::kOneNan, Wide::kAnyMixture, Wide::kZerosAndAbove, Wide::kNegative,
                          Wide::kPositive, Wide::kOverflow, Wide::kOverflowBeside}) {
    if (kind == Wide::kOverflow && type == ElementType::kFloat16) continue;  // not a wide group
    Bytes source(256 * size);
    fill_wide(kind, type, source.data(), 256, random);
    const Range range(type, source.data(), 256);
    const double step = range.step(type, bits);
    std::vector<double> sum(256), squares(256);
    std::vector<unsigned char> last;
    for (int trial = 0; trial < trials; ++trial) {
      const Encoded out = encode_exactly(source, type, never_refused(bits), random());
      const auto back = decode_span(out.payload, source.size());
      last = out.payload;
      for (std::size_t e = 0; e < 256; ++e) {
        const double x = value_at(type, source.data(), e);
        if (!std::isfinite(x)) continue;
        const double error = (value_at(type, back.data(), e) - x) / step;
        sum[e] += error;
        squares[e] += error * error;
      }
    }
    ASSERT_EQ(wide_groups(last), 1u);
    double mean_square = 0;
    for (std::size_t e = 0; e < 256; ++e) {
      const double x = value_at(type, source.data(), e);
      if (!std::isfinite(x)) continue;
      mean_square += squares[e] / trials;
      // A code that stands for more than the largest value is pulled back to it.
      if (std::fabs(x) + step > largest_of(type)) continue;
      const double ulp =
          (std::fabs(x) / step + 1) * (type == ElementType::kFloat32    ? 1e-7
                                       : type == ElementType::kBFloat16 ? 1.0 / 256
                                                                        : 1.0 / 2048);
      EXPECT_LE(std::fabs(sum[e] / trials),
                6.5 * std::sqrt(squares[e] / trials / trials) + 1.0 / 256 + ulp)
          << int(kind) << " element " << e;
    }
    const double predicted =
        double(range.finite) * std::pow(group_steps(last.data())[0] / step, 2) / 12;
    if (kind == Wide::kOneNan || kind == Wide::kAnyMixture) {
      if (type == ElementType::kFloat32 || bits != 8) {  // else the type's own rounding counts
        EXPECT_NEAR(mean_square / predicted, 1, type == ElementType::kFloat32 ? 0.05 : 0.15);
      }
    } else if (type == ElementType::kFloat32) {
      EXPECT_LE(mean_square, 3.1 * predicted);  // stochastic rounding: D^2 / 4 at worst
    }
  }
}

// A widest step judges wide groups, too: those that pass are coded, the others escaped.
TEST_P(EveryWide, AWiderStepThanAllowedIsEscaped) {
  const auto [type, bits] = GetParam();
  std::mt19937_64 random(seed());
  const std::size_t groups = 200, size = element_size(type);
  Bytes source = wide_span(type, groups, 0, random, 500);
  for (std::size_t g = 0; g < groups; ++g)
    for (std::size_t e = 0; e < 256; ++e)
      set_value(type, source.data(), g * 256 + e,
                e == 9 && g % 5 == 0
                    ? NAN
                    : value_at(type, source.data(), g * 256 + e) * (g == 10 || g == 51 ? 100 : 1));
  for (std::size_t e = 0; e < 256; ++e) set_value(type, source.data(), e, e == 9 ? NAN : e / 256.);
  CodecSpec spec = never_refused(bits);
  spec.widest_step = 20.0f / float((1 << bits) - 4);
  for (const Path& path : paths()) {
    const UsePath use(path);
    Bytes room(payload_bound(spec, type, groups * 256));
    SpanStatistics seen;
    const EncodeResult result = encode({source.data(), groups * 256, type}, spec, 3, room.data(),
                                       room.size(), serial_executor(), &seen);
    ASSERT_EQ(result.status, Status::kOk);
    EXPECT_EQ(seen.escaped_groups, 2u) << path.name;
    EXPECT_EQ(count_escapes({source.data(), groups * 256, type}, spec, 3, serial_executor()), 2u);
    const std::vector<unsigned char> payload(room.data(), room.data() + result.payload_bytes);
    EXPECT_EQ(wide_groups(payload), 39u) << path.name;
    const auto back = decode_span(payload, source.size());
    for (const std::size_t g : {10u, 51u})
      EXPECT_EQ(std::memcmp(&back[g * 256 * size], source.data() + g * 256 * size, 256 * size), 0);
  }
}

// A block without compaction takes its regular slots, whatever is in it; else it is the same.
TEST(Wide, WithoutCompactionEqualBlocksKeepTheirSlots) {
  for (const ElementType type : kFloatTypes) {
    Bytes source(256 * 130 * element_size(type));
    for (std::size_t e = 0; e < 256 * 130; ++e)
      set_value(type, source.data(), e, e / 256 % 2 == 0 ? 0.5 : double(e % 2));
    const Encoded whole = encode_exactly(source, type, never_refused(4));
    EXPECT_EQ(whole.payload.size(), GroupedLayout(type, 4, 256 * 130, false).end_of_codes());
    const Encoded compacted = encode_span(source.data(), 256 * 130, type, 4, 5);
    EXPECT_LT(compacted.payload.size(), whole.payload.size());
    EXPECT_TRUE(decode_span(whole.payload, source.size()) ==
                decode_span(compacted.payload, source.size()));
    Bytes equal(256 * 130 * element_size(type));
    std::memset(equal.data(), 0, equal.size());
    EXPECT_EQ(encode_exactly(equal, type, never_refused(4)).payload.size(), whole.payload.size());
    EXPECT_EQ(encode_span(equal.data(), 256 * 130, type, 4).payload.size(), 64u);
  }
}

// Words that no encoder writes: a wide group at a width that has none, and steps that are no
// number.
TEST(Wide, HostileWordsAreRefusedOrDecodedWithinBounds) {
  std::mt19937_64 random(seed());
  for (const Path& path : paths()) {
    const UsePath use(path);
    for (const ElementType type : kFloatTypes) {
      const std::size_t size = element_size(type), elements = 256 * 3 + 50;
      for (const unsigned bits : {1u, 2u, 3u, 4u, 6u, 8u}) {
        Bytes source(elements * size);
        for (std::size_t e = 0; e < elements; ++e)
          set_value(type, source.data(), e, double(random() % 1000) / 100 - 5);
        auto payload = encode_span(source.data(), elements, type, bits).payload;
        for (int trial = 0; trial < 200; ++trial) {
          const std::size_t group = random() % 4;
          std::uint32_t second = 2 + random() % ((size == 4 ? 1u << 27 : 1u << 11) - 2);
          std::uint32_t first = static_cast<std::uint32_t>(random());
          std::memcpy(payload.data() + 64 + group * 2 * size, &first, size);
          std::memcpy(payload.data() + 64 + group * 2 * size + size, &second, size);
          Bytes target(source.size());
          const Status status = decode(payload.data(), payload.size(), target.data(), target.size(),
                                       serial_executor());
          EXPECT_EQ(status, bits < 3 ? Status::kCorrupt : Status::kOk) << path.name;
          EXPECT_TRUE(target.guard_intact());
        }
      }
    }
  }
}

}  // namespace
}  // namespace pleat::compress::test
