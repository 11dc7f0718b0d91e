// The extra passes of a probe: a clean one, which says what the graph reads, then any number with
// noise on what was restored.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sensitivity/probe.h"
#include "sensitivity/profile.h"
#include "torch_bridge/measure/extra_passes.h"
#include "torch_bridge/measure/read_log.h"

namespace pleat::bridge {

class Runtime;

// A turn that comes to nothing. `again`: the next pass may do better.
struct Refusal {
  std::string why;
  bool again = false;
};

// The time that a turn has taken so far.
[[nodiscard]] inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

class ProbePasses {
 public:
  // Runs the clean pass. `exactly`: errors have their exact energies, for which the clean gradients
  // are kept. Without costs the rows have none. Throws Refusal, errors of a pass, and
  // std::bad_alloc.
  ProbePasses(const Runtime& runtime, const torch::autograd::edge_list& roots,
              const ExtraPasses::Run& run, bool exactly,
              ReadLog::Costs costs = ReadLog::Costs::kYes);

  // Runs a pass with noise on the units of `noisy`: each with that of so many bits (0: none), times
  // its amplitude. The same seed gives the same noise. Returns, for each leaf, the sketch of the
  // gradient's error. Throws what the pass throws.
  [[nodiscard]] std::vector<sensitivity::Sketch> errors(const std::vector<std::uint8_t>& bits,
                                                        const std::vector<double>& amplitudes,
                                                        std::uint64_t seed);
  // The gradients of such a pass. `redrawn`: the unit whose noise is another than the seed's.
  [[nodiscard]] torch::autograd::variable_list noisy_gradients(
      const std::vector<std::uint8_t>& bits, const std::vector<double>& amplitudes,
      std::uint64_t seed, std::optional<std::size_t> redrawn = std::nullopt);
  // The random state is again what it was. Only units, sketches and counts are there from now on.
  void end();

  // The weight of the noise in each leaf's gradient: with Objective::kUpdate as much as if all
  // leaves' elements were of one size, that of the clean gradient and the noise (its energy) of a
  // leaf.
  [[nodiscard]] std::vector<double> weights(sensitivity::Objective objective,
                                            const std::vector<double>& noise) const;

  [[nodiscard]] const torch::autograd::edge_list& leaves() const noexcept { return graph_.leaves; }
  [[nodiscard]] std::uint64_t count() const noexcept { return count_; }
  // Bytes of gradients and sketches that were there at once.
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }

  std::vector<ReadUnit> units;
  std::vector<ReadUnit*> noisy;               // of these
  std::vector<sensitivity::Sketch> sketches;  // of the clean gradients of the leaves
  double energy = 0;                          // their squared norm

 private:
  void refuse_obstacles(const Runtime& runtime) const;
  torch::autograd::variable_list gradients(PassWatch* watch);

  const GraphSurvey graph_;
  std::optional<ExtraPasses> passes_;
  torch::autograd::variable_list kept_;
  std::uint64_t count_ = 0;
  std::uint64_t bytes_ = 0;
};

}  // namespace pleat::bridge
