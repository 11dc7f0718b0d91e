// The part of SensitivityBook that keeps the peak of a step within a budget.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "torch_bridge/measure/book/sensitivity_book.h"

namespace pleat::bridge {

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

bool SensitivityBook::note_peak(const Peak& peak) {
  const std::lock_guard guard(mutex_);
  if (options_.budget == 0 || options_.mode != Mode::kLossy) {
    return false;
  }
  if (!sensitivity::any_measured(profile_)) {
    if (said_of_budget_ == Said::kNothing) {
      said_of_budget_ = Said::kUnknown;
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
  const auto budget = static_cast<double>(options_.budget);
  const auto all = static_cast<double>(std::max(peak.requested, peak.reserved));
  // Where few payloads are there at the peak, fewer of them move the peak to where there are more.
  constexpr double kLeast = 0.3;
  profile_.at_peak = std::clamp(static_cast<double>(peak.payload) / payloads, kLeast, 1.5);
  profile_.beside = static_cast<std::uint64_t>(std::max(all - profile_.at_peak * payloads, 0.0));
  changed_ = true;
  const double margin = margin_of(budget, static_cast<double>(peak.payload));
  if (all <= budget &&
      (first_steps_ < kFirstSteps || (all >= budget - kTolerance * margin && budget_bytes_))) {
    return false;
  }
  // Up in steps that are too small rather than too large: more payloads may move the peak to where
  // all of them are.
  const double room = budget - margin - all;
  const double change = room / (room > 0 ? std::max(profile_.at_peak, 1.0) : profile_.at_peak);
  const std::uint64_t before = assignment_.bytes;
  const auto allowed =
      static_cast<std::uint64_t>(std::max(static_cast<double>(before) + change, 0.0));
  if (said_of_budget_ != Said::kNothing && said_of_budget_ != Said::kUnknown &&
      assignment_of(seen_units(), allowed).bytes == before) {
    return false;  // the smallest widths, or the largest: there is nothing to change
  }
  budget_bytes_ = allowed;
  assign();
  widths_are_new_ = assignment_.bytes != before;
  say_budget(all, peak.beside);
  write_locked();  // not all jobs end as they should
  return widths_are_new_;
}

// One line for each thing that there is to say.
void SensitivityBook::say_budget(double peak, std::uint64_t process_beside) {
  constexpr double kMega = 1e6;
  const double payloads =
      profile_.at_peak * (static_cast<double>(assignment_.bytes) + fixed_payloads());
  const double will_be = payloads + static_cast<double>(profile_.beside);
  const bool fits = assignment_.fits || will_be <= static_cast<double>(options_.budget);
  const Said what = fits ? Said::kFits : Said::kMissing;
  if (std::exchange(said_of_budget_, what) == what) {
    return;
  }
  std::fprintf(stderr, "pleat: budget %s: the peak was %.0f MB; ",
               option_value(options_, "budget").c_str(), peak / kMega);
  if (what == Said::kFits) {
    std::fprintf(stderr,
                 "payloads may take %.0f MB beside %.0f MB, noise is %.3g %% of the gradient",
                 payloads / kMega, static_cast<double>(profile_.beside) / kMega,
                 100 * std::sqrt(assignment_.noise));
  } else {
    std::fprintf(stderr, "with the smallest widths it is %.0f MB", will_be / kMega);
  }
  std::fprintf(stderr, " (the process takes %.0f MB more)\n",
               static_cast<double>(process_beside) / kMega);
}

}  // namespace pleat::bridge
