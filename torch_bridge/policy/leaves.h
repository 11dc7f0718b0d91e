// Leaves decides which leaves count as weights, and which make a forward pass exact. The gradient
// of a weight is a sum that training averages. The gradient of any other leaf can be a result of
// the script: a force, a derivative in a differential equation, the gradient in a penalty. Noise in
// it is noise in a value. So tensors that depend on such a leaf are exact, until a pass shows that
// the script does not use its gradient.
//
// A leaf counts as a weight if it is a torch.nn.Parameter, or if an earlier backward pass has
// accumulated into it. The gradient of a weight is a result, too, if the script differentiates it
// (create_graph): all that depends on such a weight is exact. Guarded by the ledger's lock.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "torch_bridge/policy/graph_marks.h"

namespace torch::autograd {
struct AccumulateGrad;
}

namespace pleat::bridge {

// The arguments of a backward pass that matter here.
struct PassKind {
  bool accumulates = true;  // into all leaves: the call named none
  bool creates_graph = false;
  bool keeps_graph = false;
};

// A lesson that one event of the script teaches. It ends after so many plain passes in a row
// without the event. Each time the event comes back, the lesson holds four times as long.
class Lesson {
 public:
  static constexpr std::uint32_t kPlainPasses = 10;
  explicit Lesson(std::uint32_t plain_passes = kPlainPasses) noexcept : patience_(plain_passes) {}

  [[nodiscard]] bool holds() const noexcept { return taught_ && plain_ < patience_; }
  void teach() noexcept {
    constexpr std::uint32_t kMost = 1u << 20;
    if (taught_ && plain_ >= patience_ && patience_ < kMost) {
      patience_ *= 4;
    }
    taught_ = true;
    plain_ = 0;
  }
  // Passes have numbers, as many calls of one pass count once.
  void pass_without(std::uint64_t pass) noexcept {
    if (holds() && std::exchange(last_, pass) != pass) {
      ++plain_;
    }
  }

 private:
  std::uint64_t last_ = 0;
  std::uint32_t patience_;
  std::uint32_t plain_ = 0;
  bool taught_ = false;
};

class Leaves {
 public:
  [[nodiscard]] bool is_weight(const c10::TensorImpl& leaf) const noexcept;

  // Records that `node`, recorded by this thread, reads the leaf. Returns true if the node's
  // results must be exact. Throws std::bad_alloc.
  [[nodiscard]] bool note_read(const torch::autograd::AccumulateGrad& leaf,
                               const torch::autograd::Node& node);

  // A leaf that the graph of a pass reads.
  struct LeafRead {
    c10::weak_intrusive_ptr<c10::TensorImpl> leaf;
    std::uint64_t kind;
    bool lives = false;
    bool held_by_python = false;

    // Sets `lives` and `held_by_python`. Can take the interpreter's lock: under no other.
    void look();
  };
  // The reads by nodes that these threads recorded. Throws std::bad_alloc.
  [[nodiscard]] std::vector<LeafRead> reads_by(std::span<const std::uint64_t> recorders) const;

  // Begins a pass over nodes that these threads recorded, with their reads. `of_leaves`: its roots
  // depend on a leaf that made them exact. Returns true if it is over weights alone and makes a
  // graph: its gradients are differentiated again. Throws std::bad_alloc.
  [[nodiscard]] bool begin_pass(std::span<const std::uint64_t> recorders,
                                std::span<const LeafRead> reads, PassKind kind, bool of_leaves);

  // Weights by their number (leaf_numbers.h): the script may make the same weight anew in each
  // step. Records that a pass differentiates gradients of this weight. Throws std::bad_alloc.
  void differentiate(std::uint64_t weight) { differentiated_[weight].lesson.teach(); }
  [[nodiscard]] bool differentiates_any() const noexcept { return !differentiated_.empty(); }
  // Records that a node reads the weight. Returns true if its results must be exact.
  [[nodiscard]] bool note_weight(std::uint64_t weight) noexcept;

  // The number of passes that have begun, and one. Any thread.
  [[nodiscard]] std::uint64_t passes() const noexcept {
    return passes_.load(std::memory_order_relaxed);
  }

  // A pass follows what this code in Python recorded, which asks for create_graph somewhere (a code
  // object; compare only). `differentiates`: it differentiates gradients of weights. Throws
  // std::bad_alloc.
  void note_code(const void* code, bool differentiates);
  // True unless no such pass has followed the code lately.
  [[nodiscard]] bool expects_derivative(const void* code) const noexcept;

 private:
  using WeakLeaf = c10::weak_intrusive_ptr<c10::TensorImpl>;
  enum class State : std::uint8_t { kUnknown, kAllowed };
  struct Kind {
    State state = State::kUnknown;
    Lesson is_result;  // its gradient is a result
  };
  struct Differentiated {
    Lesson lesson;
    bool read = false;  // since the last pass
  };
  struct Read {
    WeakLeaf leaf;
    std::uint64_t kind;
    std::uint64_t thread;
    NodeWitness reader;
  };
  // Of each table; a script that makes new shapes or new code in each step has more.
  static constexpr std::size_t kMostLessons = 16384;
  void remember_accumulated(const WeakLeaf& leaf);
  void sweep_reads();

  std::vector<Read> reads_;  // since the last pass
  std::size_t sweep_reads_at_ = 64;
  std::unordered_map<std::uint64_t, Kind> kinds_;
  std::unordered_map<std::uint64_t, Differentiated> differentiated_;
  std::unordered_map<const void*, Lesson> codes_;
  std::atomic<std::uint64_t> passes_{1};
  std::unordered_map<const c10::TensorImpl*, WeakLeaf> accumulated_;
  std::size_t sweep_at_ = 64;
};

}  // namespace pleat::bridge
