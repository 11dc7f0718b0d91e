#include "torch_bridge/policy/proofs.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <mutex>
#include <type_traits>
#include <utility>
#include <vector>

#include "torch_bridge/policy/ledger.h"
#include "torch_bridge/policy/recognised.h"
#include "torch_bridge/policy/saved_by.h"
#include "torch_bridge/policy/treatment.h"
#include "torch_bridge/torch_access/create_graph_code.h"

namespace pleat::bridge {
namespace {

using torch::autograd::Edge;
using torch::autograd::Node;

// The saves of this thread whose node is not recorded yet, and the last recorded node.
struct Recorder {
  static constexpr std::size_t kMost = 24;
  std::array<Claim*, kMost> notes;  // each with a counted reference
  std::size_t noted = 0;

  // Inputs that the node being made has saved, alive meanwhile. A node whose kernel fails leaves
  // them here; the next node begins with a site of the same or a lower order.
  struct Operand {
    const Node* producer;
    bool weight;
    bool unit_rows;
  };
  const NodeClass* saver = nullptr;
  std::array<Operand, 3> operands;
  std::size_t operand_count = 0;
  std::uint32_t order = 0;  // order of the last operand's site

  const Node* last = nullptr;  // alive while it saves; else compare only
  std::uint64_t last_sequence = 0;

  // The code that asks for create_graph and runs in this thread (compare only; null: none), looked
  // for once before each pass.
  const void* code = nullptr;
  std::uint64_t looked_before_pass = 0;
};
constinit thread_local Recorder recorder{};
static_assert(std::is_trivially_destructible_v<Recorder>);

bool assumes(const Runtime& runtime) noexcept {
  return runtime.rule.load(std::memory_order_relaxed) == Rule::kAssumed;
}

// The number of the node's input that is the claim's tensor; -1: no input that requires a gradient.
// A node that writes in place saves a copy of its target.
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

// Links noted results to arguments that have payloads by now, so that they can be recomputed.
void link_notes(std::unique_lock<std::mutex>& lock) noexcept {
  std::array<LateLink*, Recorder::kMost> links;
  std::size_t count = 0;
  for (std::size_t i = 0; i < recorder.noted; ++i) {
    if (recorder.notes[i]->record != nullptr) {
      links[count++] = recorder.notes[i]->link;
    }
  }
  lock.unlock();  // the hooks live: this thread is making the node that has them
  for (std::size_t i = 0; i < count; ++i) {
    links[i]->link_argument();
  }
  lock.lock();
}

// Decides this thread's notes once their node is recorded; not for a copy that another node needs.
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
                           : Treatment{.decision = Decision().exact(Exactness::kOperator)},
                       node);
    }
  }
  link_notes(lock);
  while (recorder.noted != 0) {
    recorder.notes[--recorder.noted]->let_go();
  }
}

// Recognises a product or quotient that is a normalisation or a softmax by hand, and closes its
// input. Returns the inputs that must not be opened.
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

// Closes or opens the claims behind the node's inputs.
void judge_inputs(const Node& node, const NodeFacts& facts) {
  Ledger& ledger = Ledger::get();
  const NodeClass& c = class_of(node);
  const bool closes = facts.path == Path::kCloses ||
                      (facts.path == Path::kContracts && ledger.has_weight(node, facts.operands));
  Inputs spared = judge_recognised(node, facts);
  if (facts.path == Path::kOpens && root_of_rows(node)) {
    spared = 0xff;  // the other factor decides whether the root is harmful
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
      } else if (!c.has(kSums)) {  // a sum, as in label smoothing, reads no single values
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

// Whether a contraction closes by the operands known so far: Ledger::has_weight().
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
  } catch (...) {  // memory is short: the claim stays undecided, and so exact
  }
}

void add_unplaced_claim(Runtime& runtime, Claim& claim, const Node& producer) noexcept {
  Ledger& ledger = Ledger::get();
  try {
    std::unique_lock lock(ledger.mutex);
    if (assumes(runtime)) {
      ledger.carry_out(claim, {.decision = claim.lossy}, producer);
    } else {
      ledger.unplaced[claim.hooks] = &claim;
      ledger.meet_again(producer);  // a node that saves its result was met by this very save
    }
    ledger.start_all(lock);
  } catch (...) {  // memory is short: the claim stays undecided, and so exact
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
    // In recording order, if one thread recorded them.
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
  } catch (...) {  // memory is short: waiting claims stay undecided, and so exact
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
  } catch (
      ...) {  // memory is short, or a view that must not be differentiated: closed later, or never
  }
}

void note_node(Runtime& runtime, const Node& node) noexcept {
  Recorder& r = recorder;
  r.saver = nullptr;
  if (r.last == &node && r.last_sequence == node.sequence_nr()) {
    return;  // another result of the same node
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
  } catch (...) {  // memory is short: waiting claims stay undecided, and so exact
  }
}

void end_proofs(const torch::autograd::edge_list& roots, std::span<const std::uint64_t> recorders,
                PassKind kind) noexcept {
  Ledger& ledger = Ledger::get();
  std::vector<Leaves::LeafRead> reads;
  try {
    {
      const std::lock_guard guard(ledger.mutex);
      reads = ledger.leaves_read_by(recorders);
    }
    std::for_each(reads.begin(), reads.end(), [](Leaves::LeafRead& read) { read.look(); });
  } catch (...) {  // memory is short: leaves without an entry stay exact
  }
  bool news = false;
  {
    std::unique_lock lock(ledger.mutex);
    news = ledger.end(roots, recorders, reads, kind, std::exchange(recorder.code, nullptr));
    ledger.start_all(lock);
  }
  if (news) {
    std::fprintf(stderr,
                 "pleat: gradients of weights are differentiated (create_graph): all that is saved "
                 "behind these weights is exact until %u passes in a row are plain\n",
                 Lesson::kPlainPasses);
  }
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

bool expects_derivative() noexcept {
  Ledger& ledger = Ledger::get();
  try {
    if (const std::uint64_t pass = ledger.passes();
        std::exchange(recorder.looked_before_pass, pass) != pass) {
      if (const void* const before = std::exchange(recorder.code, code_that_creates_graph())) {
        const std::lock_guard guard(ledger.mutex);
        ledger.note_plain_code(before);  // another thread's pass has begun, or none
      }
    }
  } catch (...) {  // memory is short
  }
  if (recorder.code == nullptr) [[likely]] {
    return false;
  }
  const std::lock_guard guard(ledger.mutex);
  return ledger.expects_derivative(recorder.code);
}

bool is_made_of_weights(const Node& producer) noexcept {
  Ledger& ledger = Ledger::get();
  try {
    const std::lock_guard guard(ledger.mutex);
    return ledger.is_weight(producer);
  } catch (...) {
    return true;  // exact
  }
}

}  // namespace pleat::bridge
