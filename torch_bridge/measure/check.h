// `pleat check`: a backward pass of the script is run with what was saved instead of what was
// compressed, and extra passes before it find out how far noise would have changed its gradients.
#pragma once

#include <optional>

#include "torch_bridge/measure/extra_passes.h"
#include "torch_bridge/policy/leaves.h"

namespace pleat::bridge {

class Runtime;

// A pass that was asked for, from before its first node to its end. While passes are still to be
// looked at (Runtime::check), all passes read what was saved.
class CheckedPass {
 public:
  // `run`: as ExtraPasses has it, on the graph of this pass. A pass that cannot be looked at is
  // noted with the reason. Throws only what is to end the pass that was asked for, too
  // (is_interruption()).
  CheckedPass(const torch::autograd::edge_list& roots, PassKind kind, ExtraPasses::Run run);
  ~CheckedPass();
  CheckedPass(const CheckedPass&) = delete;
  CheckedPass& operator=(const CheckedPass&) = delete;

 private:
  Runtime* runtime_ = nullptr;  // null: nothing is checked
  std::optional<PassFactsScope> facts_;
};

}  // namespace pleat::bridge
