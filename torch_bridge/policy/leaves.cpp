#include "torch_bridge/policy/leaves.h"

#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <algorithm>

#include "sensitivity/key.h"
#include "torch_bridge/policy/node_class.h"
#include "torch_bridge/torch_access/python_objects.h"

namespace pleat::bridge {
namespace {

// The kind of leaves that one place of a script makes in every step: a hash of the reading node's
// class and of the leaf's shape. To ask a tensor with its own dispatch for its shape would run an
// operator; the accumulator knows it.
std::uint64_t kind_of(const torch::autograd::AccumulateGrad& leaf,
                      const torch::autograd::Node& node) {
  const auto& shape = leaf.input_metadata(0).shape_as_dim_vector();
  const std::int64_t last = shape.empty() ? 0 : shape.back().maybe_as_int().value_or(-1);
  return sensitivity::mix(
      class_of(node).hash ^
      sensitivity::mix(static_cast<std::uint64_t>(last) << 16 |
                       static_cast<std::uint64_t>(shape.size()) << 8 |
                       static_cast<std::uint64_t>(leaf.variable.scalar_type())));
}

}  // namespace

bool Leaves::is_weight(const c10::TensorImpl& leaf) const noexcept {
  if (is_parameter(leaf)) {
    return true;
  }
  const auto known = accumulated_.find(&leaf);
  return known != accumulated_.end() && !known->second.expired();
}

bool Leaves::note_read(const torch::autograd::AccumulateGrad& leaf,
                       const torch::autograd::Node& node) {
  const c10::TensorImpl& impl = *leaf.variable.unsafeGetTensorImpl();
  if (is_parameter(impl)) {
    return false;
  }
  const std::uint64_t kind = kind_of(leaf, node);
  const auto known = kinds_.find(kind);
  const bool is_result = known != kinds_.end() && known->second.is_result.holds();
  const State state = known != kinds_.end() ? known->second.state : State::kUnknown;
  if (reads_.size() >= sweep_reads_at_) {
    sweep_reads();
  }
  reads_.push_back(
      {WeakLeaf(leaf.variable.getIntrusivePtr()), kind, node.thread_id(), NodeWitness(node)});
  return is_result || (state == State::kUnknown && !is_weight(impl));
}

// A forward pass need not have a backward pass. Removes the reads of dead nodes and of dead leaves.
void Leaves::sweep_reads() {
  std::erase_if(reads_,
                [](const Read& read) { return read.reader.is_dead() || read.leaf.expired(); });
  constexpr std::size_t kMost = 65536;  // for a torch in which deaths are not seen
  if (reads_.size() >= kMost) {
    reads_.clear();
  }
  sweep_reads_at_ = 2 * reads_.size() + 64;
}

void Leaves::remember_accumulated(const WeakLeaf& leaf) {
  accumulated_.insert_or_assign(leaf._unsafe_get_target(), leaf);
  if (accumulated_.size() >= sweep_at_) {
    std::erase_if(accumulated_, [](const auto& entry) { return entry.second.expired(); });
    sweep_at_ = 2 * accumulated_.size() + 64;
  }
}

void Leaves::LeafRead::look() {
  if (const auto living = leaf.lock()) {
    lives = true;
    held_by_python = may_be_held_by_python(*living);
  }
}

std::vector<Leaves::LeafRead> Leaves::reads_by(std::span<const std::uint64_t> recorders) const {
  std::vector<LeafRead> reads;
  for (const Read& read : reads_) {
    if (std::find(recorders.begin(), recorders.end(), read.thread) != recorders.end()) {
      reads.push_back({read.leaf, read.kind});
    }
  }
  return reads;
}

bool Leaves::begin_pass(std::span<const std::uint64_t> recorders, std::span<const LeafRead> reads,
                        PassKind kind, bool of_leaves) {
  if (kinds_.size() >= kMostLessons) {
    kinds_.clear();
  }
  if (differentiated_.size() >= kMostLessons) {
    differentiated_.clear();
  }
  const bool plain = kind.accumulates && !kind.creates_graph;
  passes_.fetch_add(1, std::memory_order_relaxed);
  for (const LeafRead& read : reads) {
    Kind& of_leaf = kinds_[read.kind];
    if (!plain) {
      of_leaf.is_result.teach();
    } else if (read.lives) {
      of_leaf.is_result.pass_without(passes());
      of_leaf.state = read.held_by_python ? State::kUnknown : State::kAllowed;
      remember_accumulated(read.leaf);
    }
  }
  if (!kind.keeps_graph) {
    std::erase_if(reads_, [&](const Read& read) {
      return std::find(recorders.begin(), recorders.end(), read.thread) != recorders.end();
    });
  }
  for (auto& [weight, known] : differentiated_) {
    if (std::exchange(known.read, false) && !kind.creates_graph) {
      known.lesson.pass_without(passes());
    }
  }
  return kind.creates_graph && reads.empty() && !of_leaves;
}

bool Leaves::note_weight(std::uint64_t weight) noexcept {
  const auto known = differentiated_.find(weight);
  if (known == differentiated_.end()) {
    return false;
  }
  known->second.read = true;
  return known->second.lesson.holds();
}

void Leaves::note_code(const void* code, bool differentiates) {
  if (codes_.size() >= kMostLessons) {
    codes_.clear();
  }
  const auto [known, first] = codes_.try_emplace(code);
  if (first || differentiates) {
    known->second.teach();
  }
  if (!differentiates) {
    known->second.pass_without(passes());
  }
}

bool Leaves::expects_derivative(const void* code) const noexcept {
  const auto known = codes_.find(code);
  return known == codes_.end() || known->second.holds();
}

}  // namespace pleat::bridge
