// The noise of rows and channels with exponents, and the elements that have none.
#include "tests/compress/exponent_support.h"

namespace pleat::compress::test {
namespace {

using Buffer = std::vector<unsigned char>;

// The noise of elements for which `chosen(e)`, over their root mean square.
template <class Chosen>
double noise_of(ElementType type, const Bytes& source, const Buffer& restored,
                const Chosen& chosen) {
  double error = 0, energy = 0;
  for (std::size_t e = 0; e < source.size() / element_size(type); ++e) {
    if (!chosen(e)) continue;
    const double x = value_at(type, source.data(), e);
    error += std::pow(value_at(type, restored.data(), e) - x, 2);
    energy += x * x;
  }
  return std::sqrt(error / energy);
}

// A part's exponent is whole, so a small row may have twice the noise of a large one.
TEST(ExponentNoise, RowsOfEverySizeHaveTheNoiseOfRowsAlike) {
  std::mt19937_64 random(seed());
  const double sizes[] = {1, 0.1, 0.01, 0.001, 0};
  for (const ElementType type : {ElementType::kFloat32, ElementType::kBFloat16}) {
    for (const std::size_t row : {24, 64, 128, 192, 300, 320, 768, 1152}) {
      const std::size_t rows = (1 << 16) / row, elements = rows * row;
      std::vector<unsigned> size_of(rows);
      for (auto& which : size_of) which = random() % 3 == 0 ? 1 + random() % 4 : 0;
      for (unsigned which = 1; which <= 4; ++which) size_of[3 * which] = which;
      std::normal_distribution<double> normal;
      const auto normals = make(type, elements, [&](std::size_t) { return normal(random); });
      const Bytes source = make(type, elements, [&](std::size_t e) {
        return value_at(type, normals.data(), e) * sizes[size_of[e / row]];
      });
      const CodecSpec spec = spec_of(4, {row, 1, {}});
      const double alike = noise_of(type, normals, round_trip(normals, type, spec_of(4, {})),
                                    [](std::size_t) { return true; });
      const Buffer restored = round_trip(source, type, spec);
      const Buffer without = round_trip(source, type, spec_of(4, {}));
      for (unsigned which = 0; which < 4; ++which) {
        const auto chosen = [&](std::size_t e) { return size_of[e / row] == which; };
        EXPECT_LT(noise_of(type, source, restored, chosen), (which == 0 ? 1.05 : 2.0) * alike)
            << name_of(type) << " row " << row << " size " << sizes[which];
        // Of rows that share groups with others.
        if (which >= 2 && row <= 320) {
          EXPECT_GT(noise_of(type, source, without, chosen), 2.5 * alike) << row;
        }
      }
      for (std::size_t e = 0; e < elements; ++e)
        if (size_of[e / row] == 4) {
          ASSERT_EQ(value_at(type, restored.data(), e), 0);
        }
    }
  }
}

TEST(ExponentNoise, ChannelsOfEverySizeHaveTheNoiseOfChannelsAlike) {
  std::mt19937_64 random(seed());
  struct Layout {
    std::size_t row, channels, inner;
  };
  for (const Layout& layout :
       {Layout{1024, 1024, 1}, Layout{192, 192, 1}, Layout{49 * 64, 64, 49}}) {
    const std::size_t elements = layout.row * ((1 << 17) / layout.row);
    ReferenceExponents exponents{layout.row, layout.inner, {}};
    exponents.table.resize(layout.channels);
    std::vector<bool> large(layout.channels);
    for (std::size_t c = 5; c < layout.channels; c += 37) exponents.table[c] = -5, large[c] = true;
    std::normal_distribution<double> normal;
    const auto of = [&](std::size_t e) { return e / layout.inner % layout.channels; };
    const Bytes source = make(ElementType::kFloat32, elements, [&](std::size_t e) {
      return normal(random) * (large[of(e)] ? 32 : 1);
    });
    const Bytes alike =
        make(ElementType::kFloat32, elements, [&](std::size_t) { return normal(random); });
    const double bar = noise_of(ElementType::kFloat32, alike,
                                round_trip(alike, ElementType::kFloat32, spec_of(4, {})),
                                [](std::size_t) { return true; });
    const Buffer restored = round_trip(source, ElementType::kFloat32, spec_of(4, exponents));
    const Buffer without = round_trip(source, ElementType::kFloat32, spec_of(4, {}));
    for (const bool which : {false, true}) {
      const auto chosen = [&](std::size_t e) { return large[of(e)] == which; };
      EXPECT_LT(noise_of(ElementType::kFloat32, source, restored, chosen), 1.3 * bar)
          << layout.row << " " << which;
    }
    EXPECT_GT(noise_of(ElementType::kFloat32, source, without,
                       [&](std::size_t e) { return !large[of(e)]; }),
              5 * bar);
    // The table is about ratios: data 2^20 times as large have the same codes.
    const Bytes grown = make(ElementType::kFloat32, elements, [&](std::size_t e) {
      return std::ldexp(value_at(ElementType::kFloat32, source.data(), e), 20);
    });
    const Buffer back = round_trip(grown, ElementType::kFloat32, spec_of(4, exponents));
    for (std::size_t e = 0; e < elements; ++e)
      ASSERT_EQ(value_at(ElementType::kFloat32, back.data(), e),
                std::ldexp(value_at(ElementType::kFloat32, restored.data(), e), 20));
  }
}

// Channels that were large once, and are no more, or only in a few rows: the table is of no use in
// other rows, and does no harm there.
TEST(ExponentNoise, ATableCostsNothingWhereItsChannelsAreNotLarge) {
  std::mt19937_64 random(seed());
  std::normal_distribution<double> normal;
  const std::size_t row = 300, elements = row * 400;
  for (const ElementType type : kFloatTypes) {
    ReferenceExponents exponents{row, 1, std::vector<std::int8_t>(row)};
    for (std::size_t c = 5; c < row; c += 20) exponents.table[c] = -int(1 + random() % 6);
    exponents.table[33] = -2;
    for (std::size_t c = 7; c < row; c += 3) exponents.table[c] = -4;  // and small ones
    const Bytes source = make(type, elements, [&](std::size_t e) {
      return normal(random) * (e % row == 33 && e / row % 20 == 0 ? 4 : 1);
    });
    const Buffer with = round_trip(source, type, spec_of(4, exponents));
    const Buffer without = round_trip(source, type, spec_of(4, {row, 1, {}}));
    const auto in_most = [&](std::size_t e) { return e / row % 20 > 1 && e / row % 20 < 19; };
    EXPECT_LT(noise_of(type, source, with, in_most),
              1.02 * noise_of(type, source, without, in_most))
        << name_of(type);
  }
}

TEST(ExponentNoise, AnyTableIsUnbiased) {
  std::mt19937_64 random(seed());
  const std::size_t row = 40, elements = 600;
  const int trials = 600;
  for (const bool zeros : {false, true}) {
    ReferenceExponents exponents{row, 1, random_table(row, random)};
    std::normal_distribution<double> normal;
    const Bytes source = make(ElementType::kFloat32, elements, [&](std::size_t e) {
      return e % 11 == 0 ? 0.0 : normal(random) * std::pow(10, -double(e / row % 4));
    });
    CodecSpec spec = spec_of(3, exponents);
    spec.zeros = zeros;
    const Raised raised =
        raise_elements(ElementType::kFloat32, source.data(), elements, exponents, false, zeros);
    std::vector<int> up;  // the exponent of each element
    for (std::size_t part = 0; const std::size_t end : part_ends(row, elements)) {
      ASSERT_GE(raised.parts[part], 0);
      for (std::size_t e = up.size(); e < end; ++e)
        up.push_back(std::max(0, raised.parts[part] + exponents.of_channel(e)));
      ++part;
    }
    std::vector<double> sum(elements);
    for (int trial = 0; trial < trials; ++trial) {
      const Buffer restored = round_trip(source, ElementType::kFloat32, spec, random());
      for (std::size_t e = 0; e < elements; ++e)
        sum[e] += value_at(ElementType::kFloat32, restored.data(), e);
    }
    for (std::size_t from = 0; from < elements; from += 256) {
      const std::size_t to = std::min(from + 256, elements);
      double low = INFINITY, high = -INFINITY;
      for (std::size_t e = from; e < to; ++e) {
        const double y = value_at(ElementType::kFloat32, raised.elements.data(), e);
        low = std::min(low, y), high = std::max(high, y);
      }
      const double step = (high - low) / (zeros ? 6 : 7);
      for (std::size_t e = from; e < to; ++e) {
        const double x = value_at(ElementType::kFloat32, source.data(), e);
        if (zeros && x == 0) {
          EXPECT_EQ(sum[e], 0);
          continue;
        }
        // Six deviations of a mean of dithered values, and the rounding of n.
        EXPECT_LT(std::ldexp(std::fabs(sum[e] / trials - x), up[e]),
                  step * (6 * 0.289 / std::sqrt(trials) + 1.0 / 512))
            << e << " " << x;
      }
    }
  }
}

TEST(ExponentNoise, ZerosAreExact) {
  std::mt19937_64 random(seed());
  std::normal_distribution<double> normal;
  for (const Path& path : paths()) {
    const UsePath use(path);
    for (const ElementType type : kFloatTypes) {
      for (const unsigned bits : kWidths) {
        const std::size_t row = 48, elements = 48 * 61;
        const double sign = random() % 3 == 0 ? 0 : random() % 2 == 0 ? 1 : -1;  // 0: both
        const Bytes source = make(type, elements, [&](std::size_t e) {
          const double x = normal(random);
          if (e / row % 4 == 1) return e % 2 == 0 ? 0.0 : -0.0;
          return e % 9 == 0 ? 0.0 : sign == 0 ? x : sign * std::fabs(x) + sign;
        });
        for (const bool zeros : {false, true}) {
          for (const Transform transform : {Transform::kNone, Transform::kHadamard}) {
            CodecSpec spec = spec_of(bits, {row, 1, {}});
            spec.zeros = zeros;
            spec.transform = transform;
            const Buffer restored = round_trip(source, type, spec);
            const bool every = zeros && bits >= 2 && transform == Transform::kNone && sign == 0;
            for (std::size_t e = 0; e < elements; ++e) {
              std::uint32_t word = 0;
              std::memcpy(&word, &restored[e * element_size(type)], element_size(type));
              if (e / row % 4 == 1) {
                ASSERT_EQ(word, 0u) << path.name << " " << name_of(type) << bits;
              } else if (every && value_at(type, source.data(), e) == 0) {
                ASSERT_EQ(word, 0u) << path.name << " " << name_of(type) << bits;
              }
            }
          }
        }
      }
    }
  }
}

TEST(ExponentNoise, NansAndInfinitiesStayInTheirPart) {
  std::mt19937_64 random(seed());
  std::normal_distribution<double> normal;
  const std::size_t row = 64, elements = 64 * 40;
  for (const Path& path : paths()) {
    const UsePath use(path);
    for (const ElementType type : kFloatTypes) {
      for (const unsigned bits : {3u, 4u, 8u}) {
        const Bytes source = make(type, elements, [&](std::size_t e) {
          const std::size_t r = e / row;
          if (r % 5 == 2) return e % 3 == 0 ? INFINITY : e % 3 == 1 ? -INFINITY : double(NAN);
          if (r % 5 == 3 && e % 20 == 0) return e % 40 == 0 ? -INFINITY : double(NAN);
          return normal(random) * (r % 5 == 4 ? 1e-3 : 1);
        });
        const Buffer restored = round_trip(source, type, spec_of(bits, {row, 1, {}}));
        for (std::size_t e = 0; e < elements; ++e) {
          const double x = value_at(type, source.data(), e), y = value_at(type, restored.data(), e);
          if (std::isnan(x)) {
            ASSERT_TRUE(std::isnan(y));
          } else if (std::isinf(x)) {
            ASSERT_EQ(x, y);
          } else {
            ASSERT_LT(std::fabs(y - x), e / row % 5 == 4 ? 6e-3 : 6.0) << path.name;
          }
        }
      }
    }
  }
}

// The largest values of a type and its smallest, in one group.
TEST(ExponentNoise, ValuesStayWithinTheType) {
  const std::size_t row = 32, elements = 32 * 33;
  for (const Path& path : paths()) {
    const UsePath use(path);
    for (const ElementType type : kFloatTypes) {
      const double largest = type == ElementType::kFloat16 ? 65504
                             : type == ElementType::kBFloat16
                                 ? Element<ElementType::kBFloat16>::kLargest
                                 : Element<ElementType::kFloat32>::kLargest;
      const double smallest = std::ldexp(1, type == ElementType::kFloat16    ? -24
                                            : type == ElementType::kBFloat16 ? -133
                                                                             : -149);
      const Bytes source = make(type, elements, [&](std::size_t e) {
        const double x = (e % 2 == 0 ? 1 : -1) * (1 - double(e % 29) / 40);
        switch (e / row % 4) {
          case 0:
            return largest * x;
          case 1:
            return smallest * double(int(e % 7) - 3);
          case 2:
            return largest / 1000 * x;
          default:
            return x;
        }
      });
      ReferenceExponents exponents{row, 1, std::vector<std::int8_t>(row)};
      exponents.table[0] = exponents.table[5] = -5;
      exponents.table[7] = -30;
      for (const bool table : {false, true}) {
        const ReferenceExponents used = table ? exponents : ReferenceExponents{row, 1, {}};
        const Buffer restored = round_trip(source, type, spec_of(4, used));
        for (std::size_t e = 0; e < elements; ++e) {
          const double x = value_at(type, source.data(), e), y = value_at(type, restored.data(), e);
          ASSERT_TRUE(std::isfinite(y)) << path.name << " " << name_of(type) << " " << e;
          // Twice the row's step, and half that of a subnormal number.
          const double size = e / row % 4 == 0   ? largest
                              : e / row % 4 == 1 ? 3 * smallest
                              : e / row % 4 == 2 ? largest / 1000
                                                 : 1;
          const double capped = type == ElementType::kFloat16 ? 0 : largest * std::ldexp(1, -120);
          if (!table) {
            ASSERT_LE(std::fabs(y - x), std::max(size * 0.6, capped) + smallest)
                << path.name << " " << name_of(type) << " " << e << " " << x << " " << y;
          }
        }
      }
    }
  }
}

TEST(ExponentNoise, ConstantAndTwoValuedGroupsAreExact) {
  for (const Path& path : paths()) {
    const UsePath use(path);
    for (const ElementType type : kFloatTypes) {
      for (const unsigned bits : kWidths) {
        const std::size_t row = 64, elements = 256 * 5;
        // Groups of equal rows; of two values in rows of their own; of rows that are equal once
        // they are raised; of rows of zeros and a constant.
        for (unsigned kind = 0; kind < 4; ++kind) {
          const Bytes source = make(type, elements, [&](std::size_t e) {
            const auto r = e / row;
            return kind == 0   ? 3.0
                   : kind == 1 ? (r % 2 == 0 ? 0.001 : -0.0)
                   : kind == 2 ? std::ldexp(1.5, -3 * int(r % 4))
                               : double(r % 4 == 0 ? 0 : r % 4);
          });
          const Bytes single = make(type, elements, [&](std::size_t e) {
            return e % 100 == 0 ? 1.0 : value_at(type, source.data(), e);
          });
          ReferenceExponents exponents{row, 1, {}};
          for (const bool table : {false, true}) {
            if (table) exponents.table.assign(row, -1), exponents.table[0] = 0;
            if (table && kind >= 2) continue;
            const Buffer restored = round_trip(source, type, spec_of(bits, exponents));
            // Three and more sizes of constant rows have a noise of their own.
            if (kind != 3) {
              EXPECT_EQ(std::memcmp(restored.data(), source.data(), source.size()), 0)
                  << path.name << " " << name_of(type) << " " << bits << " kind " << kind;
            }
            for (std::size_t e = 0; e < elements; ++e)
              ASSERT_TRUE(std::isfinite(value_at(type, restored.data(), e)));
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace pleat::compress::test
