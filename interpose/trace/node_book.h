// NodeBook looks up the operator and the place in forward that recorded a node of autograd. The
// oldest nodes are forgotten: nodes are asked for in the backward pass after their forward pass.
#pragma once

#include <cstddef>
#include <cstdint>

#include "interpose/trace/life.h"

namespace pleat::trace {

template <template <class> class Table, std::size_t kGeneration>
class NodeBook {
 public:
  void note(std::uint64_t node, Origin origin) {
    if (node == 0) return;
    if (young().size() >= kGeneration && young().find(node) == nullptr) rotate();
    if (Origin* const place = young().find_or_insert(node)) *place = origin;
  }
  [[nodiscard]] const Origin* find(std::uint64_t node) const noexcept {
    const Origin* const origin = tables_[young_].find(node);
    return origin != nullptr ? origin : tables_[1 - young_].find(node);
  }
  // Another generation begins; the one before the last is forgotten.
  void rotate() noexcept {
    young_ = 1 - young_;
    young().clear();
  }
  void clear() noexcept {
    for (auto& table : tables_) table.clear();
  }
  // visit(node, origin): those of the present generation.
  template <class Visit>
  void for_each_young(Visit&& visit) noexcept {
    young().for_each(visit);
  }

 private:
  Table<Origin>& young() noexcept { return tables_[young_]; }

  Table<Origin> tables_[2];
  unsigned young_ = 0;
};

}  // namespace pleat::trace
