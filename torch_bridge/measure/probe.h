// Measures how much the noise of each saved tensor disturbs the gradient, inside the script's own
// backward: extra passes over its graph, then the pass that was asked for, which reads clean
// values. The widths are then set by measure/book/sensitivity_book.h.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "torch_bridge/measure/extra_passes.h"
#include "torch_bridge/measure/read_log.h"
#include "torch_bridge/policy/leaves.h"

namespace pleat::bridge {

class Measurement;
class Runtime;

// The structure of a graph by its roots, if passes are of interest; else 0. Before the pass begins.
[[nodiscard]] std::uint64_t graph_of_interest(const torch::autograd::edge_list& roots) noexcept;

// A pass that was asked for, from before its first node to its end. If it is its turn, extra passes
// run first. A turn that comes to nothing leaves the pass as it is, and everything as it was.
class ProbedPass {
 public:
  // `run`: as ExtraPasses has it, on the graph of this pass. Throws only what is to end the pass
  // that was asked for, too (is_interruption()).
  ProbedPass(std::uint64_t graph, const torch::autograd::edge_list& roots, PassKind kind,
             const ExtraPasses::Run& run);
  ~ProbedPass();
  ProbedPass(const ProbedPass&) = delete;
  ProbedPass& operator=(const ProbedPass&) = delete;

 private:
  const std::uint64_t graph_;
  bool has_turn_ = false;                     // to the end of the pass
  int exceptions_ = 0;                        // in flight when the pass began
  std::unique_ptr<ReadLog> log_;              // of this very pass
  std::optional<PassFactsScope> facts_;       // which tell it
  std::unique_ptr<Measurement> measurement_;  // that waits for the end of the pass
};

}  // namespace pleat::bridge
