// LeafNumbers numbers the weights of a process for keys, by type, shape and order of first read. A
// repeated run yields the same numbers. Guarded by the ledger's lock.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "torch_bridge/torch_access/torch_version.h"

namespace torch::autograd {
struct AccumulateGrad;
}

namespace pleat::bridge {

class LeafNumbers {
 public:
  // The structure of a leaf (sensitivity/key.h). A leaf that is not a weight gets the structure of
  // its kind, because the script makes another one in each step. Throws std::bad_alloc.
  [[nodiscard]] std::uint64_t structure_of(const torch::autograd::AccumulateGrad& leaf,
                                           bool is_weight);

 private:
  using WeakLeaf = c10::weak_intrusive_ptr<c10::TensorImpl>;
  struct Known {
    std::uint64_t structure;
    WeakLeaf leaf;
  };
  void forget_dead_leaves();

  std::unordered_map<const c10::TensorImpl*, Known> known_;
  std::size_t sweep_at_ = 64;
  // The weights of each kind, by number. The next new weight takes the number of a freed one.
  std::unordered_map<std::uint64_t, std::vector<WeakLeaf>> of_kind_;
};

}  // namespace pleat::bridge
