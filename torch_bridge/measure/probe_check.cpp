#include "torch_bridge/measure/probe_parts.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <string>
#include <unordered_map>
#include <vector>

#include "sensitivity/sensitivity.h"
#include "torch_bridge/core/option_text.h"
#include "torch_bridge/core/runtime.h"
#include "torch_bridge/measure/gradient_sketches.h"
#include "torch_bridge/measure/probe_passes.h"

namespace pleat::bridge {

using sensitivity::Sketch;
using torch::autograd::edge_list;
using Share = SensitivityBook::Share;

namespace {

struct LedgerRow {
  std::string name;
  unsigned bits;
  double predicted, measured;
};

// One unit at a time with the noise of its width, beside what was predicted of it.
std::vector<LedgerRow> ledger(ProbePasses& clean, const std::vector<std::uint8_t>& bits,
                              const std::unordered_map<std::uint64_t, double>& predicted,
                              const std::vector<double>& weights, std::uint64_t seed) {
  std::vector<LedgerRow> rows;
  for (std::size_t u = 0; u < clean.noisy.size(); ++u) {
    if (bits[u] == 0) {
      continue;
    }
    std::vector<double> amplitudes(clean.noisy.size());
    amplitudes[u] = 1;
    const sensitivity::Unit& row = clean.noisy[u]->row;
    const auto found = predicted.find(row.key);
    double measured = 0;
    const std::vector<Sketch> errors = clean.errors(bits, amplitudes, seed);
    for (std::size_t p = 0; p < errors.size(); ++p) {
      measured += weights[p] * energy_of(errors[p]) / clean.energy;
    }
    rows.push_back({row.producer + " to " + row.reader, bits[u],
                    found != predicted.end() ? found->second : 0, measured});
  }
  std::sort(rows.begin(), rows.end(),
            [](const LedgerRow& a, const LedgerRow& b) { return a.measured > b.measured; });
  return rows;
}

void print(const std::vector<LedgerRow>& rows, const SensitivityBook::Check& all,
           sensitivity::Objective objective) {
  std::fprintf(stderr,
               "pleat: verify: noise of each saved tensor alone, in %% of the %s's norm\n"
               "  bits  predicted  measured\n",
               sensitivity::name_of(objective));
  constexpr std::size_t kMost = 100;
  for (std::size_t i = 0; i < std::min(kMost, rows.size()); ++i) {
    std::fprintf(stderr, "  %4u  %9.3g  %8.3g  %s\n", rows[i].bits,
                 100 * std::sqrt(rows[i].predicted), 100 * std::sqrt(rows[i].measured),
                 printable(rows[i].name, 100).c_str());
  }
  if (rows.size() > kMost) {
    std::fprintf(stderr, "  and %zu with less\n", rows.size() - kMost);
  }
  std::fprintf(stderr, "   all  %9.3g  %8.3g  at once\n", 100 * std::sqrt(all.predicted),
               100 * std::sqrt(all.measured));
}

std::unordered_map<std::uint64_t, const sensitivity::Unit*> units_with_costs(
    const sensitivity::Profile& profile) {
  std::unordered_map<std::uint64_t, const sensitivity::Unit*> units;
  for (const sensitivity::Unit& unit : profile.units) {
    if (!unit.costs.empty()) {
      units.emplace(unit.key, &unit);
    }
  }
  return units;
}

// The widths of all units, and the noise that these are predicted to have.
struct Widths {
  std::vector<std::uint8_t> bits;
  double predicted = 0;

  void add(const sensitivity::Unit& unit, sensitivity::Objective objective, std::uint8_t width) {
    bits.push_back(width);
    predicted += unit.noise(objective) * unit.cost_at(width).error;
  }
};

}  // namespace

void check_assignment(Runtime& runtime, std::uint64_t graph, const edge_list& roots,
                      const ExtraPasses::Run& run) {
  const auto start = std::chrono::steady_clock::now();
  SensitivityBook& book = runtime.sensitivity;
  const SensitivityBook::Predicted by_burst = book.predicted_by(graph);
  const std::vector<std::vector<Share>>& shares = by_burst.of_leaf;
  std::vector<double> weights = by_burst.weight_of_leaf;
  weights.resize(shares.size(), 1);
  const sensitivity::Profile profile = book.profile();
  const auto with_costs = units_with_costs(profile);
  ProbePasses clean(runtime, roots, run, /*exactly=*/false, ReadLog::Costs::kNo);
  SensitivityBook::Check found;
  std::vector<std::uint8_t> bits;
  std::unordered_map<std::uint64_t, double> error_of;  // as a multiple of that at 4 bits
  if (shares.size() == clean.leaves().size() && clean.energy > 0) {
    std::vector<double> amplitudes;
    for (const ReadUnit* const unit : clean.noisy) {
      bits.push_back(book.width_of(unit->row.key));
      amplitudes.push_back(1);
      const auto known = with_costs.find(unit->row.key);
      if (known != with_costs.end()) {
        error_of[unit->row.key] = known->second->cost_at(bits.back()).error;
      } else {
        amplitudes.back() = 0;  // it was not measured: nothing is predicted of it
      }
    }
    std::vector<double> predicted(shares.size()), measured(shares.size());
    for (std::size_t p = 0; p < shares.size(); ++p) {
      for (const Share& share : shares[p]) {
        if (const auto error = error_of.find(share.key); error != error_of.end()) {
          predicted[p] += weights[p] * share.noise * error->second;
        }
      }
      found.predicted += predicted[p];
    }
    // One draw of noise may be far from the mean: a draw that looks bad is repeated twice.
    const auto draw = [&](std::uint64_t seed, double weight) {
      const std::vector<Sketch> errors = clean.errors(bits, amplitudes, sensitivity::mix(seed));
      found.measured = 0;
      for (std::size_t p = 0; p < shares.size(); ++p) {
        const double noise = weights[p] * energy_of(errors[p]) / clean.energy;
        measured[p] += weight * (noise - measured[p]);
        found.measured += measured[p];
      }
    };
    // Small ones carry no information: their prediction is the remainder of the estimate.
    constexpr double kTwice = 2, kOfAll = 0.05, kAltogether = 1.5;
    const auto is_bad = [&](std::size_t p) {
      // NaN counts as bad.
      return !(measured[p] - kTwice * predicted[p] <= kOfAll * found.predicted);
    };
    const auto any_bad = [&] {
      bool any = false;
      for (std::size_t p = 0; p < shares.size(); ++p) {
        any = any || is_bad(p);
      }
      return any && !(found.measured <= kAltogether * found.predicted);
    };
    draw(graph, 1);
    for (const unsigned others : {1u, 2u}) {
      if (any_bad()) {
        draw(graph + others, 1.0 / (1 + others));
      }
    }
    // Whatever has fewer bits than the default because it seemed to matter little.
    const unsigned uniform = runtime.bits.uniform();
    for (std::size_t p = 0; any_bad() && p < shares.size(); ++p) {
      for (const Share& share : shares[p]) {
        if (is_bad(p) && book.width_of(share.key) < uniform && book.width_of(share.key) != 0) {
          found.distrusted.push_back(share.key);
        }
      }
    }
  }
  if (runtime.options().verify && bits.size() == clean.noisy.size()) {
    std::unordered_map<std::uint64_t, double> of_unit;
    for (std::size_t p = 0; p < shares.size(); ++p) {
      for (const Share& share : shares[p]) {
        of_unit[share.key] += weights[p] * share.noise * error_of[share.key];
      }
    }
    print(ledger(clean, bits, of_unit, weights, sensitivity::mix(graph)), found, profile.objective);
  }
  found.passes = clean.count();
  found.seconds = seconds_since(start);
  book.add_check(graph, found);
}

void watch_assignment(Runtime& runtime, std::uint64_t graph, const edge_list& roots,
                      const ExtraPasses::Run& run) {
  constexpr double kTwice = 2;
  const auto start = std::chrono::steady_clock::now();
  SensitivityBook& book = runtime.sensitivity;
  const sensitivity::Profile profile = book.profile();
  const auto with_costs = units_with_costs(profile);
  ProbePasses clean(runtime, roots, run, /*exactly=*/false, ReadLog::Costs::kNo);
  Widths assigned, uniform;
  std::vector<double> amplitudes;  // zero for what was never measured
  bool any = false;                // has another width than the uniform one
  for (const ReadUnit* const read : clean.noisy) {
    const auto known = with_costs.find(read->row.key);
    if (known == with_costs.end() || !known->second->is_measured()) {
      assigned.bits.push_back(0);
      uniform.bits.push_back(0);
      amplitudes.push_back(0);
      continue;
    }
    const sensitivity::Unit& unit = *known->second;
    assigned.add(unit, profile.objective, book.width_of(unit.key));
    uniform.add(unit, profile.objective, unit.uniform_cost(runtime.bits.uniform()).width);
    amplitudes.push_back(1);
    any = any || assigned.bits.back() != uniform.bits.back();
  }
  bool stale = false;
  if (any && clean.energy > 0 && assigned.predicted > 0) {
    // The difference of two equal passes is no noise of ours.
    const double floor = book.unsteady() * clean.energy;
    double of_assigned = 0, of_uniform = 0;
    unsigned draws = 0;
    const auto draw = [&](std::uint64_t seed) {
      const auto energies_at = [&](const Widths& widths) {
        std::vector<double> energies;
        for (const Sketch& error : clean.errors(widths.bits, amplitudes, sensitivity::mix(seed))) {
          energies.push_back(energy_of(error));
        }
        return energies;
      };
      const std::vector<double> with_assigned = energies_at(assigned);
      const std::vector<double> with_uniform = energies_at(uniform);
      const std::vector<double> weights = clean.weights(profile.objective, with_uniform);
      const auto weighed = [&](const std::vector<double>& energies) {
        return std::inner_product(energies.begin(), energies.end(), weights.begin(), -floor);
      };
      of_assigned += weighed(with_assigned);
      of_uniform += weighed(with_uniform);
      ++draws;
      const double all = draws * clean.energy;
      const bool is_allowed = of_assigned <= all * book.noise_ceiling(of_uniform / all);
      // NaN counts as stale.
      return !(is_allowed &&
               of_assigned * uniform.predicted <= kTwice * of_uniform * assigned.predicted);
    };
    stale = draw(graph) && draw(graph + 1);  // one may be far from the mean
  }
  clean.end();
  book.add_watch(graph, stale, clean.count(), seconds_since(start));
}

}  // namespace pleat::bridge
