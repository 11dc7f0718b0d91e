// Bugs planted in powers of two (planted_exponents.cmake): what must hold of any payload finds
// each.
#include "planted_exponent_names.h"
#include "tests/compress/support.h"

int planted_bug = 0;

namespace pleat::compress {
extern const Kernels kPlantedKernels;
}

namespace pleat::compress::test {
namespace {

constexpr std::uint32_t kRow = 40;
constexpr std::size_t kElements = 3000;

// Rows of many sizes, some of zeros; some elements zeros; channel 7 is large.
Bytes values(std::mt19937_64& random) {
  std::normal_distribution<double> normal;
  constexpr double kSizes[] = {1, 0.1, 0.01, 1e-3, 0};
  Bytes source(kElements * 4);
  double size = 1;
  for (std::size_t e = 0; e < kElements; ++e) {
    if (e % kRow == 0) size = kSizes[random() % std::size(kSizes)];
    const double x = random() % 20 == 0 ? 0 : normal(random);
    set_value(ElementType::kFloat32, source.data(), e, x * size * (e % kRow == 7 ? 30 : 1));
  }
  return source;
}

// Empty if rows of zeros are exact, and with `zeros` all zeros, and no element is off by more than
// half a step. A step is at most a fourteenth of its group's range, and the largest of each part at
// least an eighth of the range, channels brought to one size.
std::string wrong(const Bytes& source, bool has_table, bool zeros) {
  std::vector<std::int8_t> table(kRow);
  table[7] = -5;
  CodecSpec spec{.bits = 4, .compact = false, .zeros = zeros, .exponents = {.row = kRow}};
  if (has_table) spec.exponents = {kRow, kRow, 1, table.data()};
  Bytes payload(payload_bound(spec, ElementType::kFloat32, kElements)), back(source.size());
  const EncodeResult coded = encode({source.data(), kElements, ElementType::kFloat32}, spec, 7,
                                    payload.data(), payload.size(), serial_executor(), nullptr);
  if (coded.status != Status::kOk) return "it is not coded";
  if (decode(payload.data(), coded.payload_bytes, back.data(), back.size(), serial_executor()) !=
      Status::kOk)
    return "it does not come back";
  for (std::size_t row = 0; row < kElements; row += kRow) {
    double largest = 0;
    const auto scaled = [&](const Bytes& of, std::size_t e) {
      return std::ldexp(value_at(ElementType::kFloat32, of.data(), e),
                        has_table ? table[e % kRow] : 0);
    };
    for (std::size_t e = row; e < row + kRow; ++e)
      largest = std::max(largest, std::fabs(scaled(source, e)));
    for (std::size_t e = row; e < row + kRow; ++e) {
      const double error = std::fabs(scaled(source, e) - scaled(back, e));
      if (!(error <= (zeros && scaled(source, e) == 0 ? 0 : 8.1 / 28 * largest)))
        return "element " + std::to_string(e) + " is off by " + std::to_string(error);
    }
  }
  return {};
}

TEST(PlantedExponents, EachIsFound) {
  std::mt19937_64 random(seed());
  const UsePath planted({"planted", &kPlantedKernels});
  for (planted_bug = 0; planted_bug < static_cast<int>(std::size(kPlantedExponents));
       ++planted_bug) {
    std::string found;
    for (int i = 0; i < 20 && found.empty(); ++i) {
      const Bytes source = values(random);
      found = wrong(source, i % 2 != 0, i % 4 < 2);
    }
    EXPECT_EQ(found.empty(), planted_bug == 0) << kPlantedExponents[planted_bug] << ": " << found;
  }
  planted_bug = 0;
}

}  // namespace
}  // namespace pleat::compress::test
