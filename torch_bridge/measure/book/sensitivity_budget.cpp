// The part of SensitivityBook that keeps the peak of a step within a budget.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <utility>

#include "torch_bridge/measure/book/sensitivity_book.h"

namespace pleat::bridge {

using sensitivity::Profile;
using sensitivity::Unit;

namespace {

// Of what is predicted a little may go wrong: steps of widths, rounding, chunks. Where payloads are
// a small part of the peak, it is less. `payloads`: bytes at the peak.
double margin_of(double budget, double payloads) noexcept {
  return std::clamp(0.15 * payloads, 0.01 * budget, 0.04 * budget);
}
constexpr double kOfFile = 1.5;      // times as much where another process has seen the peak
constexpr double kTolerance = 2;     // margins: what is less below the budget is left as it is
constexpr unsigned kFirstSteps = 3;  // in which optimizers make their state, beside what is there

}  // namespace

// The part of the payloads whose size we do not choose.
double SensitivityBook::fixed_payloads() const noexcept {
  double bytes = 0;
  for (const Unit& unit : profile_.units) {
    if (!seen_.empty() && !seen_.contains(unit.key)) {
      continue;
    }
    bytes +=
        unit.fixed.empty() || unit.fixed == "alive" ? 0.0 : static_cast<double>(unit.payload_bytes);
  }
  return bytes;
}

// Payload bytes of the units whose widths are chosen.
std::uint64_t SensitivityBook::bytes_within_budget() const noexcept {
  if (budget_bytes_) {
    return *budget_bytes_;
  }
  const auto budget = static_cast<double>(options_.budget);
  const double room = budget - static_cast<double>(profile_.beside);
  const double left = room - kOfFile * margin_of(budget, std::max(room, 0.0));
  return static_cast<std::uint64_t>(std::max(left / profile_.at_peak - fixed_payloads(), 0.0));
}

void SensitivityBook::forget_budget() noexcept {
  budget_bytes_.reset();
  met_bytes_.reset();
  met_steps_ = 0;
  unmet_.reset();
  said_unknown_ = said_unmet_ = false;
  said_noise_ = -1;
}

bool SensitivityBook::note_peak(const Peak& peak) {
  const std::lock_guard guard(mutex_);
  if (options_.budget == 0 || options_.mode != Mode::kLossy) {
    return false;
  }
  if (!sensitivity::any_measured(profile_)) {
    if (!std::exchange(said_unknown_, true)) {
      std::fprintf(stderr, "pleat: budget %s: bits are %s until sensitivity is known%s\n",
                   option_value(options_, "budget").c_str(), option_value(options_, "bits").c_str(),
                   options_.sensitivity == Sensitivity::kOff ? "; sensitivity:on measures it" : "");
    }
    return false;
  }
  first_steps_ += first_steps_ < kFirstSteps ? 1 : 0;
  // The peak of the last step may stem from other widths, or from extra passes.
  const bool of_others = std::exchange(widths_are_new_, false);
  if (std::exchange(extra_passes_in_step_, false) || of_others) {
    return true;
  }
  const double payloads = static_cast<double>(assignment_.bytes) + fixed_payloads();
  if (payloads <= 0 || peak.payload == 0) {
    return false;
  }
  const auto all = static_cast<double>(std::max(peak.requested, peak.reserved));
  const double payload_part = static_cast<double>(peak.payload) / payloads;
  // Where few payloads are there at the peak, fewer of them move the peak to where there are more.
  constexpr double kLeast = 0.3;
  profile_.at_peak = std::clamp(payload_part, kLeast, 1.5);
  profile_.beside = static_cast<std::uint64_t>(std::max(all - profile_.at_peak * payloads, 0.0));
  changed_ = true;
  const bool changes = fit_budget(peak, all, payload_part);
  write_locked();  // not all jobs end as they should
  return changes;
}

// `all`: bytes at the peak. `payload_part`: the part of a step's payloads that was there.
bool SensitivityBook::fit_budget(const Peak& peak, double all, double payload_part) {
  const auto budget = static_cast<double>(options_.budget);
  const double margin = margin_of(budget, static_cast<double>(peak.payload));
  const std::uint64_t before = assignment_.bytes;
  // Peaks of equal steps differ a little. Much smaller ones are of another batch.
  constexpr double kVaries = 1.01, kMuchLess = 0.9;
  const bool fits = all <= (met_steps_ > 0 ? kVaries * budget : budget);
  constexpr unsigned kLong = 8;
  if (unmet_) {
    unmet_->fitting = all <= budget ? unmet_->fitting + 1 : 0;
  }
  if (unmet_ && all >= kMuchLess * unmet_->given_up_at && unmet_->fitting < kLong) {
    note_unmet(peak, all, payload_part);
    return false;
  }
  unmet_.reset();
  met_steps_ = fits ? met_steps_ + 1 : 0;
  if (fits && first_steps_ < kFirstSteps) {
    return false;
  }
  if (fits && all >= budget - kTolerance * margin) {
    budget_bytes_ = before;
    met_bytes_ = met_steps_ >= kLong ? budget_bytes_ : met_bytes_;
    say_met(peak, all);
    return false;
  }
  // Up in steps that are too small rather than too large: more payloads may move the peak to where
  // all of them are.
  const double room = budget - margin - all;
  const double change = room / (room > 0 ? std::max(payload_part, 1.0) : payload_part);
  const auto allowed =
      static_cast<std::uint64_t>(std::max(static_cast<double>(before) + change, 0.0));
  const sensitivity::Assignment next = assignment_of(seen_units(), allowed);
  if (fits && next.bytes <= before) {  // the largest widths
    say_met(peak, all);
    return false;
  }
  if (!fits) {
    const double fewer = static_cast<double>(before) - static_cast<double>(next.bytes);
    const double most_freed =
        std::min(std::max(payload_part, 1.0) * fewer, static_cast<double>(peak.payload));
    if (fewer <= 0 || all - most_freed > budget) {
      const bool changes = give_up_budget(all);
      if (!changes) {
        note_unmet(peak, all, payload_part);
      }
      return changes;
    }
  }
  // Where `allowed` are too few: the fewest below the ceiling. They may do all the same.
  budget_bytes_ = std::max(allowed, next.bytes);
  assign();
  widths_are_new_ = assignment_.bytes != before;
  met_steps_ = 0;
  if (assignment_.bytes < before && checks_widths() && has_passes_left()) {
    for (auto& [structure, graph] : graphs_) {
      graph.to_check = graph.to_check || !graph.predicted.of_leaf.empty();
    }
  }
  return widths_are_new_;
}

// The widths are again those that have kept the budget for a while, and no larger than those
// without a budget.
bool SensitivityBook::give_up_budget(double all) {
  const std::uint64_t before = assignment_.bytes;
  const Profile seen = seen_units();
  const sensitivity::Assignment least = assignment_of(seen, 0);
  const bool was_tried = before <= least.bytes;
  unmet_ = {.given_up_at = all,
            .least_peak = was_tried ? all : 0,
            .least_bytes = static_cast<double>(was_tried ? before : least.bytes),
            .noise = was_tried ? assignment_.noise : least.noise};
  const bool has_met = met_bytes_ && *met_bytes_ < assignment_of(seen, std::nullopt).bytes;
  budget_bytes_ = has_met ? met_bytes_ : std::nullopt;
  assign();
  widths_are_new_ = assignment_.bytes != before;
  return widths_are_new_;
}

// One line, once, when a few steps have had these widths.
void SensitivityBook::note_unmet(const Peak& peak, double all, double payload_part) {
  constexpr double kMega = 1e6, kMebi = 1 << 20;
  constexpr unsigned kFew = 3;
  unmet_->highest = std::max(unmet_->highest, all);
  if (++unmet_->steps < kFew || std::exchange(said_unmet_, true)) {
    return;
  }
  // The part at the peak overrates what fewer bytes free: the peak moves to where payloads are few.
  // The last factor is for peaks that differ from step to step.
  constexpr double kOfPart = 0.75, kVaries = 1.01;
  const double freed = static_cast<double>(assignment_.bytes) - unmet_->least_bytes;
  const double least =
      kVaries * std::max(unmet_->highest - kOfPart * payload_part * freed, unmet_->least_peak);
  const double fits = std::min(least, unmet_->highest);
  std::fprintf(
      stderr,
      "pleat: budget %s cannot be met: at %.2g bits the peak is %.0f MB, and bits stay as "
      "they are; budget:%.0fMiB would fit, with noise up to %.3g %% of the %s (the process "
      "takes %.0f MB more)\n",
      option_value(options_, "budget").c_str(),
      sensitivity::equivalent_bits(seen_units(), assignment_.bytes), unmet_->highest / kMega,
      std::ceil(fits / kMebi), 100 * std::sqrt(unmet_->noise),
      sensitivity::name_of(profile_.objective), static_cast<double>(peak.beside) / kMega);
}

// Where fewer bytes have more noise than the ceiling, though less was predicted, the next
// prediction is as much too low. True if it is so.
bool SensitivityBook::note_noise_of_budget(const Check& check) {
  // One draw of noise differs from the next, so that as much as allowed would often be too much.
  constexpr double kCaution = 1.2;
  const double uniform =
      sensitivity::uniform_cost(seen_units(), sensitivity::uniform_width(options_.bits)).noise;
  if (!by_budget_ || assignment_.noise <= uniform ||
      check.measured <= sensitivity::noise_ceiling(uniform, options_.max_noise)) {
    return false;
  }
  const double ratio = kCaution * check.measured / check.predicted;
  beyond_prediction_ = std::isfinite(ratio) ? ratio : std::numeric_limits<double>::infinity();
  return true;
}

// One line, once, and again where noise has grown.
void SensitivityBook::say_met(const Peak& peak, double all) {
  constexpr double kMega = 1e6, kGrown = 2;
  if (said_noise_ >= 0 && assignment_.noise <= kGrown * said_noise_) {
    return;
  }
  said_noise_ = assignment_.noise;
  const Profile seen = seen_units();
  const double uniform = sensitivity::uniform_cost(seen, options_.bits).noise;
  std::fprintf(stderr,
               "pleat: budget %s: at %.2g bits the peak is %.0f MB, and noise is %.3g %% of the %s "
               "(%.3g %% at bits:%s; the process takes %.0f MB more)\n",
               option_value(options_, "budget").c_str(),
               sensitivity::equivalent_bits(seen, assignment_.bytes), all / kMega,
               100 * std::sqrt(assignment_.noise), sensitivity::name_of(profile_.objective),
               100 * std::sqrt(uniform), option_value(options_, "bits").c_str(),
               static_cast<double>(peak.beside) / kMega);
}

}  // namespace pleat::bridge
