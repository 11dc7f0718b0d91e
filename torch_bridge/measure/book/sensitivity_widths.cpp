// The part of SensitivityBook that decides which widths follow from what was found.
#include <algorithm>
#include <limits>
#include <unordered_map>
#include <vector>

#include "torch_bridge/measure/book/sensitivity_book.h"

namespace pleat::bridge {

using sensitivity::Profile;
using sensitivity::Unit;

// ---- the objective ------------------------------------------------------------------------------

void SensitivityBook::note_optimizer(std::string_view name) noexcept {
  // Whatever else there is, from Adam to Muon, divides by the size of what it gets.
  const bool steps_by_gradient =
      name.find("SGD") != std::string_view::npos || name == "LBFGS" || name == "LARS";
  const Objective found = steps_by_gradient ? Objective::kGradient : Objective::kUpdate;
  Objective before = of_optimizer_.load(std::memory_order_relaxed);
  // Of two kinds in one program it is the second.
  if (before == found || before == Objective::kUpdate) [[likely]] {
    return;
  }
  try {
    const std::lock_guard guard(mutex_);
    const sensitivity::Objective old = objective_locked();
    of_optimizer_.store(found, std::memory_order_relaxed);
    if (objective_locked() != old) {
      assign();
    }
  } catch (...) {  // no memory: widths stay as they are
  }
}

// Before an optimizer has stepped it is what the file was measured for.
sensitivity::Objective SensitivityBook::objective_locked() const noexcept {
  const Objective asked = options_.objective != Objective::kAuto
                              ? options_.objective
                              : of_optimizer_.load(std::memory_order_relaxed);
  if (is_of_gact(options_.sensitivity)) {
    return sensitivity::Objective::kGradient;
  }
  return asked == Objective::kUpdate     ? sensitivity::Objective::kUpdate
         : asked == Objective::kGradient ? sensitivity::Objective::kGradient
                                         : profile_.objective;
}

sensitivity::Objective SensitivityBook::objective() const {
  const std::lock_guard guard(mutex_);
  return objective_locked();
}

// ---- widths -------------------------------------------------------------------------------------

// The units that this run has met, once it has met any: others share no bytes with it.
Profile SensitivityBook::seen_units() const {
  if (seen_.empty()) {
    return profile_;
  }
  Profile seen = profile_;
  std::erase_if(seen.units, [this](const Unit& unit) { return !seen_.contains(unit.key); });
  return seen;
}

bool SensitivityBook::goes_by_budget(const Profile& profile) const {
  return options_.budget != 0 && profile_.at_peak > 0 && (budget_bytes_ || !unmet_) &&
         sensitivity::any_measured(profile);
}

// Of an assignment to these units that follows from the budget.
double SensitivityBook::most_noise(const Profile& profile) const {
  const double uniform =
      sensitivity::uniform_cost(profile, sensitivity::uniform_width(options_.bits)).noise;
  const double ceiling = sensitivity::noise_ceiling(uniform, options_.max_noise);
  return std::max(ceiling / beyond_prediction_, uniform);
}

double SensitivityBook::noise_ceiling(double uniform) const {
  const std::lock_guard guard(mutex_);
  return by_budget_ ? sensitivity::noise_ceiling(uniform, options_.max_noise)
                    : std::numeric_limits<double>::infinity();
}

// `bytes`: that a budget gives.
sensitivity::Assignment SensitivityBook::assignment_of(const Profile& profile,
                                                       std::optional<std::uint64_t> bytes) const {
  return bytes.has_value()
             ? sensitivity::assign_bytes(profile, options_.bits, *bytes, most_noise(profile))
         : is_of_gact(options_.sensitivity) ? sensitivity::assign_by_gact(profile, options_.bits)
                                            : sensitivity::assign(profile, options_.bits);
}

// Puts the widths in force.
void SensitivityBook::assign() {
  profile_.objective = objective_locked();
  const bool asked_for = options_.sensitivity != Sensitivity::kOff || !file_.empty();
  if (options_.mode != Mode::kLossy || profile_.units.empty() || !asked_for) {
    bits_.set_table({});
    assignment_ = {};
    by_budget_ = false;
    return;
  }
  const Profile seen = seen_units();
  by_budget_ = goes_by_budget(seen);
  assignment_ =
      assignment_of(seen, by_budget_ ? std::optional(bytes_within_budget()) : std::nullopt);
  if (by_budget_ && !assignment_.fits) {  // the next peak says whether the budget can be met
    by_budget_ = false;
    assignment_ = assignment_of(seen, std::nullopt);
  }
  widths_are_new_ = true;
  std::unordered_map<std::uint64_t, const Unit*> by_key;
  for (const Unit& unit : profile_.units) {
    by_key.emplace(unit.key, &unit);
  }
  std::vector<BitsByKey::Entry> table;
  const auto add = [&](const sensitivity::Assignment& assignment, bool were_seen) {
    for (const sensitivity::Assignment::Choice& choice : assignment.choices) {
      if (seen_.contains(choice.key) != were_seen) {
        continue;
      }
      const Unit& unit = *by_key.at(choice.key);
      const bool uniform = !unit.is_measured() && choice.width == bits_.uniform();
      const Why why = unit.distrusted ? Why::kDistrusted
                      : uniform       ? Why::kBits
                      : by_budget_    ? Why::kBudget
                                      : Why::kProfile;
      table.push_back({{choice.key}, choice.width, why});
      for (const std::uint64_t result : unit.results) {
        table.push_back({{result}, choice.width, why});
      }
    }
  };
  add(assignment_, !seen_.empty());
  if (!seen_.empty() && seen.units.size() < profile_.units.size()) {
    // The other units of the file can still come: of another model, or of another way through this
    // one.
    add(sensitivity::assign(profile_, options_.bits), false);
  }
  bits_.set_table(table);
}

}  // namespace pleat::bridge
