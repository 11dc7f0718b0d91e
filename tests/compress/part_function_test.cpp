// Activations recomputed from arguments whose rows have exponents of their own.
#include "compress/functions/functions.h"
#include "tests/compress/support.h"

namespace pleat::compress {
namespace {

using namespace compress::test;

constexpr std::size_t kRow = 100, kRows = 120, kElements = kRow * kRows;

double gelu(double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); }

enum class Row { kLarge, kSmall, kZero };
Row kind_of_row(std::size_t e) {
  const std::size_t row = e / kRow % 5;
  return row == 1 ? Row::kSmall : row == 3 ? Row::kZero : Row::kLarge;
}
// Of rows of `scale`, a 65th of it, and zeros. Times 64, the largest elements are those of the
// small rows.
constexpr double kSmall = 1.0 / 65, kLargest = 2.5;
Bytes rows_of(ElementType type, double scale, std::uint64_t stream) {
  std::mt19937_64 random(seed() + stream);
  std::normal_distribution<double> normal;
  Bytes source(kElements * element_size(type));
  for (std::size_t e = 0; e < kElements; ++e) {
    const Row row = kind_of_row(e);
    const bool small = row == Row::kSmall;
    const double x = std::clamp(normal(random), -kLargest, small ? kLargest : 0.8 * kLargest);
    set_value(type, source.data(), e, row == Row::kZero ? 0 : x * scale * (small ? kSmall : 1));
  }
  return source;
}

std::vector<unsigned char> encoded(const Bytes& source, ElementType type, const CodecSpec& spec,
                                   std::uint64_t nonce) {
  Bytes room(payload_bound(spec, type, kElements));
  const EncodeResult result = encode({source.data(), kElements, type}, spec, nonce, room.data(),
                                     room.size(), serial_executor(), nullptr);
  EXPECT_EQ(result.status, Status::kOk);
  return {room.data(), room.data() + result.payload_bytes};
}
Bytes yielded(const std::vector<unsigned char>& payload, ElementType type) {
  Bytes target(kElements * element_size(type));
  EXPECT_EQ(decode_function(payload.data(), payload.size(), target.data(), target.size(),
                            Function::kGelu, serial_executor()),
            Status::kOk);
  EXPECT_TRUE(target.guard_intact());
  return target;
}

// The noise of a small row is a 64th of that of its group, and its effect on the mean nothing.
TEST(PartFunctions, TakeOffTheMeanErrorOfEachRow) {
  constexpr ElementType kType = ElementType::kFloat32;
  for (const Path& path : paths()) {
    const UsePath use(path);
    const Bytes source = rows_of(kType, 1, 1);
    const double step = 5.0 / 15, correction = step * step / 24 * 0.8;  // of a large row, near zero
    constexpr int kNonces = 60;
    double large = 0, small = 0;  // sums of the errors
    for (int nonce = 0; nonce < kNonces; ++nonce) {
      const CodecSpec spec{.bits = 4, .exponents = {kRow, 0, 1, nullptr}};
      const Bytes result = yielded(encoded(source, kType, spec, 100 + nonce), kType);
      for (std::size_t e = 0; e < kElements; ++e) {
        const double x = value_at(kType, source.data(), e), y = value_at(kType, result.data(), e);
        const Row row = kind_of_row(e);
        if (row == Row::kZero) {
          ASSERT_EQ(y, 0);
        }
        (row == Row::kSmall ? small : large) += y - gelu(x);
      }
    }
    EXPECT_LT(std::fabs(small), 0.1 * correction * kNonces * kElements / 5) << path.name;
    EXPECT_LT(std::fabs(large), 0.1 * correction * kNonces * kElements * 3 / 5) << path.name;
  }
}

TEST(PartFunctions, OfEveryFormStayNearTheirResults) {
  std::int8_t table[kRow] = {};
  for (std::size_t c = 0; c < kRow; c += 9) table[c] = -3;
  for (const ElementType type : kFloatTypes) {
    const Bytes source = rows_of(type, 1, 2);
    for (const CodecSpec& spec :
         {CodecSpec{.bits = 4, .exponents = {kRow, 0, 1, nullptr}},
          CodecSpec{.bits = 4, .exponents = {kRow, kRow, 1, table}},
          CodecSpec{.bits = 4, .zeros = true, .exponents = {kRow, 0, 1, nullptr}},
          CodecSpec{
              .bits = 4, .transform = Transform::kHadamard, .exponents = {kRow, 0, 1, nullptr}}}) {
      const Bytes result = yielded(encoded(source, type, spec, 5), type);
      const double most = spec.exponents.channels != 0 ? 8 : 1;
      for (std::size_t e = 0; e < kElements; ++e) {
        const double x = value_at(type, source.data(), e), y = value_at(type, result.data(), e);
        ASSERT_NEAR(y, gelu(x), most * (kind_of_row(e) == Row::kLarge ? 0.6 : 0.02));
      }
    }
  }
}

TEST(PartFunctions, ResultsThatWereChangedAreSeen) {
  for (const ElementType type : kFloatTypes) {
    for (const unsigned bits : {2u, 4u, 8u}) {
      const Bytes source = rows_of(type, 0.2, 11);
      const CodecSpec spec{.bits = std::uint8_t(bits), .exponents = {kRow, 0, 1, nullptr}};
      const std::vector<unsigned char> from = encoded(source, type, spec, 12);
      const auto seen = [&](const auto& change) {
        Bytes y(source.size());
        for (std::size_t e = 0; e < kElements; ++e)
          set_value(type, y.data(), e, change(gelu(value_at(type, source.data(), e)), e));
        return !may_be_result(from.data(), from.size(), Function::kGelu, y.data());
      };
      SCOPED_TRACE(std::string(name_of(type)) + " " + std::to_string(bits));
      EXPECT_FALSE(seen([](double y, std::size_t) { return y; }));
      EXPECT_TRUE(seen([](double y, std::size_t) { return 1.25 * y; }));
      EXPECT_TRUE(seen([](double y, std::size_t e) { return e % 2 == 0 ? y : 0; }));
      EXPECT_TRUE(seen([](double y, std::size_t) { return y < 0 ? 0 : y; }));
      EXPECT_TRUE(seen([](double, std::size_t) { return 0.0; }));
      EXPECT_TRUE(seen([](double, std::size_t) { return std::nan(""); }));
      // Noise of the group would hide these.
      const bool fine = type == ElementType::kFloat32;
      EXPECT_TRUE(!fine || bits != 4 || seen([&](double y, std::size_t e) {
        const double largest = 0.2 * kSmall * kLargest;
        const bool high = value_at(type, source.data(), e) > 0.9 * largest;
        return kind_of_row(e) == Row::kSmall && high ? y - largest / 85 : y;
      }));
      EXPECT_TRUE(!fine || seen([](double y, std::size_t e) {
        return kind_of_row(e) == Row::kSmall ? y + 4e-3 : y;
      }));
      EXPECT_TRUE(!fine || seen([](double y, std::size_t e) {
        return kind_of_row(e) == Row::kZero ? 1e-3 : y;
      }));
    }
  }
}

}  // namespace
}  // namespace pleat::compress
