// The graph as far as it is recorded, with the claims that wait at its nodes: the walks that close
// and open them.
//
//   closed  some path from the node's result meets a node that closes it
//   open    some path meets a node that opens it
//
// One lock guards it and all claims. Residency's link lock is taken under it, no other.
#pragma once

#include <cstdint>
#include <mutex>
#include <span>
#include <unordered_map>
#include <unordered_set>
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
#include "torch_bridge/policy/treatment.h"

namespace pleat::bridge {

class Ledger final : public Surroundings {
 public:
  [[nodiscard]] static Ledger& get() noexcept;

  std::mutex mutex;

  // ---- under the lock; those without noexcept throw std::bad_alloc, and torch's errors ----

  // What becomes of a claim of `node`.
  void carry_out(Claim& claim, const Treatment& treatment, const torch::autograd::Node& node);
  // `function`: the one that is the reason.
  void refuse(Claim& claim, Exactness why, ProofBook::Function* function = nullptr) noexcept;
  // Off the list of its node, whose reference it gives up.
  void unlink(Claim& claim) noexcept;

  // By hand: claims by their hooks, until their node is found.
  std::unordered_map<const torch::autograd::SavedVariableHooks*, Claim*> unplaced;
  // True the first time.
  [[nodiscard]] bool meet(const torch::autograd::Node& node) {
    return !std::exchange(marks_.of(node).met, true);
  }
  // For a node that may have saved its result since it was met.
  void meet_again(const torch::autograd::Node& node) { marks_.of(node).met = false; }

  // Closes, or opens, what lies behind an edge or at a node. A node of the class `closer` closes
  // it; `opener` is the node that opens it.
  void close_behind(const torch::autograd::Node& node, const NodeClass& closer);
  void open_behind(const torch::autograd::Node& node, Exactness why,
                   const torch::autograd::Node& opener);
  // The node is a normalisation by hand. Closes what it normalises.
  void note_normalisation(const torch::autograd::Node& node, std::size_t factor);
  // A node takes of the log-probabilities that `node` made some as they are; or reads them
  // otherwise.
  void close_log_probabilities(const torch::autograd::Node& node, const NodeClass& closer);
  void refuse_log_probabilities(const torch::autograd::Node& node);

  [[nodiscard]] bool has_weight(const torch::autograd::Node& node, Inputs operands) override;
  [[nodiscard]] bool reads_again(const torch::autograd::Node& node, std::size_t input) override;
  // What a node makes is a weight.
  [[nodiscard]] bool is_weight(const torch::autograd::Node& node) { return is_weight(node, 0); }
  // It is one, and no table of probabilities: these average, and a logarithm may follow.
  [[nodiscard]] bool mixes(const torch::autograd::Node& node);
  // What a node makes are unit rows.
  [[nodiscard]] bool normalises(const torch::autograd::Node* node) noexcept;

  // The node is recorded. If its result depends on a leaf whose gradient may be a result, all its
  // claims are refused from now on.
  void note_leaves(const torch::autograd::Node& node);
  // The same. If its result depends on a factor of linear algebra, what needs a proof is refused:
  // noise beside it enters the gradient that the factor's own formula divides by small differences.
  void note_factors(const torch::autograd::Node& node, const NodeFacts& facts);

  // A hash of how the node's result is worked out, all the way from the leaves: of the classes of
  // nodes and of the leaves. The same in every step and process.
  [[nodiscard]] std::uint64_t structure_of(const torch::autograd::Node& node);

  // Backward begins over what these threads have recorded.
  void end(const torch::autograd::edge_list& roots, std::span<const std::uint64_t> recorders,
           PassKind kind) noexcept;
  [[nodiscard]] bool is_weight_leaf(const c10::TensorImpl& leaf) const noexcept {
    return leaves_.is_weight(leaf);
  }
  [[nodiscard]] bool differentiates_weights() const noexcept {
    return leaves_.differentiates_weights();
  }

  // Encodes what need not wait any longer. Gives up the lock while it does.
  void start_all(std::unique_lock<std::mutex>& lock) noexcept;
  [[nodiscard]] bool any_to_start() const noexcept { return !to_start_.empty(); }

 private:
  struct Step {
    const torch::autograd::Node* node;
    bool exponential;  // an exponential lies between there and what closes it
  };
  void go_on(const torch::autograd::Edge& edge, bool exponential);
  void close(const Step& step);
  struct Opening {
    Exactness why;
    const torch::autograd::Node& opener;
    ProofBook::Function* function;  // if the opener is one
  };
  void open(const torch::autograd::Node& node, const Opening& opening);
  void note_late(const torch::autograd::Node& node, const torch::autograd::Node& opener);
  void wait_for_proof(Claim& claim, const torch::autograd::Node& node);
  void settle(Claim& claim, const NodeClass& closer) noexcept;
  void may_start(TorchRecord& record) noexcept;
  // Of the claims at the squares of a normalisation by hand.
  void close_rows(const torch::autograd::Node& normalisation);
  void refuse_rows(const torch::autograd::Node& normalisation, const Opening& opening);
  bool has_unit_rows_beside(const torch::autograd::Node& node, std::size_t input) noexcept;
  const GraphMarks::Mark* known(const torch::autograd::Node* node) noexcept;
  bool depends_on_leaf(const torch::autograd::Node& node) noexcept;
  bool is_weight(const torch::autograd::Node& node, int depth);
  bool work_out_weight(const torch::autograd::Node& node, int depth);

  const NodeClass* closer_ = nullptr;  // of the walk
  GraphMarks marks_;
  Leaves leaves_;
  LeafNumbers leaf_numbers_;
  bool any_derivative_ = false;  // some mark says so
  bool any_of_factor_ = false;   // the same
  std::vector<Step> walk_;
  std::vector<TorchRecord*> to_start_;  // each with a reference
  // Hashes of nodes of the script, by their classes and those of their ancestors.
  std::unordered_set<std::uint64_t> no_proof_for_;
  ForkLock fork_lock_{ForkPlace::kProofs, mutex};
};

// A result of a node; null: there is none.
struct Source {
  const torch::autograd::Node* node = nullptr;
  std::uint32_t output = 0;
  bool operator==(const Source&) const = default;
};
// Where an edge leads to, through nodes whose result lies on the storage of their only input.
[[nodiscard]] Source source_of(const torch::autograd::Edge& edge) noexcept;
// The same from a node.
[[nodiscard]] const torch::autograd::Node* behind_views(const torch::autograd::Node* node) noexcept;

}  // namespace pleat::bridge
