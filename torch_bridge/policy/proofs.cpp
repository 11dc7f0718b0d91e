#include "torch_bridge/policy/proofs.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <type_traits>
#include <utility>
#include <vector>

#include "torch_bridge/policy/ledger.h"
#include "torch_bridge/policy/recognised.h"
#include "torch_bridge/policy/saved_by.h"
#include "torch_bridge/policy/treatment.h"

namespace pleat::bridge {
namespace {

using torch::autograd::Edge;
using torch::autograd::Node;

// What this thread has saved and not recorded yet, and what it has recorded last.
struct Recorder {
  static constexpr std::size_t kMost = 24;
  std::array<Claim*, kMost> notes;  // with a reference
  std::size_t noted = 0;

  // Inputs that the node which is being made has saved, alive while that goes on. A node whose
  // kernel fails leaves them here: the next one begins with a site that does not come later.
  struct Operand {
    const Node* producer;
    bool weight;
    bool unit_rows;
  };
  const NodeClass* saver = nullptr;
  std::array<Operand, 3> operands;
  std::size_t operand_count = 0;
  std::uint32_t order = 0;  // of the last one's site

  const Node* last = nullptr;  // alive while it saves; compared otherwise
  std::uint64_t last_sequence = 0;
};
constinit thread_local Recorder recorder{};
static_assert(std::is_trivially_destructible_v<Recorder>);

bool assumes(const Runtime& runtime) noexcept {
  return runtime.rule.load(std::memory_order_relaxed) == Rule::kAssumed;
}

// Which input of `node` the claim's tensor is; -1: none that asks for a gradient. A node that
// writes in place saves a copy of what it writes to.
int input_of(const Claim& claim, const Node& node) noexcept {
  if (claim.record == nullptr || claim.producer == nullptr) {
    return -1;
  }
  const auto find = [&](const Node* producer, std::uint32_t output_number) {
    for (std::size_t i = 0; i < node.num_outputs(); ++i) {
      const Edge& edge = node.next_edge(i);
      if (edge.is_valid() && edge.function.get() == producer && edge.input_nr == output_number) {
        return static_cast<int>(i);
      }
    }
    return -1;
  };
  const int direct = find(claim.producer, claim.output_number);
  if (direct >= 0 || !class_of(*claim.producer).has(kPassesParameter) ||
      claim.producer->num_outputs() != 1 || !claim.producer->next_edge(0).is_valid()) {
    return direct;
  }
  const Edge& copied = claim.producer->next_edge(0);
  return find(copied.function.get(), copied.input_nr);
}

// What is noted and on its way to a payload may be recomputed from arguments that have one by now.
void link_notes(std::unique_lock<std::mutex>& lock) noexcept {
  std::array<LateLink*, Recorder::kMost> links;
  std::size_t count = 0;
  for (std::size_t i = 0; i < recorder.noted; ++i) {
    if (recorder.notes[i]->record != nullptr) {
      links[count++] = recorder.notes[i]->link;
    }
  }
  lock.unlock();  // their hooks live: this thread is making the node that has them
  for (std::size_t i = 0; i < count; ++i) {
    links[i]->link_argument();
  }
  lock.lock();
}

// A node is recorded: it has saved what this thread has noted. But a copy is made while another
// node saves.
void settle_notes(Runtime& runtime, const Node& node, std::unique_lock<std::mutex>& lock) {
  if (recorder.noted == 0) {
    return;
  }
  const bool copies = class_of(node).has(kPassesParameter);
  if (copies) {
    return;
  }
  Ledger& ledger = Ledger::get();
  for (std::size_t i = 0; i < recorder.noted; ++i) {
    Claim& claim = *recorder.notes[i];
    if (claim.state == Claim::State::kNoted) {
      const int input = input_of(claim, node);
      ledger.carry_out(claim,
                       input >= 0 || assumes(runtime)
                           ? treat(runtime, claim, node, input, ledger)
                           : Treatment{.exactness = Exactness::kOperator},
                       node);
    }
  }
  link_notes(lock);
  while (recorder.noted != 0) {
    recorder.notes[--recorder.noted]->let_go();
  }
}

// A product or quotient that is a normalisation or a softmax by hand. Closes what it normalises.
// Returns which inputs must not be opened.
Inputs judge_recognised(const Node& node, const NodeFacts& facts) {
  const bool quotient = is_quotient(node);
  if (!(quotient || facts.saves == Saves::kFactors) || node.num_outputs() != 2 ||
      !node.next_edge(0).is_valid() || !node.next_edge(1).is_valid()) {
    return 0;
  }
  for (const std::size_t factor : {std::size_t{0}, std::size_t{1}}) {
    const std::size_t other = 1 - factor;
    if (quotient && factor == 1) {
      break;
    }
    const Recognised found = recognise(node, factor, other);
    if (found.beside == Beside::kRootOfOwnRows) {
      Ledger::get().note_normalisation(node, factor);
    }
    if (found.beside != Beside::kAnything) {
      return static_cast<Inputs>(1u << other);
    }
  }
  return 0;
}

// What the node says of what its inputs were made of.
void judge_inputs(const Node& node, const NodeFacts& facts) {
  Ledger& ledger = Ledger::get();
  const NodeClass& c = class_of(node);
  const bool closes = facts.path == Path::kCloses ||
                      (facts.path == Path::kContracts && ledger.has_weight(node, facts.operands));
  Inputs spared = judge_recognised(node, facts);
  if (facts.path == Path::kOpens && root_of_rows(node)) {
    spared = 0xff;  // whether it is harmful depends on what is multiplied with it
  }
  const Exactness why =
      facts.path == Path::kUnknown ? Exactness::kFunctionBehind : Exactness::kPole;
  for (std::size_t i = 0; i < node.num_outputs(); ++i) {
    const Edge& edge = node.next_edge(i);
    if (!edge.is_valid()) {
      continue;
    }
    const Node* const source = source_of(edge).node;
    if (source != nullptr && class_of(*source).row.saves == Saves::kLogProbabilities &&
        !c.has(kAliasesInput)) {
      if (c.has(kAtTarget)) {
        ledger.close_log_probabilities(*source, c);
      } else if (!c.has(kSums)) {  // as label smoothing does: it reads no values
        ledger.refuse_log_probabilities(*source);
      }
    } else if (closes) {
      ledger.close_behind(*edge.function, c);
    } else if ((facts.path == Path::kUnknown || facts.path == Path::kOpens ||
                (i < 8 && (facts.poles >> i & 1) != 0)) &&
               (i >= 8 || (spared >> i & 1) == 0)) {
      ledger.open_behind(*edge.function, why, node);
    }
  }
}

// Whether a contraction closes by the operands that are known so far: Surroundings::has_weight().
bool closes(std::span<const Recorder::Operand> operands) {
  const auto unit_rows = std::count_if(operands.begin(), operands.end(),
                                       [](const auto& operand) { return operand.unit_rows; });
  return std::any_of(operands.begin(), operands.end(), [&](const Recorder::Operand& operand) {
    return operand.weight && !(operand.unit_rows && unit_rows > 1);
  });
}

}  // namespace

void add_claim(Runtime& runtime, Claim& claim, bool by_function) noexcept {
  Ledger& ledger = Ledger::get();
  try {
    std::unique_lock lock(ledger.mutex);
    const Node* const node = claim.is_output ? claim.producer
                             : by_function   ? recorder.last
                                             : nullptr;
    if (node != nullptr) {
      ledger.carry_out(claim, treat(runtime, claim, *node, -1, ledger), *node);
    } else if (by_function || recorder.noted == Recorder::kMost) {
      ledger.refuse(claim, Exactness::kFunction);
    } else {
      claim.references.fetch_add(1, std::memory_order_relaxed);
      recorder.notes[recorder.noted++] = &claim;
    }
    ledger.start_all(lock);
  } catch (...) {  // no memory: it stays undecided, and so exact
  }
}

void add_unplaced_claim(Runtime& runtime, Claim& claim, const Node& producer) noexcept {
  Ledger& ledger = Ledger::get();
  try {
    std::unique_lock lock(ledger.mutex);
    if (assumes(runtime)) {
      ledger.carry_out(claim, {.choice = claim.lossy}, producer);
    } else {
      ledger.unplaced[claim.hooks] = &claim;
      ledger.meet_again(producer);  // who saves its result has been met by this very save
    }
    ledger.start_all(lock);
  } catch (...) {  // no memory: it stays undecided, and so exact
  }
}

void find_nodes(Runtime& runtime, const at::TensorBase& saved) noexcept {
  Ledger& ledger = Ledger::get();
  try {
    const Node* const producer = saved.defined() ? saved.grad_fn().get() : nullptr;
    if (producer == nullptr) {
      return;
    }
    std::unique_lock lock(ledger.mutex);
    std::vector<const Node*> found;
    std::vector<const Node*> walk{producer};
    while (!walk.empty()) {
      const Node* const node = walk.back();
      walk.pop_back();
      if (class_of(*node).accumulate_grad || !ledger.meet(*node)) {
        continue;
      }
      found.push_back(node);
      for (const Edge& edge : node->next_edges()) {
        if (edge.is_valid()) {
          walk.push_back(edge.function.get());
        }
      }
    }
    // In the order in which they were recorded, where one thread has.
    std::sort(found.begin(), found.end(),
              [](const Node* a, const Node* b) { return a->sequence_nr() < b->sequence_nr(); });
    for (const Node* const node : found) {
      const NodeFacts facts = facts_of(*node);
      ledger.note_leaves(*node);
      ledger.note_factors(*node, facts);
      for (const SavedBy& by : saved_by(*node)) {
        const auto at = ledger.unplaced.find(by.hooks);
        if (at == ledger.unplaced.end()) {
          continue;
        }
        Claim& claim = *at->second;
        ledger.unplaced.erase(at);
        claim.is_output = by.input < 0;
        ledger.carry_out(claim, treat(runtime, claim, *node, by.input, ledger), *node);
      }
      judge_inputs(*node, facts);
    }
    ledger.start_all(lock);
  } catch (...) {  // no memory: what waits stays undecided, and so exact
  }
}

void drop_claim(Claim& claim) noexcept {
  {
    Ledger& ledger = Ledger::get();
    const std::lock_guard guard(ledger.mutex);
    claim.record = nullptr;
    if (const auto at = ledger.unplaced.find(claim.hooks);
        at != ledger.unplaced.end() && at->second == &claim) {
      ledger.unplaced.erase(at);
    }
    if (claim.node != nullptr) {
      ledger.unlink(claim);
    }
    claim.state = Claim::State::kDone;
  }
  claim.let_go();
}

void note_operand(const CallSite& site, const at::TensorBase& variable) noexcept {
  const NodeClass& saver = *site.saver;
  if (saver.cpp_function) {
    return;
  }
  Ledger& ledger = Ledger::get();
  Recorder& r = recorder;
  try {
    std::unique_lock lock(ledger.mutex);
    if (r.saver != &saver || site.order <= r.order) {
      r.saver = &saver;
      r.operand_count = 0;
    }
    r.order = site.order;
    if (r.operand_count == r.operands.size()) {
      return;
    }
    const bool contracts = saver.row.path == Path::kContracts;
    const Node* const producer = variable.grad_fn().get();
    const bool weight =
        contracts && variable.requires_grad() &&
        (producer == nullptr ? ledger.is_weight_leaf(*variable.unsafeGetTensorImpl())
                             : ledger.mixes(*producer));
    r.operands[r.operand_count++] = {producer, weight, contracts && ledger.normalises(producer)};
    const auto all = std::span(r.operands).first(r.operand_count);
    if (contracts && !closes(all)) {
      return;
    }
    for (Recorder::Operand& operand : all) {
      if (const Node* const closed = std::exchange(operand.producer, nullptr);
          closed != nullptr && !operand.weight) {
        ledger.close_behind(*closed, saver);
      }
    }
    if (ledger.any_to_start()) {
      ledger.start_all(lock);
      link_notes(lock);
    }
  } catch (...) {  // no memory, or a view that must not be differentiated: closed later, or never
  }
}

void note_node(Runtime& runtime, const Node& node) noexcept {
  Recorder& r = recorder;
  r.saver = nullptr;
  if (r.last == &node && r.last_sequence == node.sequence_nr()) {
    return;  // another of its results
  }
  r.last = &node;
  r.last_sequence = node.sequence_nr();
  try {
    const NodeFacts facts = facts_of(node);
    Ledger& ledger = Ledger::get();
    std::unique_lock lock(ledger.mutex);
    ledger.note_leaves(node);  // before its claims are decided
    ledger.note_factors(node, facts);
    settle_notes(runtime, node, lock);
    judge_inputs(node, facts);
    ledger.start_all(lock);
  } catch (...) {  // no memory: what waits stays undecided, and so exact
  }
}

void end_proofs(const torch::autograd::edge_list& roots, std::span<const std::uint64_t> recorders,
                PassKind kind) noexcept {
  Ledger& ledger = Ledger::get();
  std::unique_lock lock(ledger.mutex);
  ledger.end(roots, recorders, kind);
  ledger.start_all(lock);
}

std::uint64_t structure_of(const Node& node) noexcept {
  Ledger& ledger = Ledger::get();
  try {
    const std::lock_guard guard(ledger.mutex);
    return ledger.structure_of(node);
  } catch (...) {
    return class_of(node).hash;
  }
}

bool differentiates_weights() noexcept {
  Ledger& ledger = Ledger::get();
  const std::lock_guard guard(ledger.mutex);
  return ledger.differentiates_weights();
}

bool is_made_of_weights(const Node& producer) noexcept {
  Ledger& ledger = Ledger::get();
  try {
    const std::lock_guard guard(ledger.mutex);
    return ledger.is_weight(producer);
  } catch (...) {
    return true;  // exact, then
  }
}

}  // namespace pleat::bridge
