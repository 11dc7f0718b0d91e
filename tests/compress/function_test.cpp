// Activations recomputed from restored arguments, against the C library's erf, tanh and exp in
// double.
#include "compress/functions/functions.h"
#include "tests/compress/support.h"

namespace pleat::compress::test {
namespace {

constexpr Function kFunctions[] = {Function::kGelu, Function::kGeluTanh, Function::kSilu};

const char* name_of(Function function) {
  const char* const names[] = {"none", "gelu", "gelu tanh", "silu"};
  return names[static_cast<int>(function)];
}

double reference(Function function, double x) {
  switch (function) {
    case Function::kGelu:
      return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    case Function::kGeluTanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    default:
      return x / (1 + std::exp(-x));
  }
}

// What a stored result of this type may be off by its own rounding.
double rounding(ElementType type) {
  return type == ElementType::kFloat32    ? 0
         : type == ElementType::kBFloat16 ? 1.0 / 256
                                          : 1.0 / 2048;
}

Bytes gaussian(ElementType type, std::size_t elements, double scale, std::uint64_t stream) {
  std::mt19937_64 random(seed() + stream);
  std::normal_distribution<double> normal;
  Bytes source(elements * element_size(type));
  for (std::size_t e = 0; e < elements; ++e)
    set_value(type, source.data(), e, scale * normal(random));
  return source;
}

Encoded encoded(const Bytes& source, ElementType type, unsigned bits, std::uint64_t nonce) {
  const std::size_t elements = source.size() / element_size(type);
  return encode_span(source.data(), elements, type, bits, nonce);
}

Bytes yielded(const Encoded& from, std::size_t bytes, Function function,
              const Executor& executor = serial_executor()) {
  Bytes target(bytes);
  EXPECT_EQ(decode_function(from.payload.data(), from.payload.size(), target.data(), bytes,
                            function, executor),
            Status::kOk);
  EXPECT_TRUE(target.guard_intact());
  return target;
}

TEST(Functions, OfExactArgumentsAreTheLibrarys) {
  for (const Path& path : paths()) {
    const UsePath use(path);
    for (const ElementType type : kFloatTypes) {
      for (const Function function : kFunctions) {
        SCOPED_TRACE(path.name + " " + test::name_of(type) + " " + name_of(function));
        constexpr std::size_t kElements = 70000;
        Bytes source(kElements * element_size(type));
        for (std::size_t e = 0; e < kElements; ++e)
          set_value(type, source.data(), e, (double(e) - 35000) / 2500);  // -14 to 14
        const Bytes result = yielded(encoded(source, type, 0, 1), source.size(), function);
        for (std::size_t e = 0; e < kElements; ++e) {
          const double x = value_at(type, source.data(), e);
          const double y = reference(function, x);
          ASSERT_NEAR(value_at(type, result.data(), e), y,
                      2e-6 * (1 + std::fabs(x)) + rounding(type) * std::fabs(y) + 6e-8)
              << x;
        }
      }
    }
  }
}

TEST(Functions, OfNoisyArgumentsStayWithinTheirSlopeTimesTheStep) {
  for (const Path& path : paths()) {
    const UsePath use(path);
    for (const ElementType type : kFloatTypes) {
      for (const Function function : kFunctions) {
        for (const unsigned bits : {2u, 3u, 4u, 6u, 8u}) {
          SCOPED_TRACE(path.name + " " + test::name_of(type) + " " + name_of(function) + " " +
                       std::to_string(bits));
          constexpr std::size_t kElements = 64 * 256 + 77;
          const Bytes source = gaussian(type, kElements, 1.5, 2);
          const Bytes result = yielded(encoded(source, type, bits, 3), source.size(), function);
          for (std::size_t g = 0; g < kElements; g += 256) {
            const std::size_t end = std::min(g + 256, kElements);
            double low = 1e9, high = -1e9;
            for (std::size_t e = g; e < end; ++e) {
              low = std::min(low, value_at(type, source.data(), e));
              high = std::max(high, value_at(type, source.data(), e));
            }
            const double step = (high - low) / double((1u << bits) - 1);
            for (std::size_t e = g; e < end; ++e) {
              const double y = reference(function, value_at(type, source.data(), e));
              // Both GELUs rise by 1.13 at most, their second derivative is 0.8 at most.
              ASSERT_NEAR(value_at(type, result.data(), e), y,
                          1.14 * step + 0.8 * step * step / 24 + 3e-4 +
                              rounding(type) * (1 + 2 * std::fabs(high - low)));
            }
          }
        }
      }
    }
  }
}

// What noise uniform over a step makes of the function's mean: Simpson's rule.
double mean_error(Function function, double x, double step) {
  constexpr int kParts = 16;
  double sum = 0;
  for (int i = 0; i <= kParts; ++i)
    sum += (i == 0 || i == kParts ? 1
            : i % 2 != 0          ? 4
                                  : 2) *
           reference(function, x + step * (double(i) / kParts - 0.5));
  return sum / (3 * kParts) - reference(function, x);
}

// The mean over many nonces, wherever the argument is: the noise goes, its effect through the
// curvature would stay. Signs differ: a sum over all arguments would hide what is left.
TEST(Functions, TakeOffTheMeanErrorThatNoiseMakes) {
  for (const Function function : kFunctions) {
    for (const unsigned bits : {2u, 4u}) {
      SCOPED_TRACE(std::string(name_of(function)) + " " + std::to_string(bits));
      constexpr std::size_t kElements = 256 * 64, kBins = 16;
      const double reach = bits == 2 ? 2.5 : 4;
      const double step = 2 * reach / double((1u << bits) - 1);
      std::mt19937_64 random(seed() + 4);
      std::uniform_real_distribution<double> within(0.1, 0.9);
      Bytes source(kElements * sizeof(float));
      auto* const x = source.as<float>();
      for (std::size_t e = 0; e < kElements; ++e) {
        const std::size_t place = e % 256;
        const double part = place == 0 ? 0 : place == 255 ? 256 : double(place) + within(random);
        x[e] = float(reach * (part / 128 - 1));  // every group from -reach to reach
      }
      std::vector<double> expected(kElements), off(kBins), uncorrected(kBins);
      const auto bin = [&](std::size_t e) { return e % 256 * kBins / 256; };
      for (std::size_t e = 0; e < kElements; ++e) {
        expected[e] = reference(function, x[e]);
        uncorrected[bin(e)] += mean_error(function, x[e], step) / double(kElements / kBins);
      }
      constexpr int kNonces = 1000;
      for (int nonce = 0; nonce < kNonces; ++nonce) {
        Bytes result = yielded(encoded(source, ElementType::kFloat32, bits, 100 + nonce),
                               source.size(), function);
        for (std::size_t e = 0; e < kElements; ++e)
          off[bin(e)] +=
              (result.as<float>()[e] - expected[e]) / (double(kElements / kBins) * kNonces);
      }
      double largest = 0;
      for (const double mean : uncorrected) largest = std::max(largest, std::fabs(mean));
      EXPECT_GT(largest, bits == 2 ? 4e-2 : 4e-3);  // or there is nothing to take off
      for (std::size_t i = 0; i < kBins; ++i) {
        EXPECT_LT(std::fabs(off[i]), 0.2 * largest) << "bin " << i;
      }
    }
  }
}

TEST(Functions, AreTheSameOnEveryPathHoweverTheWorkIsSplit) {
  for (const ElementType type : kFloatTypes) {
    const Bytes source = mixed(type, 40 * 16384 / 8 + 5, 5);
    for (const unsigned bits : {0u, 2u, 4u, 8u}) {
      for (const Function function : kFunctions) {
        SCOPED_TRACE(std::string(test::name_of(type)) + " " + std::to_string(bits) + " " +
                     name_of(function));
        const Encoded from = encoded(source, type, bits, 6);
        if (from.status != Status::kOk) continue;
        const UsePath scalar(paths().front());
        const Bytes expected = yielded(from, source.size(), function);
        for (const Path& path : paths()) {
          const UsePath use(path);
          for (const Executor& executor :
               {serial_executor(), thread_executor(3), backwards_executor()}) {
            const Bytes result = yielded(from, source.size(), function, executor);
            for (std::size_t e = 0; e < source.size() / element_size(type); ++e) {
              const double a = value_at(type, result.data(), e);
              const double b = value_at(type, expected.data(), e);
              ASSERT_TRUE(a == b || (std::isnan(a) && std::isnan(b))) << path.name << " " << e;
            }
          }
        }
      }
    }
  }
}

TEST(Functions, OfZeroNanAndInfinityAreTorchs) {
  Bytes source(256 * 4 * sizeof(float));
  auto* const x = source.as<float>();
  std::fill_n(x, 256, 0.0f);
  for (std::size_t e = 256; e < 1024; ++e) x[e] = e % 2 == 0 ? 1.5f : -0.5f;
  x[300] = std::nanf("");
  x[301] = INFINITY;
  x[302] = -INFINITY;
  for (const Function function : kFunctions) {
    const Bytes result =
        yielded(encoded(source, ElementType::kFloat32, 4, 7), source.size(), function);
    const auto at = [&](std::size_t e) {
      return value_at(ElementType::kFloat32, result.data(), e);
    };
    for (std::size_t e = 0; e < 256; ++e) ASSERT_EQ(at(e), 0) << "a row of zeros";
    EXPECT_TRUE(std::isnan(at(300)));
    EXPECT_EQ(at(301), INFINITY);
    EXPECT_TRUE(std::isnan(at(302)));  // -inf * 0
  }
}

TEST(Functions, RefuseWhatIsNoFloatOrNoPayload) {
  std::vector<std::int32_t> integers(1024, 3);
  integers[5] = 4;
  const Encoded from = encode_span(integers.data(), integers.size(), ElementType::kInt32, 0, 8);
  Bytes target(4096);
  EXPECT_EQ(decode_function(from.payload.data(), from.payload.size(), target.data(), 4096,
                            Function::kGelu, serial_executor()),
            Status::kCorrupt);
  const Bytes source = gaussian(ElementType::kFloat32, 1024, 1, 9);
  Encoded floats = encoded(source, ElementType::kFloat32, 4, 10);
  EXPECT_EQ(decode_function(floats.payload.data(), floats.payload.size(), target.data(), 4092,
                            Function::kGelu, serial_executor()),
            Status::kCorrupt);
  EXPECT_EQ(decode_function(floats.payload.data(), 63, target.data(), 4096, Function::kGelu,
                            serial_executor()),
            Status::kCorrupt);
  floats.payload.data()[0] ^= 1;
  EXPECT_EQ(decode_function(floats.payload.data(), floats.payload.size(), target.data(), 4096,
                            Function::kGelu, serial_executor()),
            Status::kCorrupt);
}

TEST(Functions, ResultsThatWereChangedAreSeen) {
  for (const ElementType type : kFloatTypes) {
    for (const Function function : kFunctions) {
      for (const unsigned bits : {1u, 2u, 4u, 8u}) {
        SCOPED_TRACE(std::string(test::name_of(type)) + " " + name_of(function) + " " +
                     std::to_string(bits));
        constexpr std::size_t kElements = 200 * 256 + 9;
        // No group of 256 is ten standard deviations wide: a step above 2 would be refused.
        const Bytes source = gaussian(type, kElements, 0.2, 11);
        const Encoded from = encoded(source, type, bits, 12);
        std::vector<double> largest(kElements / 256 + 1, -1e9);
        for (std::size_t e = 0; e < kElements; ++e)
          largest[e / 256] =
              std::max(largest[e / 256], reference(function, value_at(type, source.data(), e)));
        const auto results = [&](const std::function<double(double, std::size_t)>& change) {
          Bytes y(source.size());
          for (std::size_t e = 0; e < kElements; ++e)
            set_value(type, y.data(), e,
                      change(reference(function, value_at(type, source.data(), e)), e));
          return y;
        };
        const auto seen = [&](const Bytes& y) {
          return !may_be_result(from.payload.data(), from.payload.size(), function, y.data());
        };
        EXPECT_FALSE(seen(results([](double y, std::size_t) { return y; })));
        EXPECT_TRUE(seen(results([](double y, std::size_t) { return 1.25 * y; })));
        EXPECT_TRUE(seen(results([](double y, std::size_t e) { return e % 2 == 0 ? y : 0; })));
        // No group's largest is written: every other element below it, what is below zero.
        EXPECT_TRUE(seen(results(
            [&](double y, std::size_t e) { return e % 2 == 0 && y < largest[e / 256] ? 0 : y; })));
        EXPECT_TRUE(seen(results([&](double y, std::size_t e) {
          return e % 2 == 0 && y < largest[e / 256] ? y + 0.1 : y;
        })));
        EXPECT_TRUE(seen(results([](double y, std::size_t) { return y < 0 ? 0 : y; })));
        EXPECT_TRUE(seen(results([](double, std::size_t) { return 0.0; })));
        EXPECT_TRUE(seen(results([](double, std::size_t) { return std::nan(""); })));
      }
    }
  }
}

// Results of which their own payload would be much finer than what comes of the argument's.
TEST(Functions, ArgumentsWithStepsTooWideAreRefused) {
  constexpr std::size_t kElements = 64 * 256;
  const auto usable = [&](double scale, double outlier, unsigned bits) {
    Bytes source = gaussian(ElementType::kFloat32, kElements, scale, 13);
    for (std::size_t e = 0; e < kElements; e += 256)
      source.as<float>()[e + e / 256] = float(outlier);
    Bytes results(source.size());
    for (std::size_t e = 0; e < kElements; ++e)
      results.as<float>()[e] = float(reference(Function::kGelu, source.as<float>()[e]));
    const Encoded from = encoded(source, ElementType::kFloat32, bits, 14);
    return may_be_result(from.payload.data(), from.payload.size(), Function::kGelu, results.data());
  };
  EXPECT_TRUE(usable(1, 0, 4));
  EXPECT_TRUE(usable(1, -4, 4));
  EXPECT_TRUE(usable(1, 8, 4));  // as wide a range of results
  EXPECT_FALSE(usable(1, -15, 4));
  EXPECT_FALSE(usable(1, -50, 4));
  EXPECT_FALSE(usable(1, -1e4, 8));
  EXPECT_FALSE(usable(1, 0, 1));  // a step of six
}

// 250 rows of a layer that is 3072 wide, twelve groups: looks at a fixed distance, which shares a
// factor with twelve, never come to most places of a row.
constexpr std::size_t kRows = 250, kWidth = 3072;

// The function of exact arguments, by the library's own loops: other tests hold these to torch's.
Bytes results_of(const Bytes& arguments, Function function) {
  Bytes results(arguments.size());
  std::memcpy(results.data(), arguments.data(), arguments.size());
  apply_function(results.data(), arguments.size() / sizeof(float), ElementType::kFloat32, function,
                 serial_executor());
  return results;
}

TEST(Functions, AUnitFarBelowZeroIsSeenWhereverItIs) {
  Bytes source = gaussian(ElementType::kFloat32, kRows * kWidth, 1, 17);
  const auto usable = [&](Function function) {
    const Encoded from = encoded(source, ElementType::kFloat32, 4, 18);
    return may_be_result(from.payload.data(), from.payload.size(), function,
                         results_of(source, function).data());
  };
  const auto move = [&](std::size_t unit, float by) {
    for (std::size_t r = 0; r < kRows; ++r) source.as<float>()[r * kWidth + unit] += by;
  };
  for (const Function function : kFunctions) {
    EXPECT_TRUE(usable(function)) << name_of(function);
    for (std::size_t dead = 7; dead < kWidth; dead += 256) {
      move(dead, -100);
      EXPECT_FALSE(usable(function)) << name_of(function) << ", unit " << dead;
      move(dead, 100);
    }
  }
}

TEST(Functions, EveryPlaceOfARowIsLookedAtSometime) {
  const Bytes source = gaussian(ElementType::kFloat32, kRows * kWidth, 1, 19);
  Bytes sound = results_of(source, Function::kGelu);
  Bytes written = results_of(source, Function::kGelu);
  constexpr std::size_t kPlaces = kWidth / 256;
  std::vector<int> seen(kPlaces);
  for (std::uint64_t nonce = 0; nonce < 20; ++nonce) {
    const Encoded from = encoded(source, ElementType::kFloat32, 4, nonce);
    const auto usable = [&](const Bytes& results) {
      return may_be_result(from.payload.data(), from.payload.size(), Function::kGelu,
                           results.data());
    };
    EXPECT_TRUE(usable(sound));
    for (std::size_t place = 0; place < kPlaces; ++place) {
      for (std::size_t r = 0; r < kRows; ++r)
        std::fill_n(written.as<float>() + r * kWidth + place * 256, 256, 0.0f);
      seen[place] += usable(written) ? 0 : 1;
      for (std::size_t r = 0; r < kRows; ++r)
        std::copy_n(sound.as<float>() + r * kWidth + place * 256, 256,
                    written.as<float>() + r * kWidth + place * 256);
    }
  }
  // Sixteen looks come to one of twelve places three times of four.
  for (std::size_t place = 0; place < kPlaces; ++place) EXPECT_GE(seen[place], 8) << place;
}

// Zeros and equal elements make blocks of a payload shorter: groups of it are found all the same.
TEST(Functions, ResultsAreComparedInCompactedPayloadsToo) {
  for (const ElementType type : kFloatTypes) {
    SCOPED_TRACE(test::name_of(type));
    constexpr std::size_t kElements = 200 * 256 + 9;
    Bytes source = gaussian(type, kElements, 0.2, 20);
    for (std::size_t e = 0; e < kElements; ++e) {
      const std::size_t kind = e / 256 % 4;
      const double x = value_at(type, source.data(), e);
      if (kind == 1) set_value(type, source.data(), e, 0.5);
      if (kind == 2) set_value(type, source.data(), e, x > 0 ? 0.75 : -0.25);
      if (kind == 3) set_value(type, source.data(), e, std::max(x, 0.0));
    }
    const Encoded from = encoded(source, type, 4, 21);
    ASSERT_LT(from.payload.size(), kElements * 3 / 8);
    const auto usable = [&](std::size_t written) {
      Bytes y(source.size());
      for (std::size_t e = 0; e < kElements; ++e)
        set_value(type, y.data(), e,
                  e / 256 % 4 == written
                      ? 1.5
                      : reference(Function::kGelu, value_at(type, source.data(), e)));
      return may_be_result(from.payload.data(), from.payload.size(), Function::kGelu, y.data());
    };
    EXPECT_TRUE(usable(4));
    for (std::size_t written = 0; written < 4; ++written) EXPECT_FALSE(usable(written)) << written;
  }
}

// Under the sanitizers: a payload that is damaged leads nowhere outside it.
TEST(Functions, ResultsAreNotSoughtOutsideADamagedPayload) {
  std::mt19937_64 random(seed() + 22);
  constexpr std::size_t kElements = 200 * 256 + 9;
  for (const bool zeros : {false, true}) {  // a compacted one, and one that is not
    Bytes source = gaussian(ElementType::kFloat32, kElements, 0.2, 23);
    for (std::size_t e = 0; zeros && e < kElements; ++e)
      source.as<float>()[e] = std::max(source.as<float>()[e], 0.0f);
    const Bytes results = results_of(source, Function::kGelu);
    const Encoded from = encoded(source, ElementType::kFloat32, 4, 24);
    const auto usable = [&](const std::vector<unsigned char>& payload) {
      Bytes exact(payload.size());  // its end is guarded
      std::copy(payload.begin(), payload.end(), exact.data());
      return may_be_result(exact.data(), exact.size(), Function::kGelu, results.data());
    };
    EXPECT_TRUE(usable(from.payload));
    for (std::size_t size = 0; size < from.payload.size(); size += 1 + size / 16) {
      EXPECT_FALSE(usable({from.payload.begin(), from.payload.begin() + long(size)})) << size;
    }
    for (int i = 0; i < 3000; ++i) {
      auto damaged = from.payload;
      // The header, the metadata, anywhere: offsets lie at the end.
      const std::size_t within = i % 3 == 0 ? 64 : i % 3 == 1 ? 64 + 8 * 201 : damaged.size();
      const std::size_t at = i % 2 == 0 ? random() % within : damaged.size() - 1 - random() % 64;
      damaged[at] = static_cast<unsigned char>(random());
      static_cast<void>(usable(damaged));
    }
  }
}

// What cannot be compared is not taken for a result.
TEST(Functions, ArgumentsThatShowNothingAreRefused) {
  const auto usable = [&](double value, unsigned bits, std::size_t elements) {
    Bytes source = gaussian(ElementType::kFloat32, elements, 0.1, 15);
    for (std::size_t e = 0; e < elements; ++e) source.as<float>()[e] += float(value);
    Bytes results(source.size());
    for (std::size_t e = 0; e < elements; ++e)
      results.as<float>()[e] = float(reference(Function::kGelu, source.as<float>()[e]));
    const Encoded from = encoded(source, ElementType::kFloat32, bits, 16);
    return may_be_result(from.payload.data(), from.payload.size(), Function::kGelu, results.data());
  };
  EXPECT_TRUE(usable(1, 4, 1024));
  EXPECT_FALSE(usable(-3, 4, 1024));  // no argument above zero
  EXPECT_FALSE(usable(1, 0, 1024));   // stored exactly
  EXPECT_FALSE(usable(1, 4, 255));    // no whole group
}

}  // namespace
}  // namespace pleat::compress::test
