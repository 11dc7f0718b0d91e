#include "torch_bridge/policy/leaves.h"

#include <algorithm>

#include "sensitivity/key.h"
#include "torch_bridge/policy/node_class.h"
#include "torch_bridge/torch_access/python_objects.h"

namespace pleat::bridge {
namespace {

// The kind of leaves that one place of a script makes in every step: a hash of the reading node's
// class and of the leaf's shape.
std::uint64_t kind_of(const at::Tensor& leaf, const torch::autograd::Node& node) noexcept {
  const std::int64_t last = leaf.dim() > 0 ? leaf.size(-1) : 0;
  return sensitivity::mix(class_of(node).hash ^
                          sensitivity::mix(static_cast<std::uint64_t>(last) << 16 |
                                           static_cast<std::uint64_t>(leaf.dim()) << 8 |
                                           static_cast<std::uint64_t>(leaf.scalar_type())));
}

}  // namespace

bool Leaves::is_weight(const c10::TensorImpl& leaf) const noexcept {
  if (is_parameter(leaf)) {
    return true;
  }
  const auto known = accumulated_.find(&leaf);
  return known != accumulated_.end() && !known->second.expired();
}

bool Leaves::note_read(const at::Tensor& leaf, const torch::autograd::Node& node) {
  const c10::TensorImpl& impl = *leaf.unsafeGetTensorImpl();
  if (is_parameter(impl)) {
    return false;
  }
  const std::uint64_t kind = kind_of(leaf, node);
  const auto known = kinds_.find(kind);
  const State state = known != kinds_.end() ? known->second : State::kUnknown;
  constexpr std::size_t kMost = 65536;  // limit for forward passes without a backward
  if (reads_.size() == kMost) {
    reads_.clear();
  }
  reads_.push_back({WeakLeaf(leaf.getIntrusivePtr()), kind, node.thread_id()});
  return state == State::kForbidden || (state == State::kUnknown && !is_weight(impl));
}

void Leaves::remember_accumulated(const WeakLeaf& leaf) {
  accumulated_.insert_or_assign(leaf._unsafe_get_target(), leaf);
  if (accumulated_.size() >= sweep_at_) {
    std::erase_if(accumulated_, [](const auto& entry) { return entry.second.expired(); });
    sweep_at_ = 2 * accumulated_.size() + 1024;
  }
}

void Leaves::begin_pass(std::span<const std::uint64_t> recorders, PassKind kind, bool of_leaves) {
  const bool plain = kind.accumulates && !kind.creates_graph;
  bool any = of_leaves;
  for (Read& read : reads_) {
    if (std::find(recorders.begin(), recorders.end(), read.thread) == recorders.end()) {
      continue;
    }
    any = true;
    State& state = kinds_[read.kind];
    if (!plain) {
      state = State::kForbidden;
    } else if (const auto leaf = read.leaf.lock()) {
      if (state != State::kForbidden) {
        state = may_be_held_by_python(*leaf) ? State::kUnknown : State::kAllowed;
      }
      remember_accumulated(read.leaf);
    }
  }
  if (!kind.keeps_graph) {
    std::erase_if(reads_, [&](const Read& read) {
      return std::find(recorders.begin(), recorders.end(), read.thread) != recorders.end();
    });
  }
  differentiates_weights_ |= kind.creates_graph && !any;
}

}  // namespace pleat::bridge
