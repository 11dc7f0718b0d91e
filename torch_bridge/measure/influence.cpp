#include "torch_bridge/measure/probe_parts.h"

#include "torch_bridge/policy/node_class.h"

namespace pleat::bridge {

using torch::autograd::edge_list;
using torch::autograd::Node;

Influence::Influence(const edge_list& roots, const std::vector<ReadUnit*>& units)
    : words_((units.size() + 63) / 64) {
  for (std::size_t u = 0; u < units.size(); ++u) {
    for (const Node* const reader : units[u]->readers) {
      set_of(reader)[u / 64] |= std::uint64_t{1} << (u % 64);
    }
  }
  spread(roots);
}

std::vector<std::uint32_t> Influence::units_before(const Node* leaf) const {
  std::vector<std::uint32_t> units;
  if (const auto found = sets_.find(leaf); found != sets_.end()) {
    for (std::size_t u = 0; u < 64 * words_; ++u) {
      if ((found->second[u / 64] >> (u % 64) & 1) != 0) {
        units.push_back(static_cast<std::uint32_t>(u));
      }
    }
  }
  return units;
}

Influence::Set& Influence::set_of(const Node* node) {
  Set& set = sets_[node];
  set.resize(words_);
  return set;
}

// In an order in which each node comes after all that lead to it.
void Influence::spread(const edge_list& roots) {
  std::unordered_map<const Node*, std::size_t> incoming;
  std::vector<const Node*> walk;
  const auto meet = [&](const torch::autograd::Edge& edge) {
    if (edge.is_valid() && incoming[edge.function.get()]++ == 0) {
      walk.push_back(edge.function.get());
    }
  };
  for (const torch::autograd::Edge& root : roots) {
    meet(root);
  }
  for (std::size_t at = 0; at < walk.size(); ++at) {
    for (const torch::autograd::Edge& edge : walk[at]->next_edges()) {
      meet(edge);
    }
  }
  std::vector<const Node*> ready;
  const auto arrive = [&](const torch::autograd::Edge& edge) {
    if (edge.is_valid() && --incoming[edge.function.get()] == 0) {
      ready.push_back(edge.function.get());
    }
  };
  for (const torch::autograd::Edge& root : roots) {
    arrive(root);
  }
  while (!ready.empty()) {
    const Node* const node = ready.back();
    ready.pop_back();
    const Set own = set_of(node);
    for (const torch::autograd::Edge& edge : node->next_edges()) {
      if (edge.is_valid()) {
        Set& other = set_of(edge.function.get());
        for (std::size_t w = 0; w < words_; ++w) {
          other[w] |= own[w];
        }
      }
      arrive(edge);
    }
    if (!class_of(*node).accumulate_grad) {
      sets_.erase(node);
    }
  }
}

}  // namespace pleat::bridge
