// Which threads recorded a graph: autograd stores the number of the recording thread in each node.
#pragma once

#include <c10/util/SmallVector.h>

#include <cstdint>

#include "torch_bridge/torch_access/torch_version.h"

namespace pleat::bridge {

// The threads that recorded the nodes of `roots`; without roots, this thread.
using ThreadNumbers = c10::SmallVector<std::uint64_t, 4>;
[[nodiscard]] ThreadNumbers recorders_of(const torch::autograd::edge_list& roots);

}  // namespace pleat::bridge
