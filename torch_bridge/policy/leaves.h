// Which leaves count as weights, and which make a forward exact. The gradient of a weight is a sum
// that training averages. The gradient of any other leaf may be a result of the script: a force, a
// derivative in a differential equation, the gradient that a penalty is made of; noise in it is
// noise in a value. So what depends on such a leaf is exact, until it has shown that its gradient
// goes nowhere.
//
// A leaf counts as a weight if it is a torch.nn.Parameter, or if an earlier backward pass has
// accumulated into it. Guarded by the ledger's lock.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "torch_bridge/torch_access/torch_version.h"

namespace pleat::bridge {

// How a backward pass was asked for.
struct PassKind {
  bool accumulates = true;  // into leaves, and none were named
  bool creates_graph = false;
  bool keeps_graph = false;
};

class Leaves {
 public:
  [[nodiscard]] bool is_weight(const c10::TensorImpl& leaf) const noexcept;

  // `node`, recorded by this thread, reads the leaf. Returns true if what the node makes must be
  // exact. Throws std::bad_alloc.
  [[nodiscard]] bool note_read(const at::Tensor& leaf, const torch::autograd::Node& node);

  // A pass begins over what these threads have recorded; `of_leaves`: its roots depend on a leaf
  // that made them exact. Throws std::bad_alloc.
  void begin_pass(std::span<const std::uint64_t> recorders, PassKind kind, bool of_leaves);

  // A pass over weights alone has made a graph: what backward works out is differentiated again.
  [[nodiscard]] bool differentiates_weights() const noexcept { return differentiates_weights_; }

 private:
  using WeakLeaf = c10::weak_intrusive_ptr<c10::TensorImpl>;
  enum class State : std::uint8_t { kUnknown, kAllowed, kForbidden };
  struct Read {
    WeakLeaf leaf;
    std::uint64_t kind;
    std::uint64_t thread;
  };
  void remember_accumulated(const WeakLeaf& leaf);

  std::vector<Read> reads_;  // since the last pass
  std::unordered_map<std::uint64_t, State> kinds_;
  std::unordered_map<const c10::TensorImpl*, WeakLeaf> accumulated_;
  std::size_t sweep_at_ = 1024;
  bool differentiates_weights_ = false;
};

}  // namespace pleat::bridge
