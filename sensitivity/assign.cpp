#include "sensitivity/assign.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <optional>
#include <queue>
#include <utility>

#include "sensitivity/bits.h"

namespace pleat::sensitivity {
namespace {

constexpr double kAnyNoise = std::numeric_limits<double>::infinity();

// All measurements are zero. Its noise() is the least positive number all the same.
[[nodiscard]] bool is_silent(const Unit& unit) {
  return std::ranges::all_of(unit.measurements,
                             [](const Measurement& measurement) { return measurement.noise <= 0; });
}

// ---- uniform widths ----

struct Totals {
  std::uint64_t bytes = 0;
  double noise = 0;
};

// The place of `bits` among the widths: `low`, and how far it is on the way to the next one.
struct Between {
  unsigned low = kWidths.front();
  unsigned high = kWidths.front();
  double way = 0;
};
[[nodiscard]] Between between_widths(double bits) {
  const unsigned low = uniform_width(bits);
  const auto next = std::ranges::upper_bound(kWidths, low);
  if (next == kWidths.end() || !(bits > low)) {
    return {low, low, 0};
  }
  return {low, *next, (bits - low) / (*next - low)};
}

[[nodiscard]] Totals mix_of(const Totals& low, const Totals& high, double way) {
  const double step = static_cast<double>(high.bytes) - static_cast<double>(low.bytes);
  const double bytes = static_cast<double>(low.bytes) + way * step;
  return {way == 0 ? low.bytes : static_cast<std::uint64_t>(std::max(0.0, std::floor(bytes))),
          low.noise + way * (high.noise - low.noise)};
}

// Of the units that `counts` says yes to.
template <typename Counts>
[[nodiscard]] Totals uniform_totals(const Profile& profile, double bits, Counts counts) {
  const Between between = between_widths(bits);
  Totals low;
  Totals high;
  for (const Unit& unit : profile.units) {
    if (!unit.may_be_noisy() || !counts(unit)) {
      continue;
    }
    const WidthCost& at_low = unit.uniform_cost(between.low);
    const WidthCost& at_high = unit.uniform_cost(between.high);
    low.bytes += at_low.bytes;
    high.bytes += at_high.bytes;
    if (unit.is_measured() && !is_silent(unit)) {
      low.noise += unit.noise(profile.objective) * at_low.error;
      high.noise += unit.noise(profile.objective) * at_high.error;
    }
  }
  return mix_of(low, high, between.way);
}

// ---- the knapsack ----

struct Candidate {
  std::uint64_t bytes = 0;
  double noise = 0;
  std::uint8_t width = 0;
};

// A measured unit. `hull`: ever more bytes, ever less noise, each step saving less by the byte than
// the one before.
struct Item {
  const Unit* unit = nullptr;
  double unit_noise = 0;   // at 4 bits; 0 if it is silent
  std::size_t choice = 0;  // its place in Assignment::choices
  std::vector<Candidate> hull;
  std::vector<Candidate> others;  // above the hull; for the fill pass
  Candidate chosen;
  std::size_t level = 0;
};

[[nodiscard]] double saved_per_byte(const Candidate& from, const Candidate& to) {
  return (from.noise - to.noise) / static_cast<double>(to.bytes - from.bytes);
}

void build_hull(const Unit& unit, Item& item) {
  std::vector<WidthCost> costs;
  for (const WidthCost& cost : unit.costs) {
    if (cost.width == 0 || cost.width >= unit.floor) {
      costs.push_back(cost);
    }
  }
  if (costs.empty()) {  // the exact one is missing
    costs.push_back(unit.costs.back());
  }
  std::ranges::sort(costs, [](const WidthCost& a, const WidthCost& b) {
    return a.bytes != b.bytes ? a.bytes < b.bytes : a.error < b.error;
  });
  std::vector<Candidate>& hull = item.hull;
  for (const WidthCost& cost : costs) {
    const Candidate candidate{cost.bytes, item.unit_noise * cost.error, cost.width};
    if (!hull.empty() && !(candidate.noise < hull.back().noise)) {
      continue;
    }
    while (hull.size() >= 2 && saved_per_byte(hull[hull.size() - 2], hull.back()) <=
                                   saved_per_byte(hull.back(), candidate)) {
      item.others.push_back(hull.back());
      hull.pop_back();
    }
    hull.push_back(candidate);
  }
  item.chosen = hull.front();
}

// Fox's greedy. Passes by the steps that do not fit; smaller ones behind them are still taken. Then
// offers the bytes that are left to candidates above the hull, which save less by the byte.
class Knapsack {
 public:
  Knapsack(std::vector<Item>& items, std::uint64_t room) : items_(items), room_(room) {
    for (const Item& item : items_) {
      bytes_ += item.chosen.bytes;
    }
  }
  [[nodiscard]] bool fits() const { return bytes_ <= room_; }
  [[nodiscard]] double noise() const {
    double sum = 0;
    for (const Item& item : items_) {
      sum += item.chosen.noise;
    }
    return sum;
  }

  // Takes steps until there is no more noise than that, whatever the room.
  void reach(double most_noise) {
    for (std::size_t i = 0; i < items_.size(); ++i) {
      push(i);
    }
    double left = noise();
    while (left > most_noise && !steps_.empty()) {
      const std::size_t i = steps_.top().item;
      steps_.pop();
      Item& item = items_[i];
      const Candidate& next = item.hull[++item.level];
      left -= item.chosen.noise - next.noise;
      take(item, next);
      push(i);
    }
  }

  // Only if the smallest widths fit. Returns the linear bound: up to the first step that does not
  // fit the greedy is optimal, and of that step the bound takes the part that fits.
  double solve() {
    for (std::size_t i = 0; i < items_.size(); ++i) {
      push(i);
    }
    double least_noise = 0;
    std::vector<std::size_t> blocked;
    while (!steps_.empty()) {
      const std::size_t i = steps_.top().item;
      steps_.pop();
      Item& item = items_[i];
      const Candidate& next = item.hull[item.level + 1];
      if (next.bytes - item.chosen.bytes <= room_ - bytes_) {
        ++item.level;
        take(item, next);
        push(i);
        continue;
      }
      if (blocked.empty()) {
        least_noise =
            noise() - static_cast<double>(room_ - bytes_) * saved_per_byte(item.chosen, next);
      }
      blocked.push_back(i);
    }
    if (blocked.empty()) {
      return noise();
    }
    for (const std::size_t i : blocked) {
      fill(items_[i]);
    }
    while (exchange()) {
    }
    return least_noise;
  }

 private:
  struct Change {
    Item* item;
    const Candidate* to;
    double gain;   // of noise
    double bytes;  // that it takes
  };
  struct Step {
    double saved = 0;  // noise by the byte
    std::size_t item = 0;
    [[nodiscard]] bool operator<(const Step& other) const {
      return saved != other.saved ? saved < other.saved : item > other.item;
    }
  };

  void push(std::size_t i) {
    const Item& item = items_[i];
    if (item.level + 1 < item.hull.size()) {
      steps_.push({saved_per_byte(item.chosen, item.hull[item.level + 1]), i});
    }
  }
  void take(Item& item, const Candidate& candidate) {
    bytes_ += candidate.bytes - item.chosen.bytes;
    item.chosen = candidate;
  }
  void fill(Item& item) {
    const std::uint64_t most = item.chosen.bytes + (room_ - bytes_);
    for (const Candidate& other : item.others) {
      if (other.bytes >= item.chosen.bytes && other.bytes <= most &&
          other.noise < item.chosen.noise) {
        take(item, other);
      }
    }
  }

  // Gives one item bytes that another can better do without: the exchange of most gain. What the
  // greedy leaves by is the one step that did not fit, which is much where units are few.
  bool exchange() {
    constexpr std::size_t kMostItems = 200;
    constexpr unsigned kMostExchanges = 100;
    if (items_.size() > kMostItems || exchanges_ == kMostExchanges) {
      return false;
    }
    std::vector<Change> wider;
    std::vector<Change> narrower;
    for (Item& item : items_) {
      for (const std::vector<Candidate>* const list : {&item.hull, &item.others}) {
        for (const Candidate& to : *list) {
          const Change change{
              &item, &to, item.chosen.noise - to.noise,
              static_cast<double>(to.bytes) - static_cast<double>(item.chosen.bytes)};
          if (change.bytes > 0 && change.gain > 0) {
            wider.push_back(change);
          } else if (change.bytes < 0) {
            narrower.push_back(change);
          }
        }
      }
    }
    const auto left = static_cast<double>(room_ - bytes_);
    double most = 1e-9 * noise();  // less is no gain
    const Change* up = nullptr;
    const Change* down = nullptr;
    for (const Change& more : wider) {
      for (const Change& less : narrower) {
        if (more.item != less.item && more.bytes + less.bytes <= left &&
            more.gain + less.gain > most) {
          most = more.gain + less.gain;
          up = &more;
          down = &less;
        }
      }
    }
    if (up == nullptr) {
      return false;
    }
    ++exchanges_;
    take(*down->item, *down->to);
    take(*up->item, *up->to);
    return true;
  }

  std::vector<Item>& items_;
  unsigned exchanges_ = 0;
  std::priority_queue<Step> steps_;
  std::uint64_t bytes_ = 0;
  std::uint64_t room_;
};

// The uniform width where it is less noise in no more bytes, which the greedy does not rule out, or
// less than `noise` by a factor of `worth`, and no more than `most_noise`. Silent units stay as
// they are.
void prefer_uniform(std::vector<Item>& items, double noise, double worth, double most_noise,
                    unsigned width, std::uint64_t room) {
  std::vector<Candidate> uniform;
  uniform.reserve(items.size());
  std::uint64_t bytes = 0;
  double uniform_noise = 0;
  for (const Item& item : items) {
    uniform.push_back(item.chosen);
    if (!is_silent(*item.unit)) {
      const WidthCost& cost = item.unit->uniform_cost(width);
      uniform.back() = {cost.bytes, item.unit_noise * cost.error, cost.width};
    }
    bytes += uniform.back().bytes;
    uniform_noise += uniform.back().noise;
  }
  if (bytes <= room && worth * uniform_noise < noise && uniform_noise <= most_noise) {
    for (std::size_t i = 0; i < items.size(); ++i) {
      items[i].chosen = uniform[i];
    }
  }
}

[[nodiscard]] Assignment assign_within(const Profile& profile, double bits,
                                       std::optional<std::uint64_t> bytes, double most_noise) {
  Assignment result;
  std::vector<Item> items;
  const unsigned width = uniform_width(bits);
  for (const Unit& unit : profile.units) {
    if (!unit.may_be_noisy()) {
      continue;
    }
    const WidthCost& cost = unit.uniform_cost(width);
    if (unit.is_measured()) {
      Item& item = items.emplace_back();
      item.unit = &unit;
      item.unit_noise = is_silent(unit) ? 0 : unit.noise(profile.objective);
      item.choice = result.choices.size();
      build_hull(unit, item);
    } else {
      result.bytes += cost.bytes;
    }
    result.choices.push_back({unit.key, cost.width});
  }
  result.budget =
      bytes ? *bytes
            : result.bytes + uniform_totals(profile, bits, std::mem_fn(&Unit::is_measured)).bytes;
  const std::uint64_t room = result.budget - std::min(result.budget, result.bytes);

  Knapsack knapsack(items, room);
  result.fits = knapsack.fits() && result.bytes <= result.budget;
  if (result.fits) {
    result.least_noise = knapsack.solve();
    // Where weights are to be moved by equal steps, each of them may matter: to make a few of them
    // much noisier for a gain that the next batch may not show has made trainings worse.
    const double worth = profile.objective == Objective::kUpdate ? 0.85 : 1;
    prefer_uniform(items, knapsack.noise(), worth, most_noise, width, room);
  }
  constexpr double kRounding = 1 + 1e-9;
  if (knapsack.noise() > kRounding * most_noise) {
    for (Item& item : items) {
      item.chosen = item.hull.front();
      item.level = 0;
    }
    Knapsack(items, room).reach(most_noise);
    result.fits = false;
  }
  for (const Item& item : items) {
    result.choices[item.choice].width = item.chosen.width;
    result.bytes += item.chosen.bytes;
    result.noise += item.chosen.noise;
  }
  // Rounding must not put the bound above what was reached.
  result.least_noise = result.fits ? std::min(result.least_noise, result.noise) : result.noise;
  return result;
}

}  // namespace

Assignment assign(const Profile& profile, double bits) {
  return assign_within(profile, bits, std::nullopt, kAnyNoise);
}

Assignment assign_bytes(const Profile& profile, double bits, std::uint64_t bytes,
                        double most_noise) {
  return assign_within(profile, bits, bytes, most_noise);
}

double noise_ceiling(double uniform, std::optional<std::uint64_t> percent) noexcept {
  constexpr double kUsual = 0.3;
  constexpr double kOfUniform = 2;
  const double norm = percent ? static_cast<double>(*percent) / 100
                              : std::max(kUsual, kOfUniform * std::sqrt(uniform));
  return std::max(norm * norm, uniform);
}

UniformCost uniform_cost(const Profile& profile, double bits) {
  const Totals totals = uniform_totals(profile, bits, [](const Unit&) { return true; });
  return {totals.bytes, totals.noise};
}

double equivalent_bits(const Profile& profile, std::uint64_t bytes) {
  double bits = kWidths.front();
  std::uint64_t low = 0;
  for (std::size_t i = 0; i < kWidths.size(); ++i) {
    const double width = kWidths[i];
    const std::uint64_t high = std::max(low, uniform_cost(profile, width).bytes);
    if (bytes < high) {
      const double way =
          i == 0 ? 0 : static_cast<double>(bytes - low) / static_cast<double>(high - low);
      return bits + way * (width - bits);
    }
    bits = width;
    low = high;
  }
  return bits;
}

}  // namespace pleat::sensitivity
