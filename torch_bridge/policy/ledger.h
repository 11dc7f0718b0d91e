// Ledger holds the recorded graph with the claims that wait at its nodes; walks close and open
// them.
//
//   closed  some path from the node's result meets a node that closes it
//   open    some path meets a node that opens it
//
// One lock guards the ledger and all claims. Under it, only residency's link lock is taken.
#pragma once

#include <cstdint>
#include <mutex>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "torch_bridge/core/fork_locks.h"
#include "torch_bridge/core/proof_book.h"
#include "torch_bridge/core/reasons.h"
#include "torch_bridge/policy/claim.h"
#include "torch_bridge/policy/graph_marks.h"
#include "torch_bridge/policy/leaf_numbers.h"
#include "torch_bridge/policy/leaves.h"
#include "torch_bridge/policy/node_class.h"

namespace pleat::bridge {

class Ledger {
 public:
  [[nodiscard]] static Ledger& get() noexcept;

  std::mutex mutex;

  // ---- under the lock; functions without noexcept throw std::bad_alloc and torch's errors ----
  // Applies a treatment to a claim of `node`.
  void carry_out(Claim& claim, const Treatment& treatment, const torch::autograd::Node& node);
  // `function`: the function that is the reason.
  void refuse(Claim& claim, Exactness why, ProofBook::Function* function = nullptr) noexcept;
  // Removes the claim from the list of its node, and drops the list's reference.
  void unlink(Claim& claim) noexcept;

  // By hand: claims by their hooks, until the node is found.
  std::unordered_map<const torch::autograd::SavedVariableHooks*, Claim*> unplaced;
  // True on the first call for a node.
  [[nodiscard]] bool meet(const torch::autograd::Node& node) {
    return !std::exchange(marks_.of(node).met, true);
  }
  // Resets meet() for a node that can have saved its result since.
  void meet_again(const torch::autograd::Node& node) { marks_.of(node).met = false; }

  // Closes, or opens, the claims behind an edge or at a node. `closer` is the class of the node
  // that closes them, `opener` the node that opens them.
  void close_behind(const torch::autograd::Node& node, const NodeClass& closer);
  void open_behind(const torch::autograd::Node& node, Exactness why,
                   const torch::autograd::Node& opener);
  // Marks the node as a normalisation by hand, and closes the input that it normalises.
  void note_normalisation(const torch::autograd::Node& node, std::size_t factor);
  // A node reads single elements of the log-probabilities of `node`; or reads them in another way.
  void close_log_probabilities(const torch::autograd::Node& node, const NodeClass& closer);
  void refuse_log_probabilities(const torch::autograd::Node& node);

  // True if one of the operands in the set is a weight, with two exceptions. A table of
  // probabilities does not count. Unit rows next to unit rows do not count: a cosine's gradient is
  // the small rest of two vectors that nearly cancel.
  [[nodiscard]] bool has_weight(const torch::autograd::Node& node, Inputs operands);
  // True if another contraction without a weight has read the tensor of that input as its operand.
  [[nodiscard]] bool reads_again(const torch::autograd::Node& node, std::size_t input);
  // True if the result of the node is a weight.
  [[nodiscard]] bool is_weight(const torch::autograd::Node& node) { return is_weight(node, 0); }
  // True for a weight other than a table of probabilities, which averages before a logarithm.
  [[nodiscard]] bool mixes(const torch::autograd::Node& node);
  // True if the result of the node is unit rows.
  [[nodiscard]] bool normalises(const torch::autograd::Node* node) noexcept;

  // Records the node. If its result depends on a leaf whose gradient can be a result, or on a
  // weight whose gradient is differentiated, all its claims are refused from now on.
  void note_leaves(const torch::autograd::Node& node);
  // Records the node. If its result depends on a factor of linear algebra, its claims that need a
  // proof are refused: their noise enters a gradient that the factor's formula divides by small
  // differences.
  void note_factors(const torch::autograd::Node& node, const NodeFacts& facts);

  // A hash of the computation of the node's result, from the leaves on: of the classes of nodes and
  // of the leaves. The same in every step and process.
  [[nodiscard]] std::uint64_t structure_of(const torch::autograd::Node& node);

  [[nodiscard]] std::vector<Leaves::LeafRead> leaves_read_by(
      std::span<const std::uint64_t> recorders) const {
    return leaves_.reads_by(recorders);
  }
  // Ends the proofs for nodes of these threads: backward begins over them. `code`: of
  // Leaves::note_code(); null: none. Returns true if this is the first pass that differentiates
  // gradients of weights.
  [[nodiscard]] bool end(const torch::autograd::edge_list& roots,
                         std::span<const std::uint64_t> recorders,
                         std::span<const Leaves::LeafRead> reads, PassKind kind,
                         const void* code) noexcept;
  // No pass of its own followed what this code recorded.
  void note_plain_code(const void* code) { leaves_.note_code(code, false); }
  [[nodiscard]] bool is_weight_leaf(const c10::TensorImpl& leaf) const noexcept {
    return leaves_.is_weight(leaf);
  }
  // The number of passes that have begun, and one. Without the lock.
  [[nodiscard]] std::uint64_t passes() const noexcept { return leaves_.passes(); }
  [[nodiscard]] bool expects_derivative(const void* code) const noexcept {
    return leaves_.expects_derivative(code);
  }

  // Encodes the records that need not wait any longer. Releases the lock meanwhile.
  void start_all(std::unique_lock<std::mutex>& lock) noexcept;
  [[nodiscard]] bool any_to_start() const noexcept { return !to_start_.empty(); }

 private:
  struct Step {
    const torch::autograd::Node* node;
    bool exponential;  // an exponential is between the node and its closer
  };
  void go_on(const torch::autograd::Edge& edge, bool exponential);
  void close(const Step& step);
  struct Opening {
    Exactness why;
    const torch::autograd::Node& opener;
    ProofBook::Function* function;  // set if the opener is a function
  };
  void open(const torch::autograd::Node& node, const Opening& opening);
  void judge_late_poles(std::span<const std::uint64_t> recorders) noexcept;
  void note_late(const torch::autograd::Node& node, const torch::autograd::Node& opener);
  void wait_for_proof(Claim& claim, const torch::autograd::Node& node);
  void settle(Claim& claim, const NodeClass& closer) noexcept;
  void may_start(TorchRecord& record) noexcept;
  // For the claims at the squares of a normalisation by hand.
  void close_rows(const torch::autograd::Node& normalisation);
  void refuse_rows(const torch::autograd::Node& normalisation, const Opening& opening);
  bool has_unit_rows_beside(const torch::autograd::Node& node, std::size_t input) noexcept;
  const GraphMarks::Mark* known(const torch::autograd::Node* node) noexcept;
  bool is_derivative(const torch::autograd::Node& node) noexcept;
  std::uint64_t number_of_weight(const torch::autograd::AccumulateGrad& leaf);
  void differentiate_weights(const torch::autograd::edge_list& roots);
  bool is_weight(const torch::autograd::Node& node, int depth);
  bool work_out_weight(const torch::autograd::Node& node, int depth);

  const NodeClass* closer_ = nullptr;  // of the current walk
  GraphMarks marks_;
  Leaves leaves_;
  LeafNumbers leaf_numbers_;
  bool any_derivative_ = false;  // some mark has `derivative` or `differentiated`
  bool any_of_factor_ = false;   // some mark has `of_factor` or `gram`
  std::vector<Step> walk_;
  std::vector<TorchRecord*> to_start_;  // each with a counted reference
  // Nodes of the script that get no proof, as hashes of their classes and those of their ancestors.
  std::unordered_map<std::uint64_t, Lesson> no_proof_for_;
  struct WithoutProof {
    const torch::autograd::Node* node;  // compare only
    std::uint64_t sequence;
    std::uint64_t hash;
  };
  std::vector<WithoutProof> without_proof_;
  ForkLock fork_lock_{ForkPlace::kProofs, mutex};
};

// A result of a node; null: no node.
struct Source {
  const torch::autograd::Node* node = nullptr;
  std::uint32_t output = 0;
  bool operator==(const Source&) const = default;
};
// The result that an edge leads to, through nodes whose result shares the storage of their only
// input.
[[nodiscard]] Source source_of(const torch::autograd::Edge& edge) noexcept;
// The same, starting at a node.
[[nodiscard]] const torch::autograd::Node* behind_views(const torch::autograd::Node* node) noexcept;

}  // namespace pleat::bridge
