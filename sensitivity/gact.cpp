#include "sensitivity/gact.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <queue>
#include <utility>

#include "sensitivity/bits.h"

namespace pleat::sensitivity {
namespace {

constexpr unsigned kGactBits[] = {32, 8, 4, 2, 1};
constexpr unsigned kExactBits = 32;

// "bfloat16" has elements of 2 bytes.
[[nodiscard]] std::uint64_t elements_of(const Unit& unit) {
  const std::size_t digits = unit.type.find_last_not_of("0123456789");
  std::uint64_t bits = 0;
  for (std::size_t i = digits == std::string::npos ? 0 : digits + 1; i < unit.type.size(); ++i) {
    bits = std::min<std::uint64_t>(10 * bits + static_cast<std::uint64_t>(unit.type[i] - '0'), 256);
  }
  return unit.bytes / std::max<std::uint64_t>(bits / 8, 1);
}

}  // namespace

double gact_shape(unsigned bits) noexcept {
  const double levels = std::ldexp(1, static_cast<int>(bits)) - 1;
  return bits >= kExactBits ? 0 : 1 / (levels * levels);
}

std::vector<unsigned> gact_bits(std::span<const GactTensor> tensors, double bits) {
  std::vector<std::size_t> levels(tensors.size(), 0);
  double left = 0;  // above the budget
  for (const GactTensor& tensor : tensors) {
    left += (kExactBits - bits) * static_cast<double>(tensor.elements);
  }
  // The noise that a step adds, with a minus, by the bit and element: the largest is next.
  using Step = std::pair<double, std::size_t>;
  std::priority_queue<Step> steps;
  const auto saved = [&](std::size_t i) {
    return static_cast<double>(tensors[i].elements) *
           (kGactBits[levels[i]] - kGactBits[levels[i] + 1]);
  };
  const auto push = [&](std::size_t i) {
    if (levels[i] + 1 < std::size(kGactBits) && tensors[i].elements > 0) {
      const double grows = tensors[i].sensitivity * (gact_shape(kGactBits[levels[i] + 1]) -
                                                     gact_shape(kGactBits[levels[i]]));
      steps.emplace(-grows / saved(i), i);
    }
  };
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    push(i);
  }
  while (left > 0 && !steps.empty()) {
    const std::size_t i = steps.top().second;
    steps.pop();
    left -= saved(i);
    ++levels[i];
    push(i);
  }
  std::vector<unsigned> found;
  found.reserve(tensors.size());
  for (const std::size_t level : levels) {
    found.push_back(kGactBits[level]);
  }
  return found;
}

Assignment assign_by_gact(const Profile& profile, double bits) {
  Assignment result;
  std::vector<GactTensor> tensors;
  for (const Unit& unit : profile.units) {
    if (unit.may_be_noisy() && unit.is_measured()) {
      tensors.push_back({unit.noise() / gact_shape(4), elements_of(unit)});
    }
  }
  const std::vector<unsigned> found = gact_bits(tensors, bits);
  auto next = found.begin();
  for (const Unit& unit : profile.units) {
    if (!unit.may_be_noisy()) {
      continue;
    }
    const unsigned asked = unit.is_measured() ? *next++ : uniform_width(bits);
    const bool exact = asked == kExactBits;
    const WidthCost& cost = exact ? unit.cost_at(0) : unit.uniform_cost(asked);
    result.choices.push_back({unit.key, cost.width});
    result.bytes += cost.bytes;
    result.noise += unit.is_measured() ? unit.noise() * cost.error : 0;
  }
  result.budget = result.bytes;
  result.least_noise = result.noise;
  return result;
}

}  // namespace pleat::sensitivity
