// The nodes of a graph, and the threads that recorded them: autograd stores the number of the
// recording thread in each node.
#pragma once

#include <c10/util/SmallVector.h>

#include <cstdint>
#include <unordered_set>
#include <vector>

#include "torch_bridge/torch_access/torch_version.h"

namespace pleat::bridge {

// The threads that recorded the nodes of `roots`; without roots, this thread.
using ThreadNumbers = c10::SmallVector<std::uint64_t, 4>;
[[nodiscard]] ThreadNumbers recorders_of(const torch::autograd::edge_list& roots);

// Calls visit(node) once for each node that the roots lead to, accumulators among them. Linear in
// the edges. Throws std::bad_alloc.
template <class Visit>
void visit_nodes(const torch::autograd::edge_list& roots, const Visit& visit) {
  std::vector<const torch::autograd::Node*> met;
  std::unordered_set<const torch::autograd::Node*> seen;
  const auto meet = [&](const torch::autograd::Edge& edge) {
    if (edge.is_valid() && seen.insert(edge.function.get()).second) {
      met.push_back(edge.function.get());
    }
  };
  for (const torch::autograd::Edge& root : roots) {
    meet(root);
  }
  while (!met.empty()) {
    const torch::autograd::Node& node = *met.back();
    met.pop_back();
    visit(node);
    for (const torch::autograd::Edge& edge : node.next_edges()) {
      meet(edge);
    }
  }
}

}  // namespace pleat::bridge
