#include "torch_bridge/policy/treatment.h"

#include <cmath>

#include "torch_bridge/policy/recognised.h"

namespace pleat::bridge {
namespace {

using compress::ElementType;
using compress::Sides;
using compress::block::Kept;
using compress::block::Lines;
using compress::block::Look;
using torch::autograd::Edge;
using torch::autograd::Node;

Treatment exact(Exactness why) noexcept { return {.decision = Decision().exact(why)}; }

// True if the bound is a value of the type: only then torch certainly compares with that number.
bool is_value(double bound, ElementType type) noexcept {
  const auto single = static_cast<float>(bound);
  if (static_cast<double>(single) != bound) {
    return false;
  }
  switch (type) {
    case ElementType::kFloat32:
      return true;
    case ElementType::kBFloat16:
      return std::isinf(single) || static_cast<float>(c10::BFloat16(single)) == single;
    case ElementType::kFloat16:
      return std::isinf(single) || static_cast<float>(c10::Half(single)) == single;
    default:
      return false;
  }
}

Sides sides_of(const NodeFacts::Bounds& bounds, ElementType type) noexcept {
  if (bounds.kind == Sides::Kind::kNone || !is_value(bounds.low, type) ||
      !is_value(bounds.high, type)) {
    return {};
  }
  return {bounds.kind, bounds.nan_inside, static_cast<float>(bounds.low),
          static_cast<float>(bounds.high)};
}

Treatment treat_operand(const Node& node, const NodeFacts& facts, int input, Ledger& ledger,
                        Decision lossy) {
  if (input < 0 || (facts.operands >> input & 1) == 0) {
    return exact(Exactness::kOperator);
  }
  const auto others = static_cast<Inputs>(facts.operands & ~(1u << input));
  if (ledger.has_weight(node, others)) {
    return {.decision = lossy};
  }
  for (std::size_t i = 0; i < node.num_outputs() && i < 8; ++i) {
    if ((others >> i & 1) == 0) {
      continue;
    }
    const Node* const other = node.next_edge(i).function.get();
    if (other == nullptr) {  // without a gradient for it, backward does not read this save
      return {.decision = lossy.keeping(Why::kShape, Kept::kNothing)};
    }
    // The gradient of a softmax is a difference, and a learned scale or bias reads its sum.
    if (const Node* const softmax = exponential_behind(other);
        softmax != nullptr && !has_plain_scores(*softmax)) {
      lossy = with_noise(lossy, Noise::kEight, Why::kAttention);
    }
  }
  if (ledger.reads_again(node, static_cast<std::size_t>(input))) {
    return exact(Exactness::kComputedWeight);
  }
  return {.decision = lossy, .waits = true};
}

// Plants the faults of tests.
void plant_fault(Rule rule, const Decision& lossy, Treatment& treatment) noexcept {
  if (rule == Rule::kAssumed) {
    treatment.waits = false;
  } else if (rule == Rule::kNoLines) {
    treatment.decision.choice.lines = {};
    treatment.decision.choice.channels = {};
  } else if (rule == Rule::kNoSides && treatment.decision.choice.sides.any()) {
    treatment.decision = lossy;
    treatment.decision.choice.sides = {};
  }
}

// Treats a factor or dividend whose other operand can be a root of its own rows, or its own sum.
Treatment treat_factor(const Claim& claim, const Node& node, const NodeFacts& facts, int input,
                       const Decision& lossy) {
  const bool quotient = facts.saves != Saves::kFactors;
  const Inputs factors = quotient ? Inputs{3} : facts.operands;
  if (input < 0 || (factors >> input & 1) == 0) {
    return quotient ? exact(Exactness::kOperator) : Treatment{.decision = lossy, .waits = true};
  }
  for (std::size_t i = 0; i < node.num_outputs() && i < 8; ++i) {
    if ((factors >> i & 1) == 0 || static_cast<int>(i) == input || !node.next_edge(i).is_valid()) {
      continue;
    }
    const Recognised found = recognise(node, static_cast<std::size_t>(input), i);
    if (found.beside == Beside::kRootOfOwnRows) {
      const std::optional<Lines> lines = lines_of(claim.shape, found.root.rows);
      if (!lines) {
        return exact(Exactness::kPole);
      }
      Treatment treatment{.decision = lossy, .waits = true};
      treatment.decision.choice.lines = *lines;
      return treatment;
    }
    if (found.beside == Beside::kOwnSum) {
      return {.decision = with_noise(lossy, Noise::kEight, Why::kOwnSum), .waits = true};
    }
    if (is_beside_pole_of_own(node, static_cast<std::size_t>(input), i)) {
      return exact(Exactness::kPole);
    }
    // Scales of rows can have very different sizes, and the largest sets the noise. They are small
    // tensors relative to the scaled one.
    const Edge& own = node.next_edge(static_cast<std::size_t>(input));
    constexpr std::int64_t kBroadcast = 16;
    if (numel_of(own) * kBroadcast <= numel_of(node.next_edge(i)) && is_made_by_pole(own)) {
      return exact(Exactness::kPole);
    }
  }
  return quotient ? exact(Exactness::kOperator) : Treatment{.decision = lossy, .waits = true};
}

Treatment treat_rows(const Claim& claim, const Node& node, Decision lossy) {
  const std::optional<Reduction> rows = reduction_of(node);
  const std::optional<Lines> lines = rows ? lines_of(claim.shape, *rows) : std::nullopt;
  if (!lines || claim.is_output) {
    return exact(Exactness::kOperator);
  }
  lossy.choice.lines = *lines;
  return {.decision = lossy, .waits = true};
}

Treatment treat_input_of_normalisation(const NodeFacts& facts, const Claim& claim, int input,
                                       Decision lossy) {
  if (input != 0) {
    return exact(
        Exactness::kOperator);  // statistics: noise in them would have 300 times the effect
  }
  if (facts.rows != Rows::kNone) {
    lossy.choice.lines = lines_of(claim.shape, facts.rows, facts.groups);
  }
  return {.decision = lossy};
}

}  // namespace

Treatment treat(Runtime& runtime, const Claim& claim, const Node& node, int input, Ledger& ledger) {
  const NodeFacts facts = facts_of(node);
  const Rule rule = runtime.rule.load(std::memory_order_relaxed);
  const ElementType type = claim.lossy.choice.type;
  Decision lossy = with_noise(claim.lossy, facts.noise, Why::kOwnOperator);
  lossy.choice.lines = lines_of(claim.shape, Rows::kNone);
  lossy.choice.channels = channels_of(claim.shape, facts.of_image);
  if (facts.path == Path::kUnknown) {
    return rule == Rule::kAssumed ? Treatment{.decision = lossy} : exact(Exactness::kFunction);
  }
  Treatment treatment = exact(Exactness::kOperator);
  switch (facts.saves) {
    case Saves::kExact:
      if (is_quotient(node) && input == 0) {
        treatment = treat_factor(claim, node, facts, input, lossy);
      }
      break;
    case Saves::kWaits:
      lossy.choice.sides = sides_of(facts.bounds, type);
      if (lossy.choice.sides.any()) lossy.choice.channels = {};
      treatment = {.decision = lossy, .waits = facts.path != Path::kCloses};
      break;
    case Saves::kRows:
      treatment = treat_rows(claim, node, lossy);
      break;
    case Saves::kOperands:
      treatment = treat_operand(node, facts, input, ledger, lossy);
      break;
    case Saves::kFactors:
      treatment = treat_factor(claim, node, facts, input, lossy);
      break;
    case Saves::kInput:
      treatment = treat_input_of_normalisation(facts, claim, input, lossy);
      break;
    case Saves::kAtOnce: {
      // Results beyond these are statistics or a kernel's internal data, inputs beyond are masks.
      const bool attention = facts.noise == Noise::kExponent;
      const bool known = claim.is_output ? claim.output_number < (attention ? 1u : 3u)
                                         : input >= 0 && (!attention || input < 3);
      // The gradient is linear in the values of attention, and in its result.
      if (attention && (claim.is_output || input == 2))
        lossy.choice.steps = compress::block::Steps::kAny;
      if (known) {
        treatment = {.decision = lossy};
      }
      break;
    }
    case Saves::kSides:
      if (const Sides sides = sides_of(facts.bounds, type); sides.any()) {
        treatment = {.decision = lossy.keeping(Why::kSides, Kept::kSides, sides)};
      }
      break;
    case Saves::kShape:
      treatment = {.decision = lossy.keeping(Why::kShape, Kept::kNothing)};
      break;
    case Saves::kLogProbabilities:
      lossy.choice.near_zero = true;
      treatment = {.decision = lossy, .waits = true};
      break;
  }
  treatment.beyond_doubt = treatment.decision.choice.kept != Kept::kValues ||
                           facts.saves == Saves::kInput ||
                           (facts.saves == Saves::kOperands && !treatment.waits);
  if (rule == Rule::kOperands && !treatment.beyond_doubt) {
    return exact(Exactness::kRule);
  }
  plant_fault(rule, lossy, treatment);
  return treatment;
}

}  // namespace pleat::bridge
