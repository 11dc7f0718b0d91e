#include "sensitivity/probe.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "sensitivity/key.h"

namespace pleat::sensitivity {
namespace {

constexpr double kFirstAmplitude = 0.5;
constexpr double kMostAtOnce = 2;          // that a later stage may raise an amplitude by
constexpr std::size_t kMostShuffled = 12;  // passes whose patterns are all listed: 2048

// The same on every platform, unlike the distributions of the standard library.
class Random {
 public:
  explicit Random(std::uint64_t seed) noexcept : state_(seed) {}
  [[nodiscard]] std::uint64_t next() noexcept { return mix(state_++); }

 private:
  std::uint64_t state_;
};

// All patterns of so many signs that begin with +1, shuffled (Fisher, Yates).
[[nodiscard]] std::vector<std::uint64_t> shuffled_patterns(std::size_t passes, Random& random) {
  std::vector<std::uint64_t> patterns(std::size_t{1} << (passes - 1));
  for (std::size_t i = 0; i < patterns.size(); ++i) {
    const std::size_t place = random.next() % (i + 1);
    patterns[i] = patterns[place];
    patterns[place] = i;
  }
  return patterns;
}

// Signs depend on `salt` too, so that two stages of one seed never repeat each other. Of many
// passes patterns are drawn: there they hardly ever repeat.
[[nodiscard]] std::vector<std::int8_t> random_signs(std::size_t units, std::size_t passes,
                                                    std::uint64_t seed, std::uint64_t salt) {
  Random random(mix(seed ^ mix(salt)));
  std::vector<std::int8_t> signs(units * passes);
  std::vector<std::uint64_t> patterns;
  for (std::size_t unit = 0; unit < units && passes > 0; ++unit) {
    if (patterns.empty() && passes <= kMostShuffled) {
      patterns = shuffled_patterns(passes, random);
    }
    const std::uint64_t drawn = random.next();
    std::uint64_t pattern = drawn;
    if (!patterns.empty()) {
      const std::uint64_t all = drawn % 2 == 0 ? 0 : ~std::uint64_t{0};
      pattern = (patterns.back() << 1) ^ all;
      patterns.pop_back();
    }
    for (std::size_t pass = 0; pass < passes; ++pass) {
      if (pass > 0 && pass % 64 == 0) {
        pattern = random.next();
      }
      signs[pass * units + unit] = (pattern >> (pass % 64) & 1U) == 0 ? 1 : -1;
    }
  }
  return signs;
}

[[nodiscard]] double median_of_positive(std::span<const double> energies) {
  std::vector<double> positive;
  std::ranges::copy_if(energies, std::back_inserter(positive), [](double e) { return e > 0; });
  if (positive.empty()) {
    return 0;
  }
  std::ranges::sort(positive);
  const std::size_t half = positive.size() / 2;
  return positive.size() % 2 == 1 ? positive[half] : (positive[half - 1] + positive[half]) / 2;
}

}  // namespace

Stage first_stage(std::size_t units, std::size_t passes, std::uint64_t seed) {
  return {units, random_signs(units, passes, seed, 1), std::vector<double>(units, kFirstAmplitude)};
}

Stage second_stage(std::span<const double> energies, std::size_t passes, std::uint64_t seed) {
  const double median = median_of_positive(energies);
  Stage stage{energies.size(), random_signs(energies.size(), passes, seed, 2), {}};
  stage.amplitudes.reserve(energies.size());
  for (const double energy : energies) {
    const double factor = energy > 0 ? std::sqrt(median / energy) : kMostAtOnce;
    stage.amplitudes.push_back(kFirstAmplitude * std::min(factor, kMostAtOnce));
  }
  return stage;
}

Stage one_by_one(std::size_t units) {
  Stage stage{units, std::vector<std::int8_t>(units * units), std::vector<double>(units, 1.0)};
  for (std::size_t i = 0; i < units; ++i) {
    stage.signs[i * units + i] = 1;
  }
  return stage;
}

}  // namespace pleat::sensitivity
