#include "torch_bridge/policy/recognised.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace pleat::bridge {
namespace {

using compress::block::kShortestLine;
using compress::block::Lines;
using compress::block::Look;
using torch::autograd::Edge;
using torch::autograd::Node;

bool is(const Node& node, std::string_view name) noexcept {
  return class_of(node).name.starts_with(name);
}

// The only input that requires a gradient; null: several inputs do, or none.
const Edge* only_input(const Node& node) noexcept {
  const Edge* only = nullptr;
  for (const Edge& edge : node.next_edges()) {
    if (edge.is_valid()) {
      if (only != nullptr) {
        return nullptr;
      }
      only = &edge;
    }
  }
  return only;
}

// True for views, casts, a constant added or multiplied, a lower bound: such nodes keep a sum of
// squares, or its root, recognisable.
bool is_gentle(const Node& node) noexcept {
  return class_of(node).has(kPassesParameter) || class_of(node).has(kAliasesInput) ||
         is(node, "AddBackward") || is(node, "MulBackward") || is(node, "DivBackward") ||
         is(node, "ClampMinBackward0") || is(node, "ClampBackward1");
}

// Follows gentle nodes, and returns the first other node.
const Node* behind_gentle(const Node* node) noexcept {
  for (int i = 0; node != nullptr && i < 10 && is_gentle(*node); ++i) {
    const Edge* const input = only_input(*node);
    if (input == nullptr) {
      return node;
    }
    node = input->function.get();
  }
  return node;
}

Edge behind_casts(Edge edge) noexcept {
  for (int i = 0; i < 6 && edge.is_valid() && class_of(*edge.function).has(kPassesParameter) &&
                  edge.function->num_outputs() == 1 && !is(*edge.function, "SliceBackward") &&
                  !is(*edge.function, "SelectBackward");
       ++i) {
    edge = Edge(edge.function->next_edge(0));
  }
  return edge;
}

bool same(const Edge& a, const Edge& b) noexcept {
  return a.is_valid() && b.is_valid() && a.function == b.function && a.input_nr == b.input_nr;
}

// A sum or mean of squares, or a variance.
std::optional<RootOfRows> squares_of(const Node* node) noexcept {
  node = behind_gentle(node);
  if (node == nullptr) {
    return std::nullopt;
  }
  std::optional<Reduction> rows = reduction_of(*node);
  if (!rows) {
    return std::nullopt;
  }
  if (is(*node, "VarBackward") || is(*node, "VarMeanBackward") || is(*node, "LinalgVectorNorm") ||
      is(*node, "NormBackward") || is(*node, "StdBackward")) {
    const Edge& source = node->next_edge(0);
    return RootOfRows{node, behind_casts(source), *rows};
  }
  const Node* const squares = node->next_edge(0).function.get();
  if (squares == nullptr) {
    return std::nullopt;
  }
  const bool power = exponent_of(*squares) == 2.0;
  const bool product = is(*squares, "MulBackward") && squares->num_outputs() == 2 &&
                       same(squares->next_edge(0), squares->next_edge(1));
  if (!power && !product) {
    return std::nullopt;
  }
  return RootOfRows{squares, behind_casts(squares->next_edge(0)), *rows};
}

bool takes_root(const Node& node) noexcept {
  const auto exponent = exponent_of(node);
  return is(node, "RsqrtBackward") || is(node, "SqrtBackward") || exponent == 0.5 ||
         exponent == -0.5;
}

// x - mean(x): the edge to x.
Edge deviation_of(const Edge& edge) noexcept {
  const Edge difference = behind_casts(edge);
  if (!difference.is_valid() || !is(*difference.function, "SubBackward") ||
      difference.function->num_outputs() != 2) {
    return {};
  }
  const Edge& whole = difference.function->next_edge(0);
  const Edge& mean = difference.function->next_edge(1);
  const Node* const average = mean.is_valid() ? behind_gentle(mean.function.get()) : nullptr;
  if (average == nullptr || !(is(*average, "MeanBackward") || is(*average, "VarMeanBackward")) ||
      !same(behind_casts(average->next_edge(0)), behind_casts(whole))) {
    return {};
  }
  return behind_casts(whole);
}

// Whether a sum over many elements of the factor's source is found behind `node`.
bool sums(const Node& node, const Edge& factor) noexcept {
  struct Found {
    const Node* node;
    bool summed;
  };
  std::array<Found, 16> found{{{&node, false}}};
  std::size_t count = 1;
  for (std::size_t next = 0; next < count; ++next) {
    const Node& one = *found[next].node;
    const Path path = class_of(one).row.path;
    if (path != Path::kPasses && path != Path::kAdds) {
      continue;
    }
    const bool summed = found[next].summed || class_of(one).has(kSums);
    for (const Edge& edge : one.next_edges()) {
      if (!edge.is_valid()) {
        continue;
      }
      if (summed && same(behind_casts(edge), factor)) {
        return true;
      }
      if (count < found.size()) {
        found[count++] = {edge.function.get(), summed};
      }
    }
  }
  return false;
}

// The nodes behind an edge, up to those that mix many elements by a leaf or normalise (inclusive).
class NodesBehind {
 public:
  explicit NodesBehind(const Edge& edge) noexcept {
    add(edge);
    for (std::size_t next = 0; next < count_; ++next) {
      const Node& node = *nodes_[next];
      if (!is_boundary(node)) {
        for (const Edge& input : node.next_edges()) {
          add(input);
        }
      }
    }
  }
  [[nodiscard]] bool any_pole() const noexcept {
    return std::any_of(begin(), end(), [](const Node* node) { return is_pole(*node); });
  }
  [[nodiscard]] bool meets(const NodesBehind& other) const noexcept {
    return std::any_of(begin(), end(), [&](const Node* node) {
      return std::find(other.begin(), other.end(), node) != other.end();
    });
  }

 private:
  static bool is_boundary(const Node& node) noexcept {
    const OperatorRow& row = class_of(node).row;
    if (row.path == Path::kCloses || class_of(node).accumulate_grad) {
      return true;
    }
    for (std::size_t i = 0; row.path == Path::kContracts && i < node.num_outputs() && i < 8; ++i) {
      if ((row.operands >> i & 1) != 0 && leads_to_leaf(node.next_edge(i).function.get())) {
        return true;
      }
    }
    return (is_quotient(node) || is(node, "MulBackward")) && normalisation_by_hand(node);
  }
  // A quotient that is a normalisation or a softmax by hand is not a pole.
  static bool is_pole(const Node& node) noexcept {
    const OperatorRow& row = class_of(node).row;
    if (row.path == Path::kOpens || exponent_of(node).value_or(1) < 0) {
      return true;
    }
    for (std::size_t i = 0; i < node.num_outputs() && i < 8; ++i) {
      if ((row.poles >> i & 1) != 0 && node.next_edge(i).is_valid()) {
        const bool recognised = is_quotient(node) && i == 1 && node.next_edge(0).is_valid() &&
                                recognise(node, 0, 1).beside != Beside::kAnything;
        return !recognised;
      }
    }
    return false;
  }
  void add(const Edge& edge) noexcept {
    if (edge.is_valid() && count_ < nodes_.size() &&
        std::find(begin(), end(), edge.function.get()) == end()) {
      nodes_[count_++] = edge.function.get();
    }
  }
  [[nodiscard]] const Node* const* begin() const noexcept { return nodes_.data(); }
  [[nodiscard]] const Node* const* end() const noexcept { return nodes_.data() + count_; }

  std::array<const Node*, 32> nodes_{};
  std::size_t count_ = 0;
};

}  // namespace

const Node* exponential_behind(const Node* node) noexcept {
  for (int i = 0; node != nullptr && i < 6; ++i) {
    const OperatorRow& row = class_of(*node).row;
    if (row.path == Path::kExponential && row.saves == Saves::kWaits &&
        row.noise == Noise::kEight) {
      return node;
    }
    const Edge* const input = row.path == Path::kPasses ? only_input(*node) : nullptr;
    node = input != nullptr ? input->function.get() : nullptr;
  }
  return nullptr;
}

bool has_plain_scores(const Node& exponential) noexcept {
  const Edge* input = only_input(exponential);
  for (int i = 0; input != nullptr && i < 10; ++i) {
    const Node& node = *input->function;
    const OperatorRow& row = class_of(node).row;
    if (row.path == Path::kContracts) {
      return true;
    }
    const bool linear =
        (row.path == Path::kPasses || row.path == Path::kAdds) && row.saves != Saves::kWaits;
    input = linear ? only_input(node) : nullptr;
  }
  return false;
}

std::optional<RootOfRows> root_of_rows(const Node& node) noexcept {
  if (is(node, "StdBackward") || is(node, "LinalgVectorNorm") || is(node, "NormBackward")) {
    return squares_of(&node);
  }
  const Edge* const input = takes_root(node) ? only_input(node) : nullptr;
  return input != nullptr ? squares_of(input->function.get()) : std::nullopt;
}

Recognised recognise(const Node& node, std::size_t factor, std::size_t other) noexcept {
  const Edge& own = node.next_edge(factor);
  const Node* root = behind_gentle(node.next_edge(other).function.get());
  if (root == nullptr) {
    return {};
  }
  if (is(*root, "ReciprocalBackward") || exponent_of(*root) == -1.0) {
    const Edge* const input = only_input(*root);
    root = input != nullptr ? behind_gentle(input->function.get()) : nullptr;
  }
  if (root != nullptr) {
    if (std::optional<RootOfRows> found = root_of_rows(*root)) {
      if (same(behind_casts(own), found->source) || same(deviation_of(own), found->source)) {
        return {Beside::kRootOfOwnRows, *std::move(found)};
      }
      return {};
    }
  }
  if (exponential_behind(own.function.get()) != nullptr &&
      sums(*node.next_edge(other).function, behind_casts(own))) {
    return {Beside::kOwnSum, {}};
  }
  return {};
}

std::optional<RootOfRows> normalisation_by_hand(const Node& node) noexcept {
  if (node.num_outputs() != 2 || !node.next_edge(0).is_valid() || !node.next_edge(1).is_valid()) {
    return std::nullopt;
  }
  const std::size_t factors = is_quotient(node) ? 1 : 2;
  for (std::size_t factor = 0; factor < factors; ++factor) {
    if (Recognised found = recognise(node, factor, 1 - factor);
        found.beside == Beside::kRootOfOwnRows) {
      return std::move(found.root);
    }
  }
  return std::nullopt;
}

bool is_beside_pole_of_own(const Node& node, std::size_t factor, std::size_t other) noexcept {
  const NodesBehind beside(node.next_edge(other));
  return beside.any_pole() && beside.meets(NodesBehind(node.next_edge(factor)));
}

bool is_made_by_pole(const Edge& factor) noexcept { return NodesBehind(factor).any_pole(); }

std::optional<Lines> lines_of(const SavedShape& shape, Reduction rows) noexcept {
  const std::uint32_t rank = rows.rank;
  const auto all = static_cast<std::uint32_t>((std::uint64_t{1} << rank) - 1);
  if (rows.dimensions == all) {
    return Lines{};
  }
  if (shape.rank != rank || rank > SavedShape::kMostDimensions || !shape.contiguous) {
    return std::nullopt;
  }
  const auto product = [&](std::size_t begin, std::size_t end) {
    std::int64_t elements = 1;
    for (std::size_t d = begin; d < end; ++d) {
      elements *= shape.sizes[d];
    }
    return elements;
  };
  const auto lines = [](Look look, std::int64_t length) -> std::optional<Lines> {
    if (length < 2 || length > UINT32_MAX) {
      return std::nullopt;
    }
    return Lines{look, static_cast<std::uint32_t>(length)};
  };
  for (std::uint32_t kept = 1; kept < rank; ++kept) {
    const std::uint32_t leading = (1u << kept) - 1;
    if (rows.dimensions == (all & ~leading)) {  // the last dimensions
      const std::int64_t length = product(kept, rank);
      return length >= kShortestLine ? lines(Look::kRows, length) : std::nullopt;
    }
    if (rows.dimensions == leading && product(0, kept) >= kShortestLine) {  // the first dimensions
      return lines(Look::kColumns, product(kept, rank));
    }
  }
  const std::uint32_t planes = all & ~2u;  // planes of a channel
  if (rank >= 3 && rows.dimensions == planes) {
    const std::int64_t plane = product(2, rank);
    return plane >= kShortestLine ? lines(Look::kRows, plane)
                                  : lines(Look::kColumns, shape.sizes[1] * plane);
  }
  return std::nullopt;
}

}  // namespace pleat::bridge
