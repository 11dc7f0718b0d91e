// The parts of the probe: checks of an assignment, the saved tensors behind each leaf, the peak of
// a step, and the optimizers that step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "torch_bridge/measure/extra_passes.h"
#include "torch_bridge/measure/read_log.h"
#include "torch_bridge/torch_access/torch_version.h"

namespace pleat::bridge {

class Runtime;

// Before a pass over the graph: a clean pass and one with the noise of the widths in force, once
// more; where that looks bad, two others. With the option `verify` one more for each unit. Tells
// Runtime::sensitivity what was found. Throws as ProbePasses does.
void check_assignment(Runtime& runtime, std::uint64_t graph,
                      const torch::autograd::edge_list& roots, const ExtraPasses::Run& run);

// Likewise: a clean pass, one with the noise of the widths in force, and one with that of one width
// for all; where that looks bad, two more. The ratio of the two is held against the predicted one,
// so that how large a batch's own gradient is does not matter. Noise above a budget's ceiling looks
// bad, too.
void watch_assignment(Runtime& runtime, std::uint64_t graph,
                      const torch::autograd::edge_list& roots, const ExtraPasses::Run& run);

// Which saved tensors may have disturbed the gradient of which leaf: those that some node on a path
// from the roots to the leaf has read.
class Influence {
 public:
  // Over the graph of the roots, which is alive. `units` are numbered from 0.
  Influence(const torch::autograd::edge_list& roots, const std::vector<ReadUnit*>& units);

  [[nodiscard]] std::vector<std::uint32_t> units_before(const torch::autograd::Node* leaf) const;

 private:
  using Set = std::vector<std::uint64_t>;  // a bit for each unit
  Set& set_of(const torch::autograd::Node* node);
  void spread(const torch::autograd::edge_list& roots);

  const std::size_t words_;
  std::unordered_map<const torch::autograd::Node*, Set> sets_;
};

// A step ends and the next begins: tells Runtime::sensitivity what was taken at the peak by the
// heap that has the most in payloads.
void note_step_peak(Runtime& runtime) noexcept;

// From now on the book gets the name of the class, such as "AdamW", at the start of each step of an
// optimizer of torch.optim, or of a class of it. Torch's optimizers name themselves in a profiler's
// scope around each step. For the life of the process; the first call counts.
void watch_optimizers();

}  // namespace pleat::bridge
