// saved_by() lists the tensors that a node has saved, for the operators that networks are made of.
// It serves nodes whose recording was not observed (Pleat switched on by hand).
#pragma once

#include <mutex>
#include <vector>

#include "torch_bridge/torch_access/torch_version.h"

namespace pleat::bridge {

struct SavedBy {
  const torch::autograd::SavedVariableHooks* hooks;  // compare only
  int input;                                         // number of the node's input; -1: a result
};

// Empty for other nodes, and for a node that is running. Throws std::bad_alloc.
[[nodiscard]] std::vector<SavedBy> saved_by(const torch::autograd::Node& node);

// The mutex of a node: locked while it runs or releases its saved tensors.
[[nodiscard]] inline std::mutex& mutex_of(torch::autograd::Node& node) noexcept {
  struct Access : torch::autograd::Node {
    static std::mutex& of(torch::autograd::Node& n) noexcept { return n.*(&Access::mutex_); }
  };
  return Access::of(node);
}

}  // namespace pleat::bridge
