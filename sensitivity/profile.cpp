#include "sensitivity/profile.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

namespace pleat::sensitivity {
namespace {

constexpr std::size_t kMeasurementsKept = 16;

[[nodiscard]] std::optional<double> noise_at(const Unit& unit, std::uint64_t step) {
  for (const Measurement& measurement : unit.measurements) {
    if (measurement.step == step) {
      return measurement.noise;
    }
  }
  return std::nullopt;
}

// In the order of steps, each step once: of two the first. The last few.
void tidy(std::vector<Measurement>& measurements) {
  std::stable_sort(measurements.begin(), measurements.end(),
                   [](const Measurement& a, const Measurement& b) { return a.step < b.step; });
  const auto same_step = [](const Measurement& a, const Measurement& b) {
    return a.step == b.step;
  };
  measurements.erase(std::unique(measurements.begin(), measurements.end(), same_step),
                     measurements.end());
  if (measurements.size() > kMeasurementsKept) {
    measurements.erase(measurements.begin(),
                       measurements.end() - static_cast<std::ptrdiff_t>(kMeasurementsKept));
  }
}

// Ranks from 1; equal values share the mean of theirs.
[[nodiscard]] std::vector<double> ranks_of(const std::vector<double>& values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t i) { return values[i]; });
  std::vector<double> ranks(values.size());
  for (std::size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    while (end < order.size() && values[order[end]] == values[order[begin]]) {
      ++end;
    }
    for (std::size_t i = begin; i < end; ++i) {
      ranks[order[i]] = static_cast<double>(begin + 1 + end) / 2;
    }
  }
  return ranks;
}

}  // namespace

const char* name_of(Objective objective) noexcept {
  return objective == Objective::kUpdate ? "update" : "gradient";
}

double Unit::noise(Objective objective) const noexcept {
  constexpr double kLeast = std::numeric_limits<double>::min();
  if (measurements.empty()) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  if (measurements.size() == 1) {
    // Not rounded by a logarithm. The order of the arguments lets a NaN through.
    return std::max(measurements.front().of(objective), kLeast);
  }
  const double last = static_cast<double>(measurements.back().step) + 1;
  double logarithms = 0, weights = 0;
  for (const Measurement& measurement : measurements) {
    const double noise = measurement.of(objective);
    if (noise > 0 || std::isnan(noise)) {
      const double age = (static_cast<double>(measurement.step) + 1) / last;
      logarithms += age * age * std::log(std::max(noise, kLeast));
      weights += age * age;
    }
  }
  return weights > 0 ? std::exp(logarithms / weights) : kLeast;
}

const WidthCost& Unit::cost_at(unsigned width) const noexcept {
  if (width != 0) {
    for (const WidthCost& cost : costs) {
      if (cost.width >= width) {
        return cost;
      }
    }
  }
  return costs.back();
}

std::string expand_path(std::string_view pattern, std::uint64_t rank, std::uint64_t process) {
  std::string path;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char letter = pattern[i] == '%' && i + 1 < pattern.size() ? pattern[i + 1] : '\0';
    if (letter == 'r') {
      path += std::to_string(rank);
    } else if (letter == 'p') {
      path += std::to_string(process);
    } else if (letter == '%') {
      path += '%';
    } else {
      path += pattern[i];
      continue;
    }
    ++i;
  }
  return path;
}

void merge_into(Profile& newer, const Profile& older) {
  // Sorted, as keys that come from a file could be made to collide in a hash table.
  std::vector<std::pair<std::uint64_t, std::size_t>> places;
  places.reserve(newer.units.size());
  for (std::size_t i = 0; i < newer.units.size(); ++i) {
    places.emplace_back(newer.units[i].key, i);
  }
  std::ranges::sort(places);
  for (const Unit& unit : older.units) {
    const auto found = std::ranges::lower_bound(places, std::pair{unit.key, std::size_t{0}});
    if (found == places.end() || found->first != unit.key) {
      newer.units.push_back(unit);
      continue;
    }
    std::vector<Measurement>& measurements = newer.units[found->second].measurements;
    measurements.insert(measurements.end(), unit.measurements.begin(), unit.measurements.end());
    tidy(measurements);
  }
}

bool any_measured(const Profile& profile) noexcept {
  return std::ranges::any_of(profile.units, [](const Unit& unit) {
    return !unit.costs.empty() && !std::isnan(unit.noise());
  });
}

double rank_correlation(const Profile& profile, std::uint64_t step_a, std::uint64_t step_b) {
  std::vector<double> a;
  std::vector<double> b;
  for (const Unit& unit : profile.units) {
    const std::optional<double> at_a = noise_at(unit, step_a);
    const std::optional<double> at_b = noise_at(unit, step_b);
    if (at_a && at_b && !std::isnan(*at_a) && !std::isnan(*at_b)) {
      a.push_back(*at_a);
      b.push_back(*at_b);
    }
  }
  if (a.size() < 3) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  const std::vector<double> ranks_a = ranks_of(a);
  const std::vector<double> ranks_b = ranks_of(b);
  const double mean = (static_cast<double>(a.size()) + 1) / 2;
  double both = 0;
  double only_a = 0;
  double only_b = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    both += (ranks_a[i] - mean) * (ranks_b[i] - mean);
    only_a += (ranks_a[i] - mean) * (ranks_a[i] - mean);
    only_b += (ranks_b[i] - mean) * (ranks_b[i] - mean);
  }
  return both / std::sqrt(only_a * only_b);  // 0 / 0 if all are equal
}

}  // namespace pleat::sensitivity
