// mutex_of() returns the mutex of a node: locked while it runs or releases its saved tensors.
#pragma once

#include <mutex>

#include "torch_bridge/torch_access/torch_version.h"

namespace pleat::bridge {

[[nodiscard]] inline std::mutex& mutex_of(torch::autograd::Node& node) noexcept {
  struct Access : torch::autograd::Node {
    static std::mutex& of(torch::autograd::Node& n) noexcept { return n.*(&Access::mutex_); }
  };
  return Access::of(node);
}

}  // namespace pleat::bridge
