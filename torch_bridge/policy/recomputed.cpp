#include "torch_bridge/policy/recomputed.h"

#include <torch/csrc/autograd/generated/Functions.h>

#include "torch_bridge/policy/node_class.h"
#include "torch_bridge/policy/saved_by.h"
#include "torch_bridge/torch_access/saved_variable_access.h"

namespace pleat::bridge {
namespace {

using compress::Function;
using torch::autograd::Node;
using torch::autograd::SavedVariable;
using torch::autograd::generated::GeluBackward0;
using torch::autograd::generated::SiluBackward0;

}  // namespace

RecomputedFrom recomputed_from(const Node& node) noexcept {
  constexpr int kMostViews = 4;
  const Node* maker = &node;
  for (int i = 0; i < kMostViews && class_of(*maker).has(kAliasesInput); ++i) {
    const Node* const input =
        maker->num_outputs() == 1 ? maker->next_edge(0).function.get() : nullptr;
    if (input == nullptr) {
      return {};
    }
    maker = input;
  }
  if (!class_of(*maker).has(kRecomputable)) {
    return {};
  }
  RecomputedFrom from;
  const SavedVariable* argument = nullptr;
  if (const auto* const gelu = dynamic_cast<const GeluBackward0*>(maker)) {
    from.function = gelu->approximate == "none"   ? Function::kGelu
                    : gelu->approximate == "tanh" ? Function::kGeluTanh
                                                  : Function::kNone;
    argument = &gelu->self_;
  } else if (const auto* const silu = dynamic_cast<const SiluBackward0*>(maker)) {
    from.function = Function::kSilu;
    argument = &silu->self_;
  }
  if (from.function == Function::kNone) {
    return {};
  }
  // The lock also fails if this thread is inside that node, and saves a tensor of a hook.
  from.held = std::unique_lock(mutex_of(const_cast<Node&>(*maker)), std::try_to_lock);
  if (from.held) {
    from.argument = hooks_of(*argument);
  }
  return from.argument != nullptr ? std::move(from) : RecomputedFrom{};
}

}  // namespace pleat::bridge
