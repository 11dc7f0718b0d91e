// Whether the noise of the widths in force does what was predicted, and whether it still does
// later.
#pragma once

#include <cstdint>

#include "torch_bridge/measure/extra_passes.h"

namespace pleat::bridge {

class Runtime;

// Before a pass over the graph: a clean pass and one with the noise of the widths in force, once
// more; where that looks bad, two others. With the option `verify` one more for each unit. Tells
// Runtime::sensitivity what was found. Throws as ProbePasses does.
void check_assignment(Runtime& runtime, std::uint64_t graph,
                      const torch::autograd::edge_list& roots, const ExtraPasses::Run& run);

// Likewise: a clean pass, one with the noise of the widths in force, and one with that of one width
// for all; where that looks bad, two more. The ratio of the two is held against the predicted one,
// so that how large a batch's own gradient is does not matter.
void watch_assignment(Runtime& runtime, std::uint64_t graph,
                      const torch::autograd::edge_list& roots, const ExtraPasses::Run& run);

}  // namespace pleat::bridge
