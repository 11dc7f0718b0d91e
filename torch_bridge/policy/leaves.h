// Leaves decides which leaves count as weights, and which make a forward pass exact. The gradient
// of a weight is a sum that training averages. The gradient of any other leaf can be a result of
// the script: a force, a derivative in a differential equation, the gradient in a penalty. Noise in
// it is noise in a value. So tensors that depend on such a leaf are exact, until a pass shows that
// the script does not use its gradient.
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

// The arguments of a backward pass that matter here.
struct PassKind {
  bool accumulates = true;  // into all leaves: the call named none
  bool creates_graph = false;
  bool keeps_graph = false;
};

class Leaves {
 public:
  [[nodiscard]] bool is_weight(const c10::TensorImpl& leaf) const noexcept;

  // Records that `node`, recorded by this thread, reads the leaf. Returns true if the node's
  // results must be exact. Throws std::bad_alloc.
  [[nodiscard]] bool note_read(const at::Tensor& leaf, const torch::autograd::Node& node);

  // Begins a pass over nodes that these threads recorded. `of_leaves`: its roots depend on a leaf
  // that made them exact. Throws std::bad_alloc.
  void begin_pass(std::span<const std::uint64_t> recorders, PassKind kind, bool of_leaves);

  // True once a pass over weights alone has made a graph: its gradients are differentiated again.
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
