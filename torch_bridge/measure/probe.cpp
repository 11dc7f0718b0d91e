#include "torch_bridge/measure/probe.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "sensitivity/sensitivity.h"
#include "torch_bridge/core/runtime.h"
#include "torch_bridge/measure/gradient_sketches.h"
#include "torch_bridge/measure/probe_parts.h"
#include "torch_bridge/measure/probe_passes.h"
#include "torch_bridge/policy/proofs.h"
#include "torch_bridge/torch_access/python_source.h"

namespace pleat::bridge {
namespace {

using sensitivity::Sketch;
using sensitivity::Stage;
using sensitivity::StageErrors;
using torch::autograd::edge_list;
using torch::autograd::variable_list;
using Share = SensitivityBook::Share;

constexpr std::size_t kFirstPasses = 8, kSecondPasses = 7;

// ---- as GACT measures ---------------------------------------------------------------------------

double energy_of_difference(const variable_list& a, const variable_list& b) {
  double energy = 0;
  for (std::size_t p = 0; p < a.size(); ++p) {
    energy += bridge::energy_of_difference(a[p], b[p]);
  }
  return energy;
}

std::uint8_t fewest_bits(const sensitivity::Unit& unit) {
  const std::uint8_t width = unit.cost_at(unit.floor).width;
  return width != 0 ? width : unit.floor;
}

// Of each unit the energy of its noise at 4 bits, as GACT works it out (Liu et al. 2022, algorithm
// 1): all units are noisy, and the gradient is taken twice, with another noise of this one. By its
// program both are at 1 bit, or the fewest bits that the unit may have, and a third gradient, at 8
// bits, shows where the two erred alike.
std::vector<double> energies_by_gact(ProbePasses& clean, std::vector<std::uint8_t> bits,
                                     bool by_its_program, std::uint64_t seed) {
  constexpr double kMost = 1e10;  // as in the program
  const std::vector<double> amplitudes(bits.size(), 1.0);
  std::vector<double> energies;
  for (std::size_t u = 0; u < bits.size(); ++u) {
    const std::uint8_t own = bits[u];
    const std::uint64_t drawn = sensitivity::mix(seed + u);
    const std::uint8_t coarse = by_its_program ? fewest_bits(clean.noisy[u]->row) : own;
    bits[u] = coarse;
    const variable_list one = clean.noisy_gradients(bits, amplitudes, drawn);
    const variable_list other = clean.noisy_gradients(bits, amplitudes, drawn, u);
    double energy = energy_of_difference(one, other);
    if (by_its_program) {
      bits[u] = 8;
      const variable_list finer = clean.noisy_gradients(bits, amplitudes, drawn);
      energy = std::max(
          {energy, 2 * energy_of_difference(one, finer), 2 * energy_of_difference(other, finer)});
      energy = energy <= kMost ? energy : kMost;  // NaN, too
    }
    energies.push_back(energy / 2 * sensitivity::gact_shape(4) / sensitivity::gact_shape(coarse));
    bits[u] = own;
  }
  return energies;
}

// ---- turns --------------------------------------------------------------------------------------

std::vector<sensitivity::Unit> rows_of(std::vector<ReadUnit>& units) {
  std::vector<sensitivity::Unit> rows;
  rows.reserve(units.size());
  for (ReadUnit& unit : units) {
    rows.push_back(std::move(unit.row));
  }
  return rows;
}

void run_stage(ProbePasses& clean, const Stage& stage, const std::vector<std::uint8_t>& bits,
               std::uint64_t seed, StageErrors& into) {
  const std::size_t units = clean.noisy.size();
  into.stage = &stage;
  into.errors.resize(clean.leaves().size());
  for (std::size_t pass = 0; pass < stage.passes(); ++pass) {
    std::vector<double> amplitudes(units);
    for (std::size_t u = 0; u < units; ++u) {
      amplitudes[u] = stage.amplitudes[u] * stage.signs[pass * units + u];
    }
    std::vector<Sketch> errors = clean.errors(bits, amplitudes, seed);
    for (std::size_t p = 0; p < errors.size(); ++p) {
      if (!std::isfinite(energy_of(errors[p]))) {
        throw Refusal{"noise makes gradients that are not finite", true};
      }
      into.errors[p].push_back(errors[p]);
    }
  }
}

}  // namespace

// A burst: its passes, then the pass of the script, then the evaluation of both.
class Measurement {
 public:
  Measurement(Runtime& runtime, std::uint64_t graph, const edge_list& roots,
              const ExtraPasses::Run& run)
      : start_(std::chrono::steady_clock::now()),
        runtime_(runtime),
        graph_(graph),
        how_(runtime.options().sensitivity),
        one_by_one_(how_ == Sensitivity::kExact),
        clean_(runtime, roots, run, one_by_one_) {
    if (is_of_gact(how_) && clean_.energy > 0) {
      enter_by_gact(sensitivity::mix(runtime.sensitivity.step() ^ graph));
    } else if (!clean_.noisy.empty() && clean_.energy > 0) {
      const Influence influence(roots, clean_.noisy);
      for (const torch::autograd::Edge& leaf : clean_.leaves()) {
        readers_.push_back(influence.units_before(leaf.function.get()));
      }
      run_stages(sensitivity::mix(runtime.sensitivity.step() ^ graph));
    }
    clean_.end();
    seconds_ = seconds_since(start_);
    arriving_.emplace(clean_.leaves());
  }

  [[nodiscard]] const void* arriving() const noexcept { return &*arriving_; }

  // After the pass of the script. Where that differs from the clean one, two equal passes differ:
  // so much of what was measured is no noise of ours.
  void finish(bool pass_ended_well) {
    std::vector<double> floor;
    try {
      if (pass_ended_well) {
        floor = arriving_->differences(clean_.sketches);
      }
    } catch (...) {  // no memory on a device: it is as if nothing had arrived
    }
    arriving_.reset();
    SensitivityBook::Burst burst;
    const auto start = std::chrono::steady_clock::now();
    if (!stages_.empty()) {
      enter(one_by_one_ ? read_off(floor)
                        : sensitivity::estimate(stages_, readers_, clean_.noisy.size(), floor),
            burst);
    }
    for (std::size_t p = 0; p < floor.size() && clean_.energy > 0; ++p) {
      const double weight = p < burst.weight_of_leaf.size() ? burst.weight_of_leaf[p] : 1;
      burst.unsteady += weight * floor[p] / clean_.energy;
    }
    burst.rows = rows_of(clean_.units);
    burst.passes = clean_.count();
    burst.bytes = clean_.bytes();
    burst.seconds = seconds_ + seconds_since(start);
    runtime_.sensitivity.add_burst(graph_, std::move(burst));
  }

 private:
  [[nodiscard]] std::vector<std::uint8_t> probe_bits() const {
    std::vector<std::uint8_t> bits;
    bits.reserve(clean_.noisy.size());
    for (const ReadUnit* const unit : clean_.noisy) {
      bits.push_back(unit->probe_bits);
    }
    return bits;
  }

  void enter_by_gact(std::uint64_t seed) {
    const std::vector<double> energies =
        energies_by_gact(clean_, probe_bits(), how_ == Sensitivity::kGactCode, seed);
    for (std::size_t u = 0; u < energies.size(); ++u) {
      if (std::isfinite(energies[u])) {
        clean_.noisy[u]->row.measurements.push_back(
            {runtime_.sensitivity.step(), energies[u] / clean_.energy});
      }
    }
  }

  void run_stages(std::uint64_t seed) {
    const std::size_t units = clean_.noisy.size();
    const std::vector<std::uint8_t> bits = probe_bits();
    designs_.reserve(2);  // stages point to them
    designs_.push_back(one_by_one_ ? sensitivity::one_by_one(units)
                                   : sensitivity::first_stage(units, kFirstPasses, seed));
    run_stage(clean_, designs_[0], bits, seed, stages_.emplace_back());
    if (one_by_one_) {
      return;
    }
    const sensitivity::Estimate first = sensitivity::estimate(stages_, readers_, units);
    designs_.push_back(sensitivity::second_stage(first.energies, kSecondPasses, seed + 1));
    run_stage(clean_, designs_[1], bits, seed, stages_.emplace_back());
  }

  // Where each pass disturbed one unit, its error is the estimate.
  [[nodiscard]] sensitivity::Estimate read_off(const std::vector<double>& floor) const {
    const std::size_t units = clean_.noisy.size();
    sensitivity::Estimate found;
    found.energies.resize(units);
    for (std::size_t p = 0; p < clean_.leaves().size(); ++p) {
      auto& shares = found.of_parameter.emplace_back();
      for (const std::uint32_t u : readers_[p]) {
        const double least = p < floor.size() ? floor[p] : 0;
        const double energy = std::max(energy_of(stages_[0].errors[p][u]) - least, 0.0);
        shares.push_back({u, energy, 0});
        found.energies[u] += energy;
      }
    }
    return found;
  }

  void enter(const sensitivity::Estimate& found, SensitivityBook::Burst& burst) {
    const std::uint64_t step = runtime_.sensitivity.step();
    // At 4 bits: the added noise was that of other widths where 4 are not allowed.
    const auto at_4 = [&](std::uint32_t u, double energy) {
      const double error = clean_.noisy[u]->probe_error;
      return error > 0 ? energy / error / clean_.energy : 0.0;
    };
    std::vector<double> noise;  // of each leaf, at 4 bits
    for (const auto& shares : found.of_parameter) {
      noise.push_back(std::accumulate(shares.begin(), shares.end(), 0.0,
                                      [](double sum, const auto& s) { return sum + s.energy; }));
    }
    using sensitivity::Objective;
    const std::vector<double> energies = sensitivity::cautious_energies(found);
    std::vector<double> weights = clean_.weights(Objective::kUpdate, noise);
    const std::vector<double> of_update = sensitivity::cautious_energies(found, weights);
    for (std::uint32_t u = 0; u < clean_.noisy.size(); ++u) {
      clean_.noisy[u]->row.measurements.push_back(
          {step, at_4(u, energies[u]), at_4(u, of_update[u])});
    }
    if (runtime_.sensitivity.objective() == Objective::kUpdate) {
      burst.weight_of_leaf = std::move(weights);
    }
    for (const auto& shares : found.of_parameter) {
      std::vector<Share>& of_leaf = burst.of_leaf.emplace_back();
      for (const auto& share : shares) {
        of_leaf.push_back({clean_.noisy[share.unit]->row.key, at_4(share.unit, share.energy)});
      }
    }
  }

  const std::chrono::steady_clock::time_point start_;
  Runtime& runtime_;
  const std::uint64_t graph_;
  const Sensitivity how_;
  const bool one_by_one_;
  ProbePasses clean_;
  std::vector<std::vector<std::uint32_t>> readers_;
  std::vector<Stage> designs_;
  std::vector<StageErrors> stages_;
  double seconds_ = 0;
  std::optional<ArrivingGradients> arriving_;
};

namespace {

// Runs `body`. False if it comes to nothing; the book knows why then.
template <class Body>
bool attempt(SensitivityBook& book, std::uint64_t graph, Body&& body) {
  try {
    body();
    return true;
  } catch (const Refusal& refusal) {
    book.refuse(graph, refusal.why, refusal.again);
  } catch (...) {
    book.refuse(graph, line_of_exception(), true);
  }
  return false;
}

}  // namespace

std::uint64_t graph_of_interest(const edge_list& roots) noexcept {
  const Runtime* const runtime = Runtime::get();
  if (runtime == nullptr || !runtime->sensitivity.watching()) [[likely]] {
    return 0;
  }
  std::uint64_t graph = 1;
  for (const torch::autograd::Edge& root : roots) {
    if (root.is_valid()) {
      graph = sensitivity::structure_with(graph, structure_of(*root.function), root.input_nr);
    }
  }
  return graph;
}

ProbedPass::ProbedPass(std::uint64_t graph, const edge_list& roots, PassKind kind,
                       const ExtraPasses::Run& run)
    : graph_(graph) {
  Runtime* const runtime = Runtime::get();
  if (graph == 0 || runtime == nullptr) [[likely]] {
    return;
  }
  if (in_extra_pass() || torch::autograd::get_current_graph_task_id() >= 0 || runtime->retired() ||
      !runtime->enabled() || runtime->check.watching() || !kind.accumulates || kind.creates_graph) {
    return;
  }
  watch_optimizers();
  using Turn = SensitivityBook::Turn;
  SensitivityBook& book = runtime->sensitivity;
  if (book.has_budget()) {
    note_step_peak(*runtime);
  }
  const Turn turn = book.take_turn(graph);
  if (turn == Turn::kNone) {
    return;
  }
  struct EndOfTurn {  // unless the turn lasts as long as the pass
    SensitivityBook& book;
    const bool& lasts;
    ~EndOfTurn() {
      if (!lasts) {
        book.end_turn();
      }
    }
  } const end{book, has_turn_};
  const at::AutoGradMode no_grad(false);
  exceptions_ = std::uncaught_exceptions();
  switch (turn) {
    case Turn::kNone:
      break;
    case Turn::kRows:
      has_turn_ = attempt(book, graph, [&] {
        log_ = std::make_unique<ReadLog>();
        facts_.emplace(PassFacts{.watch = log_.get()});
      });
      break;
    case Turn::kMeasure:
      has_turn_ = attempt(book, graph, [&] {
        measurement_ = std::make_unique<Measurement>(*runtime, graph, roots, run);
        facts_.emplace(PassFacts{.arriving = measurement_->arriving()});
      });
      break;
    case Turn::kCheck:
      attempt(book, graph, [&] { check_assignment(*runtime, graph, roots, run); });
      break;
    case Turn::kWatch:
      attempt(book, graph, [&] { watch_assignment(*runtime, graph, roots, run); });
      break;
  }
}

ProbedPass::~ProbedPass() {
  if (!has_turn_) {
    return;
  }
  facts_.reset();
  SensitivityBook& book = Runtime::get()->sensitivity;
  try {
    const bool well = std::uncaught_exceptions() == exceptions_;
    if (measurement_ != nullptr) {
      measurement_->finish(well);
    } else {
      std::vector<ReadUnit> units = log_->take();
      book.add_rows(rows_of(units));
    }
  } catch (...) {  // no memory: the turn comes to nothing
    try {
      book.refuse(graph_, "there was no memory for what was measured", true);
    } catch (...) {
    }
  }
  measurement_.reset();
  book.end_turn();
}

}  // namespace pleat::bridge
