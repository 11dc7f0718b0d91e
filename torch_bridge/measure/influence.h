// Which saved tensors may have disturbed the gradient of which leaf: those that some node on a path
// from the roots to the leaf has read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "torch_bridge/measure/read_log.h"
#include "torch_bridge/torch_access/torch_version.h"

namespace pleat::bridge {

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

}  // namespace pleat::bridge
