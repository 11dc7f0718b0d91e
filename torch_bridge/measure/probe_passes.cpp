#include "torch_bridge/measure/probe_passes.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <utility>

#include "sensitivity/key.h"
#include "torch_bridge/core/runtime.h"
#include "torch_bridge/measure/gradient_sketches.h"
#include "torch_bridge/memory/device_backend.h"
#include "torch_bridge/torch_access/python_source.h"

namespace pleat::bridge {

using sensitivity::Sketch;
using torch::autograd::edge_list;
using torch::autograd::variable_list;

namespace {

using compress::block::Disturbance;

// The noise of one pass: on the records while this lives.
class PassNoise {
 public:
  // `bits`, `amplitudes`: of each unit; 0: none. `seed`: of all noise but that of `redrawn`.
  PassNoise(const std::vector<ReadUnit*>& units, const std::vector<std::uint8_t>& bits,
            const std::vector<double>& amplitudes, std::uint64_t seed,
            std::optional<std::size_t> redrawn) {
    for (std::size_t u = 0; u < units.size(); ++u) {
      if (amplitudes[u] == 0 || bits[u] == 0) {
        continue;
      }
      const std::uint64_t own_seed = u == redrawn ? sensitivity::mix(seed) : seed;
      for (TorchRecord* const record : units[u]->records) {
        words_.push_back(std::make_unique<allocator::DisturbanceWords>(
            pack_disturbance(units[u]->decision.choice,
                             Disturbance{.bits = bits[u],
                                         .amplitude = static_cast<float>(amplitudes[u]),
                                         .nonce = sensitivity::mix(record->nonce ^ own_seed)})));
        record->set_disturbance(words_.back().get());
        records_.push_back(record);
      }
    }
  }
  ~PassNoise() {
    for (TorchRecord* const record : records_) {
      record->set_disturbance(nullptr);
    }
  }
  PassNoise(const PassNoise&) = delete;
  PassNoise& operator=(const PassNoise&) = delete;

 private:
  std::vector<std::unique_ptr<allocator::DisturbanceWords>> words_;
  std::vector<TorchRecord*> records_;
};

}  // namespace

ProbePasses::ProbePasses(const Runtime& runtime, const edge_list& roots,
                         const ExtraPasses::Run& run, bool exactly, ReadLog::Costs costs)
    : graph_(survey(roots)) {
  refuse_obstacles(runtime);
  passes_.emplace(run, graph_);
  ReadLog log(costs);
  variable_list of_leaves = gradients(&log);
  if (exactly) {
    kept_ = of_leaves;
  }
  GradientSketches clean(std::move(of_leaves));
  if (log.recorded()) {
    throw Refusal{"backward records operators, as a checkpoint does"};
  }
  if (!std::isfinite(clean.energy)) {
    throw Refusal{"gradients are not finite", true};
  }
  units = log.take();
  for (ReadUnit& unit : units) {
    if (unit.noisy) {
      noisy.push_back(&unit);
    }
  }
  energy = clean.energy;
  sketches = std::move(clean.of_leaf);
}

void ProbePasses::refuse_obstacles(const Runtime& runtime) const {
  if (!graph_.obstacle.empty()) {
    throw Refusal{graph_.obstacle + " does more than to work out a gradient"};
  }
  if (!graph_.retaining.empty()) {
    throw Refusal{"retain_grad"};
  }
  if (runtime.sensitivity.any_foreign_hooks()) {
    throw Refusal{"the script's own hooks on saved tensors, as a checkpoint has them", true};
  }
  if (!graph_.hooked.empty()) {
    throw Refusal{"a hook on a gradient at " + graph_.hooked};
  }
  if (!graph_.custom.empty() && !runtime.options().probe_custom) {
    throw Refusal{"the function " + graph_.custom +
                  " may do more than to work out a gradient (probe_custom:1 if not)"};
  }
  if (graph_.leaves.empty()) {
    throw Refusal{"no leaf to reach"};
  }
  for (const torch::autograd::Edge& leaf : graph_.leaves) {
    const DeviceBackend* const backend = backend_of(leaf.function->input_metadata(0).device());
    if (backend != nullptr && backend->is_captured()) {
      throw Refusal{"a CUDA graph is being captured", true};
    }
  }
  if (operators_are_watched()) {
    throw Refusal{"a dispatch mode, tracing or a function transform"};
  }
  if (const std::string module = sharded_module(); !module.empty()) {
    throw Refusal{"parameters are sharded: " + module};
  }
}

variable_list ProbePasses::gradients(PassWatch* watch) {
  ++count_;
  variable_list of_leaves = passes_->gradients(graph_.leaves, PassValues::kPayload, watch);
  // Sketches of all passes stay to the end.
  std::uint64_t bytes = count_ * of_leaves.size() * sizeof(Sketch);
  for (const variable_list* const list : {&of_leaves, &kept_}) {
    for (const at::Tensor& gradient : *list) {
      bytes += gradient.defined() ? gradient.nbytes() : 0;
    }
  }
  bytes_ = std::max(bytes_, bytes);
  return of_leaves;
}

variable_list ProbePasses::noisy_gradients(const std::vector<std::uint8_t>& bits,
                                           const std::vector<double>& amplitudes,
                                           std::uint64_t seed, std::optional<std::size_t> redrawn) {
  const PassNoise noise(noisy, bits, amplitudes, seed, redrawn);
  return gradients(nullptr);
}

std::vector<Sketch> ProbePasses::errors(const std::vector<std::uint8_t>& bits,
                                        const std::vector<double>& amplitudes, std::uint64_t seed) {
  variable_list of_leaves = noisy_gradients(bits, amplitudes, seed);
  std::vector<double> energies;
  for (std::size_t p = 0; p < kept_.size(); ++p) {
    energies.push_back(energy_of_difference(of_leaves[p], kept_[p]));
  }
  GradientSketches with_noise(std::move(of_leaves));
  for (std::size_t p = 0; p < sketches.size(); ++p) {
    with_noise.of_leaf[p] = difference(with_noise.of_leaf[p], sketches[p]);
    if (!kept_.empty()) {
      scale_to(energies[p], with_noise.of_leaf[p]);
    }
  }
  return std::move(with_noise.of_leaf);
}

std::vector<double> ProbePasses::weights(sensitivity::Objective objective,
                                         const std::vector<double>& noise) const {
  std::vector<double> weights(sketches.size(), 1);
  if (objective == sensitivity::Objective::kGradient) {
    return weights;
  }
  std::vector<double> elements;
  for (const torch::autograd::Edge& leaf : graph_.leaves) {
    double product = 1;
    for (const c10::SymInt& size : leaf.function->input_metadata(0).shape_as_dim_vector()) {
      product *= static_cast<double>(size.guard_int(__FILE__, __LINE__));
    }
    elements.push_back(product);
  }
  const double all = std::accumulate(elements.begin(), elements.end(), 0.0);
  for (std::size_t p = 0; p < weights.size(); ++p) {
    const double own = energy_of(sketches[p]) + noise[p];
    weights[p] = own > 0 ? elements[p] / all * energy / own : 0;
  }
  return weights;
}

void ProbePasses::end() {
  passes_.reset();
  kept_.clear();
}

}  // namespace pleat::bridge
