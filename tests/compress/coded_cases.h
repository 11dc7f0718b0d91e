// Values coded with exponents, with kept zeros, and rotated, to test width costs and artificial
// noise.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "tests/compress/support.h"

namespace pleat::compress::test {

struct CodedCase {
  static constexpr std::size_t kElements = 40 * 256 + 100, kRow = 100;

  std::string name;
  CodecSpec codec;
  Bytes data;
  std::vector<std::int8_t> table;  // of the codec

  [[nodiscard]] CodecSpec at(std::uint8_t bits) const {
    CodecSpec spec = codec;
    spec.bits = bits;
    spec.exponents.table = table.data();
    return spec;
  }
  // Of the row of an element: root mean square of the finite ones.
  [[nodiscard]] double size_of_row(ElementType type, std::size_t e) const {
    double sum = 0;
    for (std::size_t i = e / kRow * kRow; i < std::min(kElements, (e / kRow + 1) * kRow); ++i) {
      const double x = value_at(type, data.data(), i);
      sum += std::isfinite(x) ? x * x / kRow : 0;
    }
    return std::sqrt(sum);
  }
};

inline std::vector<CodedCase> coded_cases(ElementType type) {
  constexpr std::size_t kElements = CodedCase::kElements, kRow = CodedCase::kRow;
  std::mt19937_64 random(seed());
  std::normal_distribution<double> normal;
  const Exponents rows{kRow, 0, 1, nullptr};
  std::vector<CodedCase> cases;
  const auto add = [&](std::string name, CodecSpec codec, const auto& value,
                       std::vector<std::int8_t> table = {}) {
    Bytes data(kElements * element_size(type));
    for (std::size_t e = 0; e < kElements; ++e) set_value(type, data.data(), e, value(e));
    cases.push_back({std::move(name), codec, std::move(data), std::move(table)});
  };
  const auto small_rows = [&](std::size_t e) {
    const std::size_t row = e / kRow;
    return normal(random) * (row % 10 == 4 ? 0.01 : row % 10 == 7 ? 0 : row % 3 == 1 ? 0.2 : 1);
  };
  const auto tails = [&](std::size_t) { return normal(random) * normal(random); };
  const auto dropped = [&](std::size_t e) { return random() % 2 == 0 ? 0 : small_rows(e); };
  add("small rows", {.exponents = rows}, small_rows);
  add("small rows above zero", {.exponents = rows},
      [&](std::size_t e) { return std::max(small_rows(e), 0.0); });
  add("rows far from zero", {.exponents = rows},
      [&](std::size_t e) { return (100 + normal(random)) * (e / kRow % 3 == 0 ? 0.01 : 1); });
  add("even rows", {.exponents = {256 * 8, 0, 1, nullptr}}, small_rows);
  add("rows alike", {.exponents = rows}, [&](std::size_t) { return 1.5 + 0.01 * normal(random); });
  std::vector<std::int8_t> table(kRow, -4);
  for (std::size_t c = 0; c < 5; ++c) table[20 * c] = c == 2 ? 0 : -9;
  const auto channels = [&](std::size_t e) {
    return std::ldexp(normal(random), -4 - table[e % kRow]);
  };
  add("channels", {.exponents = {kRow, kRow, 1, nullptr}}, channels, table);
  add(
      "maps", {.exponents = {kRow * 7, kRow, 7, nullptr}},
      [&](std::size_t e) { return std::ldexp(normal(random), -4 - table[e / 7 % kRow]); }, table);
  add(
      "a table of zeros", {.exponents = {kRow, kRow, 1, nullptr}},
      [&](std::size_t) { return 1.5 + 0.01 * normal(random); }, std::vector<std::int8_t>(kRow));
  add("zeros", {.zeros = true},
      [&](std::size_t) { return random() % 3 == 0 ? normal(random) : 0; });
  add("zeros in small rows", {.zeros = true, .exponents = rows}, dropped);
  add("rotated", {.transform = Transform::kHadamard}, tails);
  add("rotated, above zero", {.transform = Transform::kHadamard},
      [&](std::size_t) { return std::max(normal(random), 0.0); });
  add("rotated and scaled", {.transform = Transform::kHadamardScaled}, tails);
  add("rotated small rows", {.transform = Transform::kHadamard, .exponents = rows}, small_rows);
  add("rotated channels",
      {.transform = Transform::kHadamard, .exponents = {kRow, kRow, 1, nullptr}}, channels, table);
  for (const Transform transform : {Transform::kNone, Transform::kHadamard})
    add(transform == Transform::kNone ? "not finite" : "rotated, not finite",
        {.transform = transform, .exponents = rows}, [&](std::size_t e) {
          return e % 2560 != 17 ? small_rows(e) : e % 5120 == 17 ? INFINITY : NAN;
        });
  return cases;
}

}  // namespace pleat::compress::test
