#include "torch_bridge/policy/leaf_numbers.h"

#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <algorithm>

#include "sensitivity/key.h"

namespace pleat::bridge {
namespace {

using torch::autograd::AccumulateGrad;

std::uint64_t kind_of(const AccumulateGrad& leaf, bool with_sizes) {
  const auto& shape = leaf.input_metadata(0).shape_as_dim_vector();
  std::uint64_t kind =
      sensitivity::mix(static_cast<std::uint64_t>(leaf.variable.scalar_type()) << 8 |
                       static_cast<std::uint64_t>(shape.size()));
  if (with_sizes) {
    for (const c10::SymInt& size : shape) {
      kind = sensitivity::mix(kind ^ static_cast<std::uint64_t>(size.maybe_as_int().value_or(-1)));
    }
  }
  return kind;
}

bool is_dead(const c10::weak_intrusive_ptr<c10::TensorImpl>& leaf) noexcept {
  return leaf.expired();
}

}  // namespace

// A weak reference keeps the memory of a TensorImpl.
void LeafNumbers::forget_dead_leaves() {
  std::erase_if(known_, [](const auto& entry) { return is_dead(entry.second.leaf); });
  std::erase_if(of_kind_, [](const auto& kind) {
    return std::all_of(kind.second.begin(), kind.second.end(), is_dead);
  });
  sweep_at_ = 2 * known_.size() + 64;
}

std::uint64_t LeafNumbers::structure_of(const AccumulateGrad& leaf, bool is_weight) {
  if (!is_weight) {
    return sensitivity::leaf_structure(kind_of(leaf, false), 0);
  }
  const c10::TensorImpl* const impl = leaf.variable.unsafeGetTensorImpl();
  if (const auto found = known_.find(impl);
      found != known_.end() && !found->second.leaf.expired()) {
    return found->second.structure;
  }
  if (known_.size() >= sweep_at_) {
    forget_dead_leaves();
  }
  const std::uint64_t kind = kind_of(leaf, true);
  std::vector<WeakLeaf>& all = of_kind_[kind];
  const auto place = std::find_if(all.begin(), all.end(), is_dead);
  const std::uint64_t number = static_cast<std::uint64_t>(place - all.begin());
  WeakLeaf weak(leaf.variable.getIntrusivePtr());
  if (place != all.end()) {
    *place = weak;
  } else {
    all.push_back(weak);
  }
  const std::uint64_t structure = sensitivity::leaf_structure(kind, number + 1);
  known_.insert_or_assign(impl, Known{structure, std::move(weak)});
  return structure;
}

}  // namespace pleat::bridge
