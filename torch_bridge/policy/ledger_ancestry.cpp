// How the ledger traces the inputs of a node back to leaves, weights, normalisations and factors.
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "sensitivity/key.h"
#include "torch_bridge/memory/torch_record.h"
#include "torch_bridge/policy/ledger.h"
#include "torch_bridge/policy/node_class.h"
#include "torch_bridge/policy/recognised.h"
#include "torch_bridge/torch_access/python_objects.h"
#include "torch_bridge/torch_access/recording.h"

namespace pleat::bridge {

using torch::autograd::AccumulateGrad;
using torch::autograd::Edge;
using torch::autograd::Node;

namespace {

bool is_view(const Node& node) noexcept {
  return class_of(node).has(kAliasesInput) && node.num_outputs() == 1;
}

// Whether all leaves behind a node are torch.nn.Parameter; false beyond kMost nodes.
bool leads_to_parameters_alone(const Node& node) {
  constexpr std::size_t kMost = 256;
  std::vector<const Node*> met{&node};
  for (std::size_t next = 0; next < met.size(); ++next) {
    if (class_of(*met[next]).accumulate_grad) {
      const auto& leaf = static_cast<const AccumulateGrad&>(*met[next]).variable;
      if (!is_parameter(*leaf.unsafeGetTensorImpl())) {
        return false;
      }
    }
    for (const Edge& edge : met[next]->next_edges()) {
      if (edge.is_valid() && std::find(met.begin(), met.end(), edge.function.get()) == met.end()) {
        if (met.size() == kMost) {
          return false;
        }
        met.push_back(edge.function.get());
      }
    }
  }
  return true;
}

// An activation of a layer, although all inputs of the layer can be learned (embeddings of nodes,
// of shapes). An optimised leaf without a parameter can be a result (an adversarial image).
bool is_activation_of_contraction(const Node& node) {
  const OperatorRow& row = class_of(node).row;
  if ((row.saves != Saves::kWaits && row.saves != Saves::kSides) || node.num_outputs() == 0) {
    return false;
  }
  const Node* source = source_of(node.next_edge(0)).node;
  if (source != nullptr && class_of(*source).row.path == Path::kAdds) {  // a bias
    source = source_of(source->next_edge(0)).node;
  }
  return source != nullptr && class_of(*source).row.path == Path::kContracts &&
         leads_to_parameters_alone(*source);
}

bool contracts_with_itself(const Node& node, Inputs operands) {
  Source first;
  for (std::size_t i = 0; i < node.num_outputs() && i < 8; ++i) {
    if ((operands >> i & 1) != 0 && node.next_edge(i).is_valid()) {
      const Source source = source_of(node.next_edge(i));
      if (first.node != nullptr && source == first) {
        return true;
      }
      first = source;
    }
  }
  return false;
}

}  // namespace

Source source_of(const Edge& edge) noexcept {
  const Edge* at = &edge;
  while (at->is_valid() && is_view(*at->function)) {
    at = &at->function->next_edge(0);
  }
  return {at->function.get(), at->input_nr};
}

const Node* behind_views(const Node* node) noexcept {
  return node != nullptr && is_view(*node) ? source_of(node->next_edge(0)).node : node;
}

const GraphMarks::Mark* Ledger::known(const Node* node) noexcept {
  const GraphMarks::Mark* const mark = node != nullptr ? marks_.find(node) : nullptr;
  return mark != nullptr && mark->is_of(*node) ? mark : nullptr;
}

// ---- leaves -------------------------------------------------------------------------------------

void Ledger::note_leaves(const Node& node) {
  bool derivative = false, differentiated = false;
  for (const Edge& edge : node.next_edges()) {
    if (!edge.is_valid()) {
      continue;
    }
    if (class_of(*edge.function).accumulate_grad) {
      const auto& leaf = static_cast<const AccumulateGrad&>(*edge.function);
      derivative |= leaves_.note_read(leaf, node);
      differentiated |= leaves_.differentiates_any() && leaves_.note_weight(number_of_weight(leaf));
    } else if (any_derivative_) {
      if (const GraphMarks::Mark* const mark = known(edge.function.get())) {
        derivative |= mark->derivative;
        differentiated |= mark->differentiated;
      }
    }
  }
  if (derivative || differentiated) {
    GraphMarks::Mark& mark = marks_.of(node);
    mark.derivative |= derivative;
    mark.differentiated |= differentiated;
    any_derivative_ = true;
  }
}

bool Ledger::is_derivative(const Node& node) noexcept {
  const GraphMarks::Mark* const mark = any_derivative_ ? known(&node) : nullptr;
  return mark != nullptr && (mark->derivative || mark->differentiated);
}

std::uint64_t Ledger::number_of_weight(const AccumulateGrad& leaf) {
  return leaf_numbers_.structure_of(leaf, is_weight_leaf(*leaf.variable.unsafeGetTensorImpl()));
}

void Ledger::differentiate_weights(const torch::autograd::edge_list& roots) {
  visit_nodes(roots, [&](const Node& node) {
    if (class_of(node).accumulate_grad) {
      leaves_.differentiate(number_of_weight(static_cast<const AccumulateGrad&>(node)));
    }
  });
}

// ---- linear algebra ----------------------------------------------------------------------------

void Ledger::note_factors(const Node& node, const NodeFacts& facts) {
  const bool contracts = facts.path == Path::kContracts;
  bool of_factor = class_of(node).has(kFactorises);
  if (!of_factor && any_of_factor_ && facts.path != Path::kCloses &&
      !(contracts && has_weight(node, facts.operands))) {
    for (const Edge& edge : node.next_edges()) {
      const GraphMarks::Mark* const mark = known(edge.function.get());
      of_factor |= mark != nullptr && (mark->of_factor || mark->gram);
    }
  }
  const bool gram = contracts && contracts_with_itself(node, facts.operands);
  if (of_factor || gram) {
    GraphMarks::Mark& mark = marks_.of(node);
    mark.of_factor = of_factor;
    mark.gram = gram;
    any_of_factor_ = true;
  }
}

// ---- normalisations by hand --------------------------------------------------------------------

bool Ledger::normalises(const Node* node) noexcept {
  const GraphMarks::Mark* const mark = known(behind_views(node));
  return mark != nullptr && mark->normalises;
}

void Ledger::note_normalisation(const Node& node, std::size_t factor) {
  marks_.of(node).normalises = true;
  close_behind(*node.next_edge(factor).function, class_of(node));
}

void Ledger::close_rows(const Node& normalisation) {
  const std::optional<RootOfRows> root = normalisation_by_hand(normalisation);
  if (!root) {
    return;
  }
  GraphMarks::Mark& mark = marks_.of(*root->squares);
  for (Claim* claim = mark.claims; claim != nullptr; claim = claim->next) {
    const auto lines = lines_of(claim->shape, root->rows);
    if (!lines) {
      if (claim->record != nullptr && !claim->record->is_encoded()) {
        refuse(*claim, Exactness::kPole);
      }
      continue;
    }
    claim->lossy.choice.lines = *lines;
    if (claim->state == Claim::State::kWaits) {
      settle(*claim, *closer_);
    } else if (claim->record != nullptr) {
      claim->record->raise(claim->lossy);
    }
  }
}

void Ledger::refuse_rows(const Node& normalisation, const Opening& opening) {
  const std::optional<RootOfRows> root = normalisation_by_hand(normalisation);
  if (!root) {
    return;
  }
  for (Claim* claim = marks_.of(*root->squares).claims; claim != nullptr; claim = claim->next) {
    if (claim->record != nullptr && !claim->record->is_encoded()) {
      refuse(*claim, opening.why, opening.function);
    }
  }
}

// ---- weights ------------------------------------------------------------------------------------

bool Ledger::has_weight(const Node& node, Inputs operands) {
  for (std::size_t i = 0; i < node.num_outputs() && i < 8; ++i) {
    const Edge& edge = node.next_edge(i);
    if ((operands >> i & 1) != 0 && edge.is_valid() && mixes(*edge.function) &&
        !(normalises(edge.function.get()) && has_unit_rows_beside(node, i))) {
      return true;
    }
  }
  return false;
}

bool Ledger::mixes(const Node& node) {
  return is_weight(node) && exponential_behind(&node) == nullptr;
}

bool Ledger::has_unit_rows_beside(const Node& node, std::size_t input) noexcept {
  const Inputs operands = class_of(node).row.operands;
  for (std::size_t i = 0; i < node.num_outputs() && i < 8; ++i) {
    if ((operands >> i & 1) != 0 && i != input && normalises(node.next_edge(i).function.get())) {
      return true;
    }
  }
  return false;
}

bool Ledger::reads_again(const Node& node, std::size_t input) {
  const Source source = source_of(node.next_edge(input));
  if (source.node == nullptr) {
    return false;
  }
  constexpr std::uint32_t kLast = 7;  // the results from there on share one bit
  const auto bit = static_cast<std::uint8_t>(1u << std::min(source.output, kLast));
  GraphMarks::Mark& mark = marks_.of(*source.node);
  if (mark.last_reader != &node) {
    mark.last_reader = &node;
    mark.read_by_last = 0;
  }
  const bool again = (mark.read & ~mark.read_by_last & bit) != 0;
  if (!again) {
    mark.read_by_last |= bit;
  }
  mark.read |= bit;
  return again;
}

bool Ledger::is_weight(const Node& node, int depth) {
  constexpr int kDeepest = 64;
  const NodeClass& c = class_of(node);
  if (c.accumulate_grad) {
    return leaves_.is_weight(
        *static_cast<const AccumulateGrad&>(node).variable.unsafeGetTensorImpl());
  }
  if (depth > kDeepest || !(c.of_torch || c.has(kPassesParameter))) {
    return false;
  }
  if (c.has(kPassesParameter) && node.num_outputs() == 1) {  // no mark for each view
    return node.next_edge(0).is_valid() && is_weight(*node.next_edge(0).function, depth + 1);
  }
  if (const auto known = marks_.of(node).weight; known != GraphMarks::Weight::kUnknown) {
    return known == GraphMarks::Weight::kYes;
  }
  bool weight = false;
  try {
    weight = work_out_weight(node, depth);
  } catch (const c10::Error&) {  // symbolic sizes
  }
  marks_.of(node).weight = weight ? GraphMarks::Weight::kYes : GraphMarks::Weight::kNo;
  return weight;
}

// A computed weight is made of weights alone, and of constants that do not enlarge it: a mask, a
// scale. A contraction with a constant is a layer over data, unless its result is a vector or has
// the shape of a computed weight. A leaf's shape does not count, because a batch as long as a row
// gives a layer's result the shape of its weight. Picked elements and activations of a contraction
// are data, too.
bool Ledger::work_out_weight(const Node& node, int depth) {
  const NodeClass& c = class_of(node);
  if (c.has(kPicks) || is_activation_of_contraction(node)) {
    return false;
  }
  const Edge* largest = nullptr;
  bool constants = false;
  for (const Edge& edge : node.next_edges()) {
    if (!edge.is_valid()) {
      constants = true;
    } else if (!is_weight(*edge.function, depth + 1)) {
      return false;
    } else if (largest == nullptr || numel_of(edge) > numel_of(*largest)) {
      largest = &edge;
    }
  }
  if (largest == nullptr || !constants) {
    return largest != nullptr;
  }
  if (numel_of(node, 0) > numel_of(*largest)) {
    return false;
  }
  return c.row.path != Path::kContracts || rank_of(node, 0) <= 1 ||
         (!leads_to_leaf(largest->function.get()) && sizes_of(node, 0) == sizes_of(*largest));
}

std::uint64_t Ledger::structure_of(const Node& node) {
  // The structure of an input, or 0 if it is not computed yet.
  const auto known = [&](const Edge& edge) -> std::uint64_t {
    if (!edge.is_valid()) {
      return 1;
    }
    if (class_of(*edge.function).accumulate_grad) {
      return number_of_weight(static_cast<const AccumulateGrad&>(*edge.function));
    }
    return marks_.of(*edge.function).structure;
  };
  std::vector<const Node*> walk{&node};
  while (!walk.empty()) {
    const Node& next = *walk.back();
    if (marks_.of(next).structure != 0) {
      walk.pop_back();
      continue;
    }
    std::uint64_t structure = sensitivity::mix(class_of(next).hash);
    const std::size_t waits_from = walk.size();
    for (const Edge& edge : next.next_edges()) {
      const std::uint64_t of_input = known(edge);
      if (of_input == 0) {
        walk.push_back(edge.function.get());
      } else {
        structure = sensitivity::structure_with(structure, of_input, edge.input_nr);
      }
    }
    if (walk.size() == waits_from) {
      walk.pop_back();
      marks_.of(next).structure = structure != 0 ? structure : 1;
    }
  }
  return marks_.of(node).structure;
}

}  // namespace pleat::bridge
