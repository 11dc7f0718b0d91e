#include "sensitivity/probe.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <type_traits>

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

// ---- sketches ----

// Elements are taken in rows of 256. A row is rotated by a random number of buckets, so that what
// lies in one column of a matrix spreads over all of them, and within a row no two elements meet.
// Each row takes a few hashes, not each element.
constexpr std::size_t kWords = kSketch / 32;

struct Row {
  std::size_t rotation = 0;
  std::array<std::uint32_t, kWords> signs{};  // a bit for an element
};

[[nodiscard]] Row row_of(std::uint64_t seed, std::uint64_t number) noexcept {
  const std::uint64_t start = mix(mix(seed) ^ number);
  Row row;
  row.rotation = static_cast<std::size_t>(mix(start) % kSketch);
  for (std::size_t w = 0; w < kWords; w += 2) {
    const std::uint64_t word = mix(start + 1 + w);
    row.signs[w] = static_cast<std::uint32_t>(word);
    row.signs[w + 1] = static_cast<std::uint32_t>(word >> 32);
  }
  return row;
}

// The compiler makes vectors of these loops: a bit is tested with a mask of its lane, as vectors of
// old processors cannot be shifted lane by lane.
template <typename T>
void sign_row(const T* values, const Row& row, T* out) noexcept {
  using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  constexpr Bits kSign = Bits{1} << (8 * sizeof(T) - 1);
  constexpr auto kLanes = [] {
    std::array<Bits, 32> lanes{};
    for (unsigned lane = 0; lane < 32; ++lane) {
      lanes[lane] = Bits{1} << lane;
    }
    return lanes;
  }();
  for (std::size_t w = 0; w < kWords; ++w) {
    const Bits word = row.signs[w];
    for (std::size_t lane = 0; lane < 32; ++lane) {
      const Bits flip = (word & kLanes[lane]) != 0 ? kSign : 0;
      out[32 * w + lane] = std::bit_cast<T>(std::bit_cast<Bits>(values[32 * w + lane]) ^ flip);
    }
  }
}

template <typename T>
void add_rotated(const T* signed_row, std::size_t rotation, Sketch& sketch) noexcept {
  const std::size_t head = kSketch - rotation;
  for (std::size_t c = 0; c < head; ++c) {
    sketch[c + rotation] += static_cast<double>(signed_row[c]);
  }
  for (std::size_t c = head; c < kSketch; ++c) {
    sketch[c - head] += static_cast<double>(signed_row[c]);
  }
}

template <typename T>
void add_values(std::span<const T> values, std::size_t first, std::size_t all, std::uint64_t seed,
                Sketch& sketch) noexcept {
  if (all <= kSketch) {
    for (std::size_t i = 0; i < values.size() && first + i < kSketch; ++i) {
      sketch[first + i] += static_cast<double>(values[i]);
    }
    return;
  }
  std::array<T, kSketch> part{};
  std::array<T, kSketch> turned;
  for (std::size_t i = 0; i < values.size();) {
    const std::size_t column = (first + i) % kSketch;
    const std::size_t count = std::min(kSketch - column, values.size() - i);
    const Row row = row_of(seed, (first + i) / kSketch);
    const T* source = values.data() + i;
    if (count < kSketch) {  // a cut row: zeros in the place of what is missing
      part.fill(0);
      std::copy_n(source, count, part.begin() + static_cast<std::ptrdiff_t>(column));
      source = part.data();
    }
    sign_row(source, row, turned.data());
    add_rotated(turned.data(), row.rotation, sketch);
    i += count;
  }
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

void add_to_sketch(std::span<const float> values, std::size_t first, std::size_t all,
                   std::uint64_t seed, Sketch& sketch) noexcept {
  add_values(values, first, all, seed, sketch);
}

void add_to_sketch(std::span<const double> values, std::size_t first, std::size_t all,
                   std::uint64_t seed, Sketch& sketch) noexcept {
  add_values(values, first, all, seed, sketch);
}

}  // namespace pleat::sensitivity
