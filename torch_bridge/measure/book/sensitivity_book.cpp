#include "torch_bridge/measure/book/sensitivity_book.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "torch_bridge/core/option_text.h"

namespace pleat::bridge {
namespace {

using sensitivity::Profile;
using sensitivity::ReadStatus;
using sensitivity::Unit;

constexpr unsigned kMostChecks = 3;     // behind one measurement
constexpr std::size_t kLongest = 4096;  // line of ours

// The width of the next steps. Where the payloads that were read had been asked for another one,
// the steps that follow from their values are unknown.
void set_asked(Unit& unit, const BitsByKey::Entry& asked) {
  unit.width = asked.width;
  std::vector<std::string> trail{step_text(asked.why, asked.width)};
  if (unit.trail.empty() || unit.trail.front() == trail.front()) return;
  for (const std::string& step : unit.trail) {
    const Why why = why_named(std::string_view(step).substr(0, step.find(':')));
    if (asked.width != 0 && why >= Why::kOwnOperator && why < Why::kSeveralSaves)
      trail.push_back(step_text(why, std::max(unit.floor, asked.width)));
  }
  if (asked.width == 0) trail.push_back(step_text(Why::kAssigned, 0));
  unit.trail = std::move(trail);
}

}  // namespace

void SensitivityBook::ask(const Options& options, std::uint64_t rank) {
  const std::lock_guard guard(mutex_);
  const bool mode_changed =
      options.sensitivity != options_.sensitivity || options.refresh != options_.refresh;
  if (options.budget != options_.budget || options.max_noise != options_.max_noise) {
    forget_budget();
  }
  options_ = options;
  profile_.bits = options.bits;
  if (options.profile != named_) {
    named_ = options.profile;
    file_ = named_.empty()
                ? std::string()
                : sensitivity::expand_path(named_, rank, static_cast<std::uint64_t>(::getpid()));
    to_match_ = false;
    if (!file_.empty()) {
      profile_ = {};  // what is known from now on is what this file knows
      profile_.bits = options.bits;
      read_file();
    }
  }
  if (mode_changed) {
    for (auto& [structure, graph] : graphs_) {
      graph.next = graph.interval = graph.watch = 0;
      graph.attempts = 0;
      graph.to_check = graph.is_stale = false;
    }
  }
  const bool compresses = options.mode != Mode::kOff;
  const bool measures = compresses && options.sensitivity != Sensitivity::kOff;
  measures_.store(measures, std::memory_order_relaxed);
  const bool has_budget = options.mode == Mode::kLossy && options.budget != 0;
  has_budget_.store(has_budget, std::memory_order_relaxed);
  watching_.store(measures || has_budget || (compresses && !file_.empty()),
                  std::memory_order_relaxed);
  assign();
}

void SensitivityBook::complain(const std::string& why) {
  std::fprintf(stderr, "pleat: profile %s: %s\n", printable(file_, kLongest).c_str(), why.c_str());
}

void SensitivityBook::read_file() {
  sensitivity::ReadResult read = sensitivity::read_profile(file_);
  if (read.status == ReadStatus::kOk) {
    profile_ = std::move(read.profile);
    // Measurements of this run come after those of earlier ones.
    steps_.store(std::max(steps_.load(), profile_.steps));
    profile_.bits = options_.bits;
    changed_ = false;
    to_match_ = !profile_.units.empty();
    return;
  }
  if (read.status != ReadStatus::kMissing) {
    complain(read.message + "; the file is left as it is, and bits are the default");
    file_.clear();
  }
}

// ---- what comes to nothing ----------------------------------------------------------------------

void SensitivityBook::note_unseen_pass() noexcept {
  if (!measures() || unseen_.exchange(true, std::memory_order_relaxed)) [[likely]] {
    return;
  }
  try {
    const std::lock_guard guard(mutex_);
    add_refusal("Pleat was switched on by hand; start the program with `pleat run`");
  } catch (...) {  // no memory for a line
  }
}

void SensitivityBook::add_refusal(const std::string& why) {
  constexpr std::size_t kMost = 16;
  if (refusals_.size() < kMost &&
      std::find(refusals_.begin(), refusals_.end(), why) == refusals_.end()) {
    refusals_.push_back(why);
    std::fprintf(stderr, "pleat: sensitivity is not measured: %s\n",
                 printable(why, kLongest).c_str());
  }
}

// ---- what was found -----------------------------------------------------------------------------

// The rows of the first pass: are most of them in the file?
void SensitivityBook::match_with_file(const std::vector<Unit>& rows) {
  if (!std::exchange(to_match_, false)) {
    return;
  }
  std::unordered_set<std::uint64_t> known;
  for (const Unit& unit : profile_.units) {
    known.insert(unit.key);
  }
  std::size_t noisy = 0, found = 0;
  for (const Unit& unit : rows) {
    noisy += unit.may_be_noisy() ? 1 : 0;
    found += unit.may_be_noisy() && known.contains(unit.key) ? 1 : 0;
  }
  if (2 * found < noisy) {
    complain("seems to be of another model: it knows " + std::to_string(found) + " of " +
             std::to_string(noisy) + " tensors, and the others get the default");
  }
}

// Rows of one pass replace those of the same keys, whose measurements they take over.
void SensitivityBook::enter(std::vector<Unit> rows) {
  constexpr std::size_t kMostUnits = 65536;
  if (profile_.units.size() > kMostUnits) {
    return;
  }
  match_with_file(rows);
  for (const Unit& unit : rows) {
    seen_.insert(unit.key);
  }
  std::unordered_set<std::uint64_t> distrusted;
  for (const Unit& unit : profile_.units) {
    if (unit.distrusted) {
      distrusted.insert(unit.key);
    }
  }
  Profile found;
  found.bits = options_.bits;
  found.units = std::move(rows);
  for (Unit& unit : found.units) {
    // A unit that is measured anew is trusted again.
    unit.distrusted = unit.measurements.empty() && distrusted.contains(unit.key);
  }
  sensitivity::merge_into(found, profile_);
  found.torch = torch_;
  found.objective = profile_.objective;
  found.beside = profile_.beside;
  found.at_peak = profile_.at_peak;
  found.steps = steps_.load(std::memory_order_relaxed);
  found.passes = extra_passes_;
  found.seconds = seconds_;
  profile_ = std::move(found);
  changed_ = true;
}

void SensitivityBook::add_rows(std::vector<Unit> rows) {
  const std::lock_guard guard(mutex_);
  enter(std::move(rows));
  assign();
  write_locked();
}

void SensitivityBook::add_burst(std::uint64_t structure, Burst burst) {
  const std::lock_guard guard(mutex_);
  ++bursts_;
  extra_passes_ += burst.passes;
  counted_passes_ += takes_tensors_singly(options_.sensitivity) ? 0 : burst.passes;
  seconds_ += burst.seconds;
  burst_bytes_ = std::max(burst_bytes_, burst.bytes);
  unsteady_ = burst.unsteady;
  Graph& graph = graphs_[structure];
  if (graph.is_stale) {
    forget_measurements(burst.rows);
  }
  enter(std::move(burst.rows));
  graph.attempts = 0;
  graph.predicted = {std::move(burst.of_leaf), std::move(burst.weight_of_leaf)};
  graph.to_check = checks_widths();
  graph.checks = 0;
  unmet_.reset();
  beyond_prediction_ = 1;
  graph.is_stale = false;
  if (graph.passes >= graph.next) {
    plan_next(graph);
  }
  plan_watch(graph);
  assign();
  write_locked();
}

// Earlier measurements of these units are wrong. Much older ones have little weight as it is, and
// stay for inspection.
void SensitivityBook::forget_measurements(const std::vector<Unit>& rows) {
  std::unordered_set<std::uint64_t> measured_again;
  for (const Unit& unit : rows) {
    if (!unit.measurements.empty()) {
      measured_again.insert(unit.key);
    }
  }
  const std::uint64_t half = steps_.load(std::memory_order_relaxed) / 2;
  for (Unit& unit : profile_.units) {
    if (measured_again.contains(unit.key)) {
      std::erase_if(unit.measurements, [half](const auto& m) { return m.step > half; });
    }
  }
}

void SensitivityBook::add_watch(std::uint64_t structure, bool stale, std::uint64_t passes,
                                double seconds) {
  const std::lock_guard guard(mutex_);
  extra_passes_ += passes;
  counted_passes_ += passes;
  seconds_ += seconds;
  Graph& graph = graphs_[structure];
  graph.attempts = 0;
  graph.is_stale = stale;
  plan_watch(graph);
}

SensitivityBook::Predicted SensitivityBook::predicted_by(std::uint64_t structure) const {
  const std::lock_guard guard(mutex_);
  const auto found = graphs_.find(structure);
  return found != graphs_.end() ? found->second.predicted : Predicted();
}

void SensitivityBook::add_check(std::uint64_t structure, const Check& check) {
  const std::lock_guard guard(mutex_);
  extra_passes_ += check.passes;
  counted_passes_ += options_.verify ? 2 : check.passes;
  seconds_ += check.seconds;
  predicted_ = check.predicted;
  checked_ = check.measured;
  Graph& graph = graphs_[structure];
  graph.to_check = false;
  graph.attempts = 0;
  const bool is_above = note_noise_of_budget(check);
  if (check.distrusted.empty() && options_.budget == 0) {
    graph.predicted = {};  // no check follows before the next measurement
  }
  if (!check.distrusted.empty()) {
    distrust(graph, check.distrusted);
  } else if (!is_above) {
    return;
  }
  changed_ = true;
  assign();
  write_locked();
}

// These get the default until the next measurement.
void SensitivityBook::distrust(Graph& graph, const std::vector<std::uint64_t>& units) {
  graph.to_check = ++graph.checks < kMostChecks;  // others have new widths now
  std::string names;
  for (Unit& unit : profile_.units) {
    if (std::find(units.begin(), units.end(), unit.key) != units.end()) {
      unit.distrusted = true;
      names += (names.empty() ? "" : ", ") + unit.producer + " to " + unit.reader;
    }
  }
  std::fprintf(
      stderr,
      "pleat: noise is larger than was predicted; these tensors get the default again: %s\n",
      printable(names, kLongest).c_str());
}

// ---- the file, reports --------------------------------------------------------------------------

void SensitivityBook::write() noexcept {
  const std::lock_guard guard(mutex_);
  write_locked();
}

void SensitivityBook::write_locked() noexcept {
  if (file_.empty() || !changed_ || profile_.units.empty()) {
    return;
  }
  try {
    for (Unit& unit : profile_.units) {
      if (unit.fixed.empty()) {
        set_asked(unit, bits_.entry_of({unit.key}));
      }
    }
    const std::string problem = sensitivity::write_profile(profile_, file_);
    changed_ = false;
    if (!problem.empty()) {
      complain(problem);
      file_.clear();
    }
  } catch (...) {  // no memory
  }
}

SensitivityBook::Summary SensitivityBook::summary() const {
  const std::lock_guard guard(mutex_);
  Summary s;
  s.any = !profile_.units.empty();
  s.file = file_;
  const Profile seen = seen_units();
  // Where nothing is noisy: the bits that would be.
  const sensitivity::Assignment assignment =
      assignment_.choices.empty() ? assignment_of(seen, std::nullopt) : assignment_;
  Profile measured;
  measured.objective = profile_.objective;
  auto choice = assignment.choices.begin();  // both are in the profile's order
  for (const Unit& unit : seen.units) {
    s.units += unit.costs.empty() ? 0 : 1;
    s.distrusted += unit.distrusted ? 1 : 0;
    if (!unit.may_be_noisy()) {
      continue;
    }
    const std::uint8_t width = (choice++)->width;
    if (unit.is_measured()) {
      s.bytes += unit.cost_at(width).bytes;
      measured.units.push_back(unit);
    }
  }
  s.measured = measured.units.size();
  s.objective = profile_.objective;
  s.noise = assignment.noise;
  s.bits = s.measured == 0 ? 0 : sensitivity::equivalent_bits(measured, s.bytes);
  const sensitivity::UniformCost uniform = sensitivity::uniform_cost(measured, options_.bits);
  s.uniform_noise = uniform.noise;
  s.uniform_bytes = uniform.bytes;
  s.bursts = bursts_;
  s.passes = extra_passes_;
  s.seconds = seconds_;
  s.burst_bytes = burst_bytes_;
  s.predicted = predicted_;
  s.checked = checked_;
  s.unsteady = unsteady_;
  s.refusals = refusals_;
  return s;
}

double SensitivityBook::unsteady() const {
  const std::lock_guard guard(mutex_);
  return unsteady_;
}

Profile SensitivityBook::profile() const {
  const std::lock_guard guard(mutex_);
  return profile_;
}

}  // namespace pleat::bridge
