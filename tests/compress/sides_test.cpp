// Payloads that keep on which side of its bounds an element lies. The reference compares doubles.
#include "compress/sides/sides.h"
#include "compress/block/group_steps.h"

#include <limits>

#include "compress/format.h"
#include "tests/compress/support.h"

namespace pleat::compress::test {
namespace {

using Kind = Sides::Kind;
constexpr float kInf = std::numeric_limits<float>::infinity();

// The largest value of a type, its smallest one above zero, and neighbours, in doubles.
double largest(ElementType type) {
  return type == ElementType::kFloat16    ? 65504.0
         : type == ElementType::kBFloat16 ? Element<ElementType::kBFloat16>::kLargest
                                          : Element<ElementType::kFloat32>::kLargest;
}
double smallest(ElementType type) {
  return std::ldexp(1, type == ElementType::kFloat16    ? -24
                       : type == ElementType::kBFloat16 ? -133
                                                        : -149);
}
double neighbour(ElementType type, double x, bool up) {
  if (x == 0) return up ? smallest(type) : -smallest(type);
  if (std::isinf(x)) return (x > 0) == up ? x : std::copysign(largest(type), x);
  if (std::fabs(x) == largest(type) && (x > 0) == up) return std::copysign(INFINITY, x);
  // A step of the type at x, or below a power of two half of it.
  const int digits = type == ElementType::kFloat16 ? 11 : type == ElementType::kBFloat16 ? 8 : 24;
  int exponent = 0;
  const double mantissa = std::frexp(std::fabs(x), &exponent);
  double step = std::max(std::ldexp(1, exponent - digits), smallest(type));
  if (mantissa == 0.5 && (x > 0) != up) step = std::max(step / 2, smallest(type));
  return up ? x + step : x - step;
}

// Which side the documents say.
unsigned side_by_definition(const Sides& sides, double x) {
  const double low = sides.low, high = sides.high;
  const bool has_low = low != -INFINITY, has_high = high != INFINITY;
  if (sides.kind == Kind::kThree) {
    if (std::isnan(x)) return 1;
    return has_low && x < low ? 0 : has_high && x > high ? 2 : 1;
  }
  if (!has_low && !has_high) return 1;
  if (std::isnan(x)) return sides.nan_inside ? 1 : 0;
  if (sides.kind == Kind::kOpen) return (!has_low || x > low) && (!has_high || x < high) ? 1 : 0;
  return (!has_low || x >= low) && (!has_high || x <= high) ? 1 : 0;
}

// Bounds worth a test: torch's own, awkward ones, and those of a type's ends.
std::vector<Sides> all_sides(ElementType type) {
  const float most = static_cast<float>(largest(type)), least = static_cast<float>(smallest(type));
  const float wide = type == ElementType::kFloat16 ? 4096.0f : 1e30f;
  const float big = type == ElementType::kBFloat16 ? std::ldexp(1.0f, 100) : wide;
  std::vector<std::pair<float, float>> bounds{
      {0, kInf},          {-kInf, 0}, {0, 1},        {-1, 1},      {0, 6},         {-3, 3},
      {-0.5f, 0.5f},      {0, 0},     {-0.0f, kInf}, {20, kInf},   {-kInf, kInf},  {least, kInf},
      {-least, least},    {0, least}, {-most, most}, {most, kInf}, {-kInf, -most}, {-kInf, most},
      {least, 2 * least}, {1, 1},     {-most, 0},    {kInf, kInf}, {-kInf, -kInf}};
  if (type == ElementType::kFloat32) {
    bounds.insert(bounds.end(), {{big, 2 * big}, {-big, big}, {16777216, kInf}, {1, 1.0000001f}});
  } else {
    bounds.insert(bounds.end(), {{2048, kInf}, {-kInf, -2048}, {2048, 4096}, {256, kInf}});
  }
  std::vector<Sides> all;
  for (const auto& [low, high] : bounds)
    for (const Kind kind : {Kind::kOpen, Kind::kClosed, Kind::kThree})
      for (const bool nan_inside : {false, true}) all.push_back({kind, nan_inside, low, high});
  return all;
}

// Elements of every kind, those next to the bounds above all.
Bytes around(ElementType type, const Sides& sides, std::size_t elements) {
  std::mt19937_64 random(seed());
  std::normal_distribution<double> normal;
  const double bounds[] = {sides.low, sides.high};
  Bytes source(elements * element_size(type));
  for (std::size_t e = 0; e < elements; ++e) {
    const double bound = bounds[random() % 2];
    double x = normal(random);
    switch (random() % 12) {
      case 0:
        x = bound;
        break;
      case 1:
        x = neighbour(type, bound, true);
        break;
      case 2:
        x = neighbour(type, bound, false);
        break;
      case 3:
        x = std::isinf(bound) ? x : bound + x;
        break;
      case 4:
        x = random() % 2 ? 0.0 : -0.0;
        break;
      case 5:
        x = (random() % 2 ? 1 : -1) * smallest(type) * double(1 + random() % 9);
        break;
      case 6:
        x = random() % 2 ? INFINITY : -INFINITY;
        break;
      case 7:
        x = (random() % 2 ? 1 : -1) * largest(type);
        break;
      case 8:
        x = NAN;
        break;
      default:
        x *= 3;
        break;
    }
    set_value(type, source.data(), e, x);
    if (std::isnan(x) && random() % 2 != 0)  // its sign bit
      source.data()[(e + 1) * element_size(type) - 1] |= 0x80;
  }
  return source;
}

CodecSpec only(const Sides& sides) { return {.sides = sides}; }

std::vector<unsigned char> encoded(const Bytes& source, ElementType type, const Sides& sides,
                                   const Executor& executor = serial_executor()) {
  const std::size_t elements = source.size() / element_size(type);
  const std::size_t bound = payload_bound(only(sides), type, elements);
  Bytes payload(bound);
  const EncodeResult result = encode({source.data(), elements, type}, only(sides), 7,
                                     payload.data(), bound, executor, nullptr);
  EXPECT_EQ(result.status, Status::kOk);
  EXPECT_EQ(result.payload_bytes, bound);
  EXPECT_TRUE(payload.guard_intact());
  return {payload.data(), payload.data() + result.payload_bytes};
}

constexpr std::size_t kCounts[] = {1, 7, 8, 31, 32, 33, 255, 256, 1000, 16384, 40001};

TEST(Sides, EveryElementComesBackOnItsSide) {
  for (const ElementType type : kFloatTypes) {
    for (const Sides& sides : all_sides(type)) {
      if (!sides_hold(sides, type)) continue;
      const Bytes source = around(type, sides, 3001);
      const auto payload = encoded(source, type, sides);
      EXPECT_EQ(payload.size(), 64 + (3001 * (sides.kind == Kind::kThree ? 2u : 1u) + 7) / 8);
      const auto back = decode_span(payload, source.size());
      for (std::size_t e = 0; e < 3001; ++e) {
        const double x = value_at(type, source.data(), e), y = value_at(type, back.data(), e);
        ASSERT_FALSE(std::isnan(y));
        ASSERT_EQ(side_by_definition(sides, x), side_by_definition(sides, y))
            << name_of(type) << " kind " << int(sides.kind) << " [" << sides.low << ", "
            << sides.high << "] nan " << sides.nan_inside << ": " << x << " -> " << y;
      }
    }
  }
}

// What the formulas of torch's backwards make of the restored elements.
TEST(Sides, FormulasThatCompareTheElementsGiveTheSame) {
  const auto same = [](const Sides& sides, auto formula) {
    const Bytes source = around(ElementType::kFloat32, sides, 2000);
    const auto back = decode_span(encoded(source, ElementType::kFloat32, sides), source.size());
    for (std::size_t e = 0; e < 2000; ++e) {
      float x, y;
      std::memcpy(&x, source.data() + 4 * e, 4);
      std::memcpy(&y, back.data() + 4 * e, 4);
      ASSERT_EQ(formula(x), formula(y)) << x << " -> " << y;
    }
  };
  same({Kind::kOpen, true, 0, kInf}, [](float x) { return x <= 0; });           // relu, threshold
  same({Kind::kOpen, false, 0, kInf}, [](float x) { return x > 0; });           // leaky_relu
  same({Kind::kOpen, true, -1, 1}, [](float x) { return x <= -1 || x >= 1; });  // hardtanh
  same({Kind::kOpen, false, 0, 6}, [](float x) { return x > 0 && x < 6; });
  same({Kind::kClosed, false, 0, 1}, [](float x) { return x >= 0 && x <= 1; });  // clamp
  same({Kind::kClosed, false, -kInf, 1}, [](float x) { return x <= 1; });
  same({Kind::kClosed, true, -0.5f, 0.5f}, [](float x) { return x < -0.5f || x > 0.5f; });
  same({Kind::kThree, false, 0, 0}, [](float x) { return x > 0 ? 1 : x < 0 ? -1 : 0; });  // sign
  same({Kind::kThree, false, -3, 3}, [](float x) { return x < -3 ? 0 : x > 3 ? 2 : 1; });
}

TEST(Sides, StandForThemByPlainValuesWhereThereAreAny) {
  const auto pair = [](const Sides& sides, float inside, float outside) {
    Bytes source(8);
    source.as<float>()[0] = inside;
    source.as<float>()[1] = outside;
    const auto back = decode_span(encoded(source, ElementType::kFloat32, sides), 8);
    std::pair<float, float> values;
    std::memcpy(&values.first, back.data(), 4);
    std::memcpy(&values.second, back.data() + 4, 4);
    return values;
  };
  EXPECT_EQ(pair({Kind::kOpen, false, 0, kInf}, 17, -3), (std::pair{1.0f, 0.0f}));
  EXPECT_EQ(pair({Kind::kOpen, false, -1, 1}, 0.7f, 9), (std::pair{0.0f, 2.0f}));
  EXPECT_EQ(pair({Kind::kClosed, false, 0, 1}, 1, -9), (std::pair{0.5f, 2.0f}));
  EXPECT_EQ(pair({Kind::kClosed, false, 2, kInf}, 9, 1), (std::pair{3.0f, 1.0f}));
  EXPECT_EQ(pair({Kind::kThree, false, -2, 4}, 0, 5), (std::pair{1.0f, 5.0f}));
  EXPECT_EQ(pair({Kind::kThree, false, -2, 4}, 0, -7), (std::pair{1.0f, -3.0f}));
}

TEST(Sides, WhatCannotBeHeldIsSaidAndEncodedWithoutLoss) {
  const Sides nan_low{Kind::kClosed, false, NAN, 1}, crossed{Kind::kClosed, false, 2, 1};
  const Sides between{Kind::kClosed, false, 0.1f, 1};  // 0.1 is no bfloat16
  const Sides nan_only{Kind::kOpen, true, 0, 0};       // a NaN would be all that is inside
  EXPECT_FALSE(sides_hold(nan_low, ElementType::kFloat32));
  EXPECT_FALSE(sides_hold(crossed, ElementType::kFloat32));
  EXPECT_TRUE(sides_hold(between, ElementType::kFloat32));
  EXPECT_FALSE(sides_hold(between, ElementType::kBFloat16));
  EXPECT_FALSE(sides_hold(nan_only, ElementType::kFloat32));
  EXPECT_FALSE(sides_hold(Sides{}, ElementType::kFloat32));
  EXPECT_FALSE(sides_hold({Kind::kOpen, false, 0, kInf}, ElementType::kInt32));
  const Bytes source = around(ElementType::kBFloat16, between, 1000);
  const std::size_t bound = payload_bound(only(between), ElementType::kBFloat16, 1000);
  Bytes payload(bound);
  const EncodeResult result = encode({source.data(), 1000, ElementType::kBFloat16}, only(between),
                                     7, payload.data(), bound, serial_executor(), nullptr);
  ASSERT_EQ(result.status, Status::kOk);
  Bytes back(source.size());
  ASSERT_EQ(
      decode(payload.data(), result.payload_bytes, back.data(), back.size(), serial_executor()),
      Status::kOk);
  EXPECT_EQ(std::memcmp(back.data(), source.data(), source.size()), 0);
}

TEST(Sides, EveryPathAndSplitGivesTheSameBytesAndElements) {
  const Sides cases[] = {
      {Kind::kOpen, false, 0, kInf}, {Kind::kClosed, true, -1, 1}, {Kind::kThree, false, 0, 0.5f}};
  for (const ElementType type : kFloatTypes) {
    for (const Sides& sides : cases) {
      for (const std::size_t elements : kCounts) {
        const Bytes source = around(type, sides, elements);
        use_kernels(&kScalarKernels);
        const auto expected = encoded(source, type, sides);
        const auto values = decode_span(expected, source.size());
        for (const Path& path : paths()) {
          const UsePath use(path);
          EXPECT_TRUE(encoded(source, type, sides, thread_executor(1)) == expected) << path.name;
          for (const std::size_t threshold : {SIZE_MAX, std::size_t{1}}) {
            set_stream_threshold(threshold);
            EXPECT_TRUE(decode_span(expected, source.size(), backwards_executor()) == values)
                << path.name << " " << name_of(type) << " " << elements;
          }
          set_stream_threshold(0);
        }
        set_isa(Isa::kAuto);
      }
    }
  }
}

TEST(Sides, InPlaceGivesTheSameBytes) {
  for (const ElementType type : kFloatTypes) {
    for (const Kind kind : {Kind::kOpen, Kind::kThree}) {
      const Sides sides{kind, false, 0, 2};
      for (const std::size_t elements : {std::size_t{100}, std::size_t{2'200'003}}) {  // two tiles
        const Bytes some = around(type, sides, std::min<std::size_t>(elements, 10007));
        Bytes source(elements * element_size(type));
        for (std::size_t at = 0; at < source.size(); at += some.size())
          std::memcpy(source.data() + at, some.data(), std::min(some.size(), source.size() - at));
        const auto expected = encoded(source, type, sides);
        Bytes buffer(source.size());
        std::memcpy(buffer.data(), source.data(), source.size());
        const EncodeResult result = encode_in_place(buffer.data(), buffer.size(), elements, type,
                                                    only(sides), 7, thread_executor(40), nullptr);
        ASSERT_EQ(result.status, Status::kOk);
        ASSERT_EQ(result.payload_bytes, expected.size());
        EXPECT_EQ(std::memcmp(buffer.data(), expected.data(), expected.size()), 0);
        EXPECT_TRUE(buffer.guard_intact());
      }
    }
  }
  Bytes few(64);  // 16 elements: the payload is no smaller than its source
  EXPECT_EQ(encode_in_place(few.data(), 64, 16, ElementType::kFloat32,
                            only({Kind::kOpen, false, 0, 1}), 7, serial_executor(), nullptr)
                .status,
            Status::kNoRoom);
}

TEST(Sides, HeadersThatDoNotAgreeAreRefused) {
  const Sides sides{Kind::kClosed, false, 0, kInf};
  const Bytes source = around(ElementType::kFloat16, sides, 100);
  const auto good = encoded(source, ElementType::kFloat16, sides);
  const auto status = [&](std::size_t at, unsigned char value) {
    auto payload = good;
    payload[at] = value;
    Bytes target(source.size());
    const Status decoded =
        decode(payload.data(), payload.size(), target.data(), target.size(), serial_executor());
    EXPECT_EQ(restore_sides(payload.data(), payload.size(), target.data(), target.size(),
                            serial_executor()),
              decoded);
    return decoded;
  };
  EXPECT_EQ(status(6, 5), Status::kOk);
  EXPECT_EQ(status(7, 3), Status::kCorrupt);  // booleans have no sides
  EXPECT_EQ(status(8, 2), Status::kCorrupt);  // two bits are more bytes
  EXPECT_EQ(status(8, 0), Status::kCorrupt);
  EXPECT_EQ(status(9, 4), Status::kCorrupt);   // flags
  EXPECT_EQ(status(12, 1), Status::kCorrupt);  // escapes
  EXPECT_EQ(status(16, 99), Status::kCorrupt);
  EXPECT_EQ(status(42, 1), Status::kCorrupt);  // 16-bit types have no higher bits
  EXPECT_EQ(status(50, 1), Status::kCorrupt);
  EXPECT_EQ(status(56, 1), Status::kCorrupt);  // there is no third side
  EXPECT_EQ(status(60, 1), Status::kCorrupt);
  Bytes target(source.size());
  // Beside values two bounds need three sides.
  const auto between = encoded(source, ElementType::kFloat16, {Kind::kClosed, false, 0, 1});
  EXPECT_EQ(restore_sides(between.data(), between.size(), target.data(), target.size(),
                          serial_executor()),
            Status::kCorrupt);
  EXPECT_EQ(decode_function(good.data(), good.size(), target.data(), target.size(), Function::kGelu,
                            serial_executor()),
            Status::kCorrupt);
}

TEST(Sides, ACodeThatIsNoSideIsRefusedOnEveryPath) {
  const Sides sides{Kind::kThree, false, 0, 1};
  for (const ElementType type : kFloatTypes) {
    const Bytes source = around(type, sides, 1003);
    for (const std::size_t at : {0, 500, 1000, 1002}) {
      auto payload = encoded(source, type, sides);
      payload[64 + at / 4] |= static_cast<unsigned char>(3u << (at % 4 * 2));
      for (const Path& path : paths()) {
        const UsePath use(path);
        Bytes target(source.size());
        EXPECT_EQ(
            decode(payload.data(), payload.size(), target.data(), target.size(), serial_executor()),
            Status::kCorrupt)
            << path.name;
        EXPECT_EQ(restore_sides(payload.data(), payload.size(), target.data(), target.size(),
                                serial_executor()),
                  Status::kCorrupt)
            << path.name;
      }
    }
  }
}

// ---- beside values ----

TEST(Sides, ValuesAreMovedToTheNearestOfTheirSideAndNoErrorGrows) {
  std::mt19937_64 random(seed());
  std::normal_distribution<double> normal;
  for (const ElementType type : kFloatTypes) {
    for (const Sides& asked : all_sides(type)) {
      const Sides sides = sides_beside_values(asked, type);
      if (!sides_hold(asked, type) || !sides.any()) continue;
      ASSERT_TRUE(sides_hold(sides, type));
      const std::size_t elements = 2003;
      const Bytes source = around(type, asked, elements);
      Bytes noisy(source.size());
      std::memcpy(noisy.data(), source.data(), source.size());
      for (std::size_t e = 0; e < elements; ++e) {
        const double x = value_at(type, source.data(), e);
        if (std::isfinite(x) && random() % 4 != 0) {
          const double y = x + normal(random) * std::max(1.0, std::fabs(x));
          set_value(type, noisy.data(), e, std::clamp(y, -largest(type), largest(type)));
        }
      }
      const auto payload = encoded(source, type, sides);
      Bytes moved(source.size());
      for (const Path& path : paths()) {
        const UsePath use(path);
        Bytes here(source.size());
        std::memcpy(here.data(), noisy.data(), noisy.size());
        ASSERT_EQ(restore_sides(payload.data(), payload.size(), here.data(), here.size(),
                                thread_executor(1)),
                  Status::kOk);
        EXPECT_TRUE(here.guard_intact());
        if (path.table == &kScalarKernels) std::memcpy(moved.data(), here.data(), here.size());
        ASSERT_EQ(std::memcmp(moved.data(), here.data(), here.size()), 0) << path.name;
      }
      for (std::size_t e = 0; e < elements; ++e) {
        const double x = value_at(type, source.data(), e), y = value_at(type, noisy.data(), e),
                     z = value_at(type, moved.data(), e);
        const std::size_t size = element_size(type);
        if (std::isnan(x)) {
          ASSERT_EQ(std::memcmp(source.data() + e * size, moved.data() + e * size, size), 0);
          continue;
        }
        ASSERT_EQ(side_by_definition(asked, x), side_by_definition(asked, z))
            << name_of(type) << " kind " << int(asked.kind) << " [" << asked.low << ", "
            << asked.high << "] " << x << " -> " << y << " -> " << z;
        if (side_by_definition(sides, x) == side_by_definition(sides, y)) {
          ASSERT_EQ(y, z);
        } else if (std::isfinite(x)) {
          ASSERT_LE(std::fabs(z - x), std::fabs(y - x));
          // No value of the side lies between: a step back leaves it.
          ASSERT_NE(side_by_definition(sides, neighbour(type, z, y > z)),
                    side_by_definition(sides, z));
        }
      }
    }
  }
}

// The question that decides whether a block stores sides beside its values must not be answered
// with no where decoding breaks the promise.
TEST(Sides, NoPayloadSaidToKeepItsSidesLosesOne) {
  unsigned kept = 0, lost = 0;
  for (const ElementType type : kFloatTypes) {
    for (const unsigned bits : kWidths) {
      for (int content = 0; content < 8; ++content) {
        for (const Sides& asked : all_sides(type)) {
          const Sides sides = sides_beside_values(asked, type);
          if (!sides_hold(asked, type) || !sides.any()) continue;
          std::mt19937_64 random(seed() + unsigned(content));
          std::normal_distribution<double> normal;
          const std::size_t elements = 600;
          Bytes source(elements * element_size(type));
          for (std::size_t e = 0; e < elements; ++e) {
            double x = normal(random);
            const double bound = std::isfinite(asked.high)  ? asked.high
                                 : std::isfinite(asked.low) ? asked.low
                                                            : 0;
            if (content == 1) x = std::max(x, 0.0);                        // relu
            if (content == 2) x = std::fabs(x) + (e % 3 == 0 ? 0 : 1e-3);  // all positive
            if (content == 3) x = -std::max(x, 0.0);                       // mirrored
            if (content == 4) x = std::min(std::max(x, -1.0), 1.0);        // clamped
            if (content == 5) x = bound + (bound == 0 ? 1 : bound) * std::fabs(x) * 0.1;
            if (content == 6) x = e % 5 == 0 ? bound : neighbour(type, bound, e % 2 == 0);
            if (content == 7) x = std::max(x, 0.0) * smallest(type) * 20;
            x = std::clamp(x, -largest(type), largest(type));
            set_value(type, source.data(), e, x);
          }
          const Encoded coded = encode_span(source.data(), elements, type, bits);
          if (coded.status != Status::kOk) continue;
          const auto back = decode_span(coded.payload, source.size());
          bool same = true;
          for (std::size_t e = 0; e < elements; ++e)
            same &= side_by_definition(sides, value_at(type, source.data(), e)) ==
                    side_by_definition(sides, value_at(type, back.data(), e));
          const bool may = may_leave_side(coded.payload.data(), coded.payload.size(), sides);
          ASSERT_TRUE(same || may) << name_of(type) << " " << bits << " " << content << " ["
                                   << asked.low << ", " << asked.high << "]";
          const bool keeps = keeps_sides({source.data(), elements, type},
                                         {.bits = std::uint8_t(bits)}, asked, serial_executor());
          ASSERT_TRUE(same || !keeps) << name_of(type) << " " << bits << " " << content;
          kept += may ? 0 : 1;
          lost += same ? 0 : 1;
        }
      }
    }
  }
  EXPECT_GT(kept, 1000u);
  EXPECT_GT(lost, 500u);
}

// Small rows and small channels: some of their elements become zero where they are divided.
TEST(Sides, NoPayloadWithExponentsSaidToKeepItsSidesLosesOne) {
  constexpr std::size_t kElements = 800, kRow = 50;
  std::int8_t table[kRow] = {};
  for (std::size_t c = 0; c < kRow; c += 7) table[c] = -9;
  unsigned kept = 0, lost = 0;
  for (const ElementType type : kFloatTypes) {
    for (int content = 0; content < 8; ++content) {
      std::mt19937_64 random(seed() + unsigned(content));
      std::normal_distribution<double> normal;
      Bytes source(kElements * element_size(type));
      for (std::size_t e = 0; e < kElements; ++e) {
        double x = normal(random);
        if (content % 4 != 0) x = std::fabs(x) * (content % 4 == 3 ? -1 : 1);
        if (content % 4 == 2 && e % 3 == 0) x = 0;
        const int row = int(e / kRow);
        // The last contents reach down to where the type ends.
        x = std::ldexp(x, content < 4 ? -(row % 5) * 2 : row % 5 == 0 ? 0 : -row * 8);
        set_value(type, source.data(), e, x);
      }
      for (const Exponents& exponents :
           {Exponents{kRow, 0, 1, nullptr}, Exponents{kRow, kRow, 1, table}}) {
        for (const std::uint8_t bits : {std::uint8_t{2}, std::uint8_t{4}}) {
          const CodecSpec codec{.bits = bits, .exponents = exponents};
          Bytes payload(payload_bound(codec, type, kElements)), back(source.size());
          const EncodeResult coded =
              encode({source.data(), kElements, type}, codec, 3, payload.data(), payload.size(),
                     serial_executor(), nullptr);
          ASSERT_EQ(coded.status, Status::kOk);
          ASSERT_EQ(decode(payload.data(), coded.payload_bytes, back.data(), back.size(),
                           serial_executor()),
                    Status::kOk);
          for (const Sides& asked : all_sides(type)) {
            const Sides sides = sides_beside_values(asked, type);
            if (!sides_hold(asked, type) || !sides.any()) continue;
            bool same = true;
            for (std::size_t e = 0; e < kElements; ++e)
              same &= side_by_definition(sides, value_at(type, source.data(), e)) ==
                      side_by_definition(sides, value_at(type, back.data(), e));
            const bool may = may_leave_side(payload.data(), coded.payload_bytes, sides);
            ASSERT_TRUE(same || may) << name_of(type) << " " << int(bits) << " " << content << " ["
                                     << asked.low << ", " << asked.high << "]";
            kept += may ? 0 : 1;
            lost += same ? 0 : 1;
          }
        }
      }
    }
  }
  EXPECT_GT(kept, 500u);
  EXPECT_GT(lost, 300u);
}

TEST(Sides, ResultsOfReluKeepTheirSidesFromTwoBitsOn) {
  const Sides relu = {Kind::kOpen, true, 0, kInf};
  for (const ElementType type : kFloatTypes) {
    Bytes source(5000 * element_size(type));
    std::mt19937_64 random(seed());
    std::normal_distribution<double> normal;
    for (std::size_t e = 0; e < 5000; ++e)
      set_value(type, source.data(), e, std::max(0.0, normal(random)));
    for (const unsigned bits : kWidths) {
      const auto payload = encode_span(source.data(), 5000, type, bits).payload;
      EXPECT_EQ(may_leave_side(payload.data(), payload.size(), sides_beside_values(relu, type)),
                bits == 1);
      CodecSpec codec{.bits = std::uint8_t(bits)};
      EXPECT_EQ(keeps_sides({source.data(), 5000, type}, codec, relu, thread_executor(1)),
                bits != 1);
      codec.exponents.row = 100;
      EXPECT_FALSE(keeps_sides({source.data(), 5000, type}, codec, relu, thread_executor(1)));
    }
    CodecSpec rows{.bits = 4, .exponents = {100, 0, 1, nullptr}};
    for (std::size_t e = 0; e < 5000; ++e)
      if (e / 100 % 5 == 0)
        set_value(type, source.data(), e, value_at(type, source.data(), e) / 16);
    Bytes small(payload_bound(rows, type, 5000));
    const EncodeResult coded = encode({source.data(), 5000, type}, rows, 1, small.data(),
                                      small.size(), serial_executor(), nullptr);
    // The least step of a half may be lost in a small row.
    EXPECT_TRUE(type == ElementType::kFloat16 || !may_leave_side(small.data(), coded.payload_bytes,
                                                                 sides_beside_values(relu, type)));
    const auto rotated =
        encode_span(source.data(), 5000, type, 4, 1, serial_executor(), false, Transform::kHadamard)
            .payload;
    EXPECT_TRUE(may_leave_side(rotated.data(), rotated.size(), sides_beside_values(relu, type)));
    set_value(type, source.data(), 4321, -1e-3);
    EXPECT_FALSE(keeps_sides({source.data(), 5000, type}, {.bits = 4}, relu, serial_executor()));
    const auto negative = encode_span(source.data(), 5000, type, 4).payload;
    EXPECT_TRUE(may_leave_side(negative.data(), negative.size(), sides_beside_values(relu, type)));
  }
}

}  // namespace
}  // namespace pleat::compress::test
