#include "torch_bridge/policy/ledger.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "sensitivity/key.h"
#include "torch_bridge/memory/torch_record.h"
#include "torch_bridge/policy/functions.h"
#include "torch_bridge/policy/node_class.h"
#include "torch_bridge/policy/recognised.h"
#include "torch_bridge/trace/state.h"
#include "torch_bridge/trace/trace.h"

namespace pleat::bridge {

using torch::autograd::Edge;
using torch::autograd::Node;

namespace {

// Leaked: tensors are freed until the process ends. Made when the library is loaded, because the
// first use can be in a forked child.
Ledger& ledger = *new Ledger;

Rule rule() noexcept {
  const Runtime* const runtime = Runtime::get();
  return runtime != nullptr ? runtime->rule.load(std::memory_order_relaxed) : Rule::kProof;
}

// Longer than for other lessons: a pole behind a proof puts a gradient off by factors.
constexpr std::uint32_t kPlainPassesAfterPole = 1000;

// True if noise needs no proof.
bool assumes() noexcept { return rule() == Rule::kAssumed; }

// A sum of two terms that require gradients. A sum with a constant is one term, shifted.
bool adds_another(const Node& node, const NodeFacts& facts) noexcept {
  const auto& edges = node.next_edges();
  return facts.path == Path::kAdds &&
         std::count_if(edges.begin(), edges.end(), [](const Edge& e) { return e.is_valid(); }) > 1;
}

// A hash of the node's place in the script, the same in every step.
std::uint64_t script_hash(const Node& node) noexcept {
  std::uint64_t h = sensitivity::mix(class_of(node).hash ^ ancestors_hash(node));
  for (const Edge& edge : node.next_edges()) {
    if (edge.is_valid()) {
      h = sensitivity::mix(h ^ ancestors_hash(*edge.function));
    }
  }
  return h;
}

}  // namespace

Ledger& Ledger::get() noexcept { return ledger; }

// ---- claims -------------------------------------------------------------------------------------

void Ledger::carry_out(Claim& claim, const Treatment& treatment, const Node& node) {
  const Exactness why = treatment.decision.exactness;
  if (why != Exactness::kMayBearNoise) {
    refuse(claim, why, why == Exactness::kFunction ? function_of(node) : nullptr);
    return;
  }
  if (is_derivative(node) && !assumes()) {
    refuse(claim, Exactness::kDerivative);
    return;
  }
  claim.lossy = treatment.decision;
  claim.beyond_doubt = treatment.beyond_doubt;
  if (treatment.waits) {
    if (any_of_factor_ && marks_.of(node).of_factor) {
      refuse(claim, Exactness::kPole);
      return;
    }
    wait_for_proof(claim, node);
  } else {
    settle(claim, class_of(node));
    claim.state = Claim::State::kDone;
  }
}

void Ledger::wait_for_proof(Claim& claim, const Node& node) {
  if (!no_proof_for_.empty()) {
    const std::uint64_t hash = script_hash(node);
    const auto known = no_proof_for_.find(hash);
    if (known != no_proof_for_.end() && known->second.holds()) {
      constexpr std::size_t kMost = 4096;  // limit for forward passes without a backward
      if (without_proof_.size() < kMost) {
        (void)marks_.of(node);
        without_proof_.push_back({&node, node.sequence_nr(), hash});
      }
      refuse(claim, Exactness::kPole);
      return;
    }
  }
  GraphMarks::Mark& mark = marks_.of(node);
  claim.state = Claim::State::kWaits;
  claim.node = &node;
  claim.previous = nullptr;
  claim.next = std::exchange(mark.claims, &claim);
  if (claim.next != nullptr) {
    claim.next->previous = &claim;
  }
  claim.references.fetch_add(1, std::memory_order_relaxed);
}

void Ledger::settle(Claim& claim, const NodeClass& closer) noexcept {
  claim.state = Claim::State::kClosed;
  if (claim.record != nullptr) {
    if (tracing()) [[unlikely]]
      trace_proved(*claim.record, claim.record->backend().heap().device().value, closer.name);
    claim.record->settle(claim.lossy, !claim.beyond_doubt);
    may_start(*claim.record);
  }
}

void Ledger::refuse(Claim& claim, Exactness why, ProofBook::Function* function) noexcept {
  if (claim.state != Claim::State::kWaits) {
    claim.state = Claim::State::kDone;
  } else {
    claim.state = Claim::State::kClosed;  // it stays on its node's list
  }
  if (claim.record != nullptr) {
    claim.record->refuse(why, function);
    may_start(*claim.record);
  }
}

void Ledger::unlink(Claim& claim) noexcept {
  if (claim.previous != nullptr) {
    claim.previous->next = claim.next;
  } else if (GraphMarks::Mark* const mark = marks_.find(claim.node);
             mark != nullptr && mark->claims == &claim) {
    mark->claims = claim.next;
  }
  if (claim.next != nullptr) {
    claim.next->previous = claim.previous;
  }
  claim.next = claim.previous = nullptr;
  claim.node = nullptr;
  claim.let_go();
}

void Ledger::may_start(TorchRecord& record) noexcept {
  if (record.awaits_proof() || record.state.load() != allocator::RecordState::kWaiting) {
    return;
  }
  try {
    to_start_.push_back(&record);
  } catch (...) {
    return;  // it waits for backward, or until memory is short
  }
  allocator::Residency& residency = record.backend().residency();
  residency.under_link_lock([&] { residency.add_reference(record); });
}

void Ledger::start_all(std::unique_lock<std::mutex>& lock) noexcept {
  while (!to_start_.empty()) {
    const std::vector<TorchRecord*> started = std::exchange(to_start_, {});
    lock.unlock();
    Runtime::note_thread_computes();
    for (TorchRecord* const record : started) {
      allocator::Residency& residency = record->backend().residency();
      residency.start(*record);
      residency.drop(record);
    }
    lock.lock();
  }
}

bool Ledger::end(const torch::autograd::edge_list& roots, std::span<const std::uint64_t> recorders,
                 std::span<const Leaves::LeafRead> reads, PassKind kind,
                 const void* code) noexcept {
  bool news = false;
  judge_late_poles(recorders);
  try {
    const bool of_leaves = std::any_of(roots.begin(), roots.end(), [&](const Edge& root) {
      const GraphMarks::Mark* const mark = any_derivative_ ? known(root.function.get()) : nullptr;
      return mark != nullptr && mark->derivative;
    });
    const bool differentiates = leaves_.begin_pass(recorders, reads, kind, of_leaves);
    if (differentiates) {
      news = !leaves_.differentiates_any();
      differentiate_weights(roots);
    }
    if (code != nullptr) {
      leaves_.note_code(code, differentiates);
    }
  } catch (...) {  // memory is short: leaves without an entry stay exact
  }
  for (const auto& [hooks, claim] : unplaced) {
    refuse(*claim, Exactness::kNoProof);
  }
  unplaced.clear();
  if (kind.keeps_graph) {  // nodes recorded later can read nodes recorded before
    marks_.for_each(recorders, [&](const GraphMarks::Mark& mark) {
      for (Claim* claim = mark.claims; claim != nullptr; claim = claim->next) {
        if (claim->state == Claim::State::kWaits) {
          refuse(*claim, Exactness::kNoProof);
        }
      }
    });
    return news;
  }
  const bool all = marks_.are_all_of(recorders);
  any_derivative_ = any_derivative_ && !all;
  any_of_factor_ = any_of_factor_ && !all;
  marks_.forget(recorders, [&](const GraphMarks::Mark& mark) {
    for (Claim* claim = mark.claims; claim != nullptr;) {
      Claim* const next = claim->next;
      claim->next = claim->previous = nullptr;
      claim->node = nullptr;
      if (claim->state == Claim::State::kWaits) {
        refuse(*claim, Exactness::kNoProof);
      }
      claim->state = Claim::State::kDone;
      claim->let_go();
      claim = next;
    }
  });
  return news;
}

// ---- walks --------------------------------------------------------------------------------------

void Ledger::go_on(const Edge& edge, bool exponential) {
  if (edge.is_valid() && !class_of(*edge.function).accumulate_grad) {
    walk_.push_back({edge.function.get(), exponential});
  }
}

void Ledger::close_behind(const Node& node, const NodeClass& closer) {
  if (class_of(node).accumulate_grad) {
    return;
  }
  closer_ = &closer;
  walk_.assign(1, {&node, false});
  while (!walk_.empty()) {
    const Step step = walk_.back();
    walk_.pop_back();
    close(step);
  }
}

void Ledger::close(const Step& step) {
  const Node& node = *step.node;
  bool normalises = false;
  {
    const std::uint8_t level = step.exponential ? 2 : 1;
    GraphMarks::Mark& mark = marks_.of(node);
    if (mark.open || mark.closed >= level) {
      return;
    }
    mark.closed = level;
    normalises = mark.normalises;
    for (Claim* claim = mark.claims; claim != nullptr; claim = claim->next) {
      if (step.exponential) {
        claim->lossy = with_noise(claim->lossy, Noise::kExponent, Why::kExponential);
      }
      if (claim->state == Claim::State::kWaits) {
        settle(*claim, *closer_);
      } else if (claim->record != nullptr && step.exponential) {
        claim->record->raise(claim->lossy);
      }
    }
  }
  if (normalises) {
    close_rows(node);
    return;  // close_rows() has closed the input of the normalisation
  }
  const NodeFacts facts = facts_of(node);
  bool exponential = step.exponential || facts.path == Path::kExponential;
  switch (facts.path) {
    case Path::kUnknown:
    case Path::kOpens:
    case Path::kCloses:
      return;
    case Path::kContracts:
      if (has_weight(node, facts.operands)) {
        return;
      }
      exponential = false;  // it averages over many elements
      break;
    default:
      break;
  }
  for (std::size_t i = 0; i < node.num_outputs(); ++i) {
    if (i >= 8 || (facts.poles >> i & 1) == 0) {
      go_on(node.next_edge(i), exponential);
    }
  }
}

void Ledger::open_behind(const Node& node, Exactness why, const Node& opener) {
  if (class_of(node).accumulate_grad) {
    return;
  }
  const Opening opening{why, opener,
                        why == Exactness::kFunctionBehind ? function_of(opener) : nullptr};
  walk_.assign(1, {&node, false});
  while (!walk_.empty()) {
    const Node& next = *walk_.back().node;
    walk_.pop_back();
    open(next, opening);
  }
}

// A pole comes after a proof: the node that saved gets no proof from now on, until no pole was
// behind it for long.
void Ledger::note_late(const Node& node, const Node& opener) {
  if (Runtime* const runtime = Runtime::get()) {
    runtime->poles_after_proof.fetch_add(1, std::memory_order_relaxed);
    runtime->proofs.add_late_pole(shown_name(opener), shown_name(node));
  }
  constexpr std::size_t kMost = 65536;
  if (no_proof_for_.size() < kMost) {
    no_proof_for_.try_emplace(script_hash(node), kPlainPassesAfterPole).first->second.teach();
  }
}

// Teaches, for each node that got no proof, whether the pass that begins has a pole behind it.
void Ledger::judge_late_poles(std::span<const std::uint64_t> recorders) noexcept {
  std::erase_if(without_proof_, [&](const WithoutProof& without) {
    const GraphMarks::Mark* const mark = marks_.find(without.node);
    if (mark == nullptr || mark->sequence != without.sequence) {
      return true;  // the node is dead: no pass came over it
    }
    if (std::find(recorders.begin(), recorders.end(), mark->thread) == recorders.end()) {
      return false;
    }
    if (const auto known = no_proof_for_.find(without.hash); known != no_proof_for_.end()) {
      if (mark->open) {
        known->second.teach();
      } else {
        known->second.pass_without(leaves_.passes());
      }
    }
    return true;
  });
}

void Ledger::open(const Node& node, const Opening& opening) {
  if (assumes()) {
    return;
  }
  const NodeFacts facts = facts_of(node);
  if (facts.path == Path::kCloses ||
      (facts.path == Path::kContracts && has_weight(node, facts.operands))) {
    return;
  }
  bool normalises = false;
  {
    GraphMarks::Mark& mark = marks_.of(node);
    if (mark.open ||
        (mark.closed != 0 && (adds_another(node, facts) || rule() == Rule::kNoLatePoles))) {
      return;
    }
    mark.open = true;
    bool too_late = false;
    for (Claim* claim = mark.claims; claim != nullptr; claim = claim->next) {
      if (claim->record == nullptr) {
        continue;
      }
      if (claim->record->is_encoded()) {
        too_late = true;
      } else {
        refuse(*claim, opening.why, opening.function);
      }
    }
    if (too_late) {
      note_late(node, opening.opener);
    }
    normalises = mark.normalises;
  }
  if (normalises) {
    refuse_rows(node, opening);
    return;
  }
  if (facts.path == Path::kUnknown || facts.path == Path::kOpens) {
    return;  // a node that opens has opened its inputs already
  }
  for (const Edge& edge : node.next_edges()) {
    go_on(edge, false);
  }
}

void Ledger::close_log_probabilities(const Node& node, const NodeClass& closer) {
  GraphMarks::Mark& mark = marks_.of(node);
  for (Claim* claim = mark.claims; claim != nullptr; claim = claim->next) {
    if (claim->state == Claim::State::kWaits) {
      settle(*claim, closer);
    }
  }
}

void Ledger::refuse_log_probabilities(const Node& node) {
  if (assumes()) {
    return;
  }
  GraphMarks::Mark& mark = marks_.of(node);
  for (Claim* claim = mark.claims; claim != nullptr; claim = claim->next) {
    if (claim->record != nullptr && !claim->record->is_encoded()) {
      refuse(*claim, Exactness::kPole);
    }
  }
}

}  // namespace pleat::bridge
