// Groups of zeros and positive values: a ReLU's backward reads its result as (result > 0), so zeros
// stay zero and no other value becomes zero.
#include <algorithm>

#include "tests/compress/support.h"

namespace pleat::compress::test {
namespace {

constexpr unsigned kZeroKeptWidths[] = {2, 3, 4, 6, 8};

double smallest_number(ElementType type) {
  return std::ldexp(1, type == ElementType::kFloat16    ? -24
                       : type == ElementType::kBFloat16 ? -133
                                                        : -149);
}
double largest_number(ElementType type) {
  return type == ElementType::kFloat32    ? Element<ElementType::kFloat32>::kLargest
         : type == ElementType::kBFloat16 ? Element<ElementType::kBFloat16>::kLargest
                                          : Element<ElementType::kFloat16>::kLargest;
}

enum class Data {
  kRelu,
  kOneZeroAmongLarge,
  kMostlyZero,
  kDownToTheSmallest,
  kBothZerosWide,
  kCloseTogether,
  kUpToTheLargest,
  kNearTheSmallestStep,
};
constexpr Data kAllData[] = {Data::kRelu,           Data::kOneZeroAmongLarge,
                             Data::kMostlyZero,     Data::kDownToTheSmallest,
                             Data::kBothZerosWide,  Data::kCloseTogether,
                             Data::kUpToTheLargest, Data::kNearTheSmallestStep};

// Element `e` of its group. Element 0 is always zero, 1 and 2 are above it and differ.
double draw(Data data, std::size_t e, ElementType type, std::mt19937_64& random) {
  const bool half = type == ElementType::kFloat16;
  const double x = std::normal_distribution<double>()(random);
  const double step = double(random() % 1000) / 999;
  if (e == 0) return data == Data::kBothZerosWide ? -0.0 : 0.0;
  switch (data) {
    case Data::kRelu:
      return e <= 2 ? double(e) : std::max(x, 0.0);
    case Data::kOneZeroAmongLarge:
      return 5000 + (e <= 2 ? 100.0 * double(e) : 100 * std::fabs(x));
    case Data::kMostlyZero:
      return e <= 2 ? double(e) : random() % 16 != 0 ? 0.0 : std::exp(x);
    case Data::kDownToTheSmallest:
      return e == 1 ? smallest_number(type) : e == 2 ? 1.0 : std::max(x, 0.0);
    case Data::kBothZerosWide:
      return e <= 2 ? double(e) : e % 3 == 0 ? (e % 2 == 0 ? 0.0 : -0.0) : std::exp(3 * x);
    case Data::kCloseTogether:
      return e % 7 == 0 ? 0.0 : 1 + double(e % 7 + 1) / 1024;
    case Data::kUpToTheLargest:
      return e == 1 ? largest_number(type) : e == 2 ? 1.0 : largest_number(type) * step;
    case Data::kNearTheSmallestStep:
      return half ? smallest_number(type) * double(1 + e % 3)
                  : std::ldexp(e == 1 ? 1.0 : 1 - double(1 + e % 3) / 64, -101);
  }
  return 0;
}

template <class Fill>
Bytes make(ElementType type, std::size_t elements, const Fill& fill) {
  Bytes source(elements * element_size(type));
  for (std::size_t e = 0; e < elements; ++e) set_value(type, source.data(), e, fill(e));
  return source;
}

struct Words {
  double anchor;
  bool marked;  // the second word's lowest bit
};
Words metadata_of(const Encoded& out, ElementType type, std::size_t group) {
  const std::size_t size = element_size(type);
  const unsigned char* const at = out.payload.data() + 64 + group * 2 * size;
  return {value_at(type, at, 0), (at[size] & 1) != 0};
}

void check_group(ElementType type, unsigned bits, const unsigned char* source,
                 const unsigned char* restored, std::size_t from, std::size_t to,
                 const std::string& what) {
  const std::size_t size = element_size(type);
  double low = INFINITY, high = 0;
  for (std::size_t e = from; e < to; ++e) {
    const double x = value_at(type, source, e);
    if (x > 0) low = std::min(low, x);
    high = std::max(high, x);
  }
  const double rounding = type == ElementType::kFloat32 ? 1e-6 : 1.0 / 64 + 1e-6;
  const double step =
      std::max((high - low) / ((1 << bits) - 2) * (1 + rounding), std::ldexp(1, -110));
  const double ulp = type == ElementType::kFloat32    ? std::ldexp(1, -23)
                     : type == ElementType::kBFloat16 ? std::ldexp(1, -8)
                                                      : std::ldexp(1, -11);
  const unsigned char zero[4] = {};
  for (std::size_t e = from; e < to; ++e) {
    const double x = value_at(type, source, e), y = value_at(type, restored, e);
    ASSERT_TRUE(std::isfinite(y)) << what;
    if (x == 0) {
      ASSERT_EQ(std::memcmp(restored + e * size, zero, size), 0) << what << " element " << e;
      continue;
    }
    ASSERT_GT(y, 0) << what << " element " << e << " was " << x;
    ASSERT_LE(std::fabs(y - x), step * 1.0001 + std::max(x, y) * ulp + smallest_number(type) / 2)
        << what << " element " << e << " was " << x;
  }
}

TEST(ZeroKept, ZerosStayAndNothingElseBecomesZero) {
  std::mt19937_64 random(seed());
  for (const Path& path : paths()) {
    const UsePath use(path);
    for (const ElementType type : kFloatTypes) {
      for (const unsigned bits : kZeroKeptWidths) {
        for (const Data data : kAllData) {
          // 20 whole groups and a short one
          const std::size_t elements = 256 * 20 + 100;
          const Bytes source = make(
              type, elements, [&](std::size_t e) { return draw(data, e % 256, type, random); });
          const std::string what = path.name + " " + name_of(type) + " " + std::to_string(bits) +
                                   " bits, data " + std::to_string(int(data));
          const Encoded out = encode_span(source.data(), elements, type, bits, random());
          ASSERT_EQ(out.status, Status::kOk) << what;
          EXPECT_EQ(out.statistics.escaped_groups, 0u) << what;
          const auto restored = decode_span(out.payload, source.size());
          for (std::size_t from = 0; from < elements; from += 256) {
            const std::size_t to = std::min(from + 256, elements);
            check_group(type, bits, source.data(), restored.data(), from, to, what);
            double smallest = INFINITY;
            for (std::size_t e = from; e < to; ++e) {
              const double x = value_at(type, source.data(), e);
              if (x > 0) smallest = std::min(smallest, x);
            }
            const Words words = metadata_of(out, type, from / 256);
            EXPECT_TRUE(words.marked) << what;
            EXPECT_EQ(words.anchor, smallest) << what;  // exact in the type
          }
        }
      }
    }
  }
}

TEST(ZeroKept, IsUnbiased) {
  std::mt19937_64 random(seed());
  const int trials = 3000;
  for (const ElementType type : kFloatTypes) {
    for (const unsigned bits : kZeroKeptWidths) {
      if (type != ElementType::kFloat32 && bits == 8) continue;  // below the type's own rounding
      for (const Data data : {Data::kRelu, Data::kOneZeroAmongLarge, Data::kDownToTheSmallest}) {
        const Bytes source =
            make(type, 256, [&](std::size_t e) { return draw(data, e, type, random); });
        double low = INFINITY, high = 0, sum[256] = {}, squares[256] = {};
        for (std::size_t e = 0; e < 256; ++e) {
          const double x = value_at(type, source.data(), e);
          if (x > 0) low = std::min(low, x);
          high = std::max(high, x);
        }
        for (int trial = 0; trial < trials; ++trial) {
          const Encoded out = encode_span(source.data(), 256, type, bits, random());
          const auto restored = decode_span(out.payload, source.size());
          for (std::size_t e = 0; e < 256; ++e) {
            const double error =
                value_at(type, restored.data(), e) - value_at(type, source.data(), e);
            sum[e] += error;
            squares[e] += error * error;
          }
        }
        const double step =
            (high - low) / ((1 << bits) - 2) * (type == ElementType::kFloat32 ? 1 : 1 + 1.0 / 64);
        double all = 0, variance = 0, ulp_squares = 0;
        for (std::size_t e = 0; e < 256; ++e) {
          // 8-bit noise: D/512 of bias per element; and half an ulp from rounding to the type.
          const double x = value_at(type, source.data(), e);
          const double ulp = (x + step) * (type == ElementType::kFloat32    ? 1e-7
                                           : type == ElementType::kBFloat16 ? 1.0 / 256
                                                                            : 1.0 / 2048);
          const double sigma = std::sqrt(squares[e]) / trials;
          EXPECT_LE(std::fabs(sum[e] / trials), 6.5 * sigma + step / 256 + (x > 0 ? ulp : 0))
              << name_of(type) << " " << bits << " bits, data " << int(data) << " element " << e;
          all += sum[e] / trials;
          variance += squares[e] / trials / trials;
          if (x > 0) ulp_squares += ulp * ulp;
        }
        // All elements of a level err by the same rounding to the type.
        const double a_level = std::max(1.0, std::ldexp(256, -int(bits)));
        EXPECT_LE(std::fabs(all), 5.5 * std::sqrt(variance + a_level * ulp_squares / 12) +
                                      256 * step * (type == ElementType::kFloat32 ? 2e-4 : 4e-3))
            << name_of(type) << " " << bits << " bits, data " << int(data);
      }
    }
  }
}

// Two values are exact; so is one value among zeros of both signs, up to the smallest step.
TEST(ZeroKept, OneValueAmongZeros) {
  for (const Path& path : paths()) {
    const UsePath use(path);
    for (const ElementType type : kFloatTypes) {
      for (const unsigned bits : kZeroKeptWidths) {
        for (const bool both : {false, true}) {
          const Bytes source = make(type, 300, [&](std::size_t e) {
            return e % 3 == 0 ? 2.5 : both && e % 3 == 1 ? -0.0 : 0.0;
          });
          const Encoded out = encode_span(source.data(), 300, type, bits);
          ASSERT_EQ(out.status, Status::kOk);
          EXPECT_EQ(out.statistics.two_valued_groups, both ? 0u : 2u);
          const auto restored = decode_span(out.payload, source.size());
          for (std::size_t e = 0; e < 300; ++e)
            ASSERT_EQ(value_at(type, restored.data(), e), value_at(type, source.data(), e));
        }
      }
    }
  }
}

// Nothing but the group's own elements counts: a short group's padding is no zero.
TEST(ZeroKept, PaddingIsNotAnElement) {
  std::mt19937_64 random(seed());
  for (const Path& path : paths()) {
    const UsePath use(path);
    for (const ElementType type : kFloatTypes) {
      for (const unsigned bits : kZeroKeptWidths) {
        for (const std::size_t tail : {std::size_t{3}, std::size_t{100}, std::size_t{255}}) {
          const std::size_t whole = 256 * 8;
          const Bytes source = make(type, whole + tail, [&](std::size_t e) {
            return e < whole ? draw(Data::kRelu, e % 256, type, random) : 40 + double(e % 256 % 9);
          });
          const Encoded out = encode_span(source.data(), whole + tail, type, bits);
          EXPECT_TRUE(metadata_of(out, type, 7).marked);
          EXPECT_FALSE(metadata_of(out, type, 8).marked);
          EXPECT_EQ(metadata_of(out, type, 8).anchor, 40);
        }
      }
    }
  }
}

// One bit has no code to spare; groups of zeros and negative values count from zero downwards.
TEST(ZeroKept, OtherGroupsAreAsTheyWere) {
  std::mt19937_64 random(seed());
  for (const Path& path : paths()) {
    const UsePath use(path);
    for (const ElementType type : kFloatTypes) {
      for (const unsigned bits : kWidths) {
        const Bytes source = make(type, 512, [&](std::size_t e) {
          const double x = draw(Data::kRelu, e % 256, type, random);
          return e < 256 ? x : -x;
        });
        const Encoded out = encode_span(source.data(), 512, type, bits);
        EXPECT_EQ(metadata_of(out, type, 0).marked, bits >= 2);
        EXPECT_EQ(metadata_of(out, type, 0).anchor > 0, bits >= 2);
        EXPECT_TRUE(metadata_of(out, type, 1).marked);
        EXPECT_EQ(metadata_of(out, type, 1).anchor, 0);
        const auto restored = decode_span(out.payload, source.size());
        for (std::size_t e = 0; e < 512; ++e) {
          if (value_at(type, source.data(), e) == 0) {
            ASSERT_EQ(value_at(type, restored.data(), e), 0);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace pleat::compress::test
