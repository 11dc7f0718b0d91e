// Which operator of forward recorded a node of autograd, and where. The oldest are forgotten: nodes
// are asked for in the backward pass after their forward pass.
#pragma once

#include <cstdint>

#include "live_table.h"

namespace pleat::trace {

struct Origin {
  std::uint32_t op = 0;
  std::uint32_t stack = 0;
  std::uint32_t module = 0;  // a string: its path; 0: in none
};

class NodeBook {
 public:
  void note(std::uint64_t node, Origin origin) {
    if (node == 0) return;
    if (Origin* const known = young_.find(node)) {
      *known = origin;
      return;
    }
    if (young_.size() >= kGeneration) {
      old_ = std::move(young_);
      young_ = {};
    }
    if (Origin* const place = young_.insert(node)) *place = origin;
  }
  [[nodiscard]] const Origin* find(std::uint64_t node) const noexcept {
    if (const Origin* const origin = young_.find(node)) return origin;
    return old_.find(node);
  }

 private:
  static constexpr std::size_t kGeneration = 1u << 18;
  LiveTable<Origin> young_, old_;
};

}  // namespace pleat::trace
