#include "torch_bridge/policy/saved_by.h"

#include <torch/csrc/autograd/generated/Functions.h>

#include <typeindex>
#include <unordered_map>

#include "torch_bridge/torch_access/saved_variable_access.h"

namespace pleat::bridge {
namespace {

using torch::autograd::Node;
using torch::autograd::SavedVariable;
using namespace torch::autograd::generated;

struct Visitor {
  std::vector<SavedBy>& found;
  void operator()(const SavedVariable& saved, int input) {
    if (const auto* const hooks = hooks_of(saved)) {
      found.push_back({hooks, input});
    }
  }
};

using Visit = void (*)(const Node& node, Visitor visit);

constexpr int kResult = -1;

template <class Class>
void visit_members(const Class& /*node*/, Visitor /*visit*/) {}
template <class Class, class... Rest>
void visit_members(const Class& node, Visitor visit, SavedVariable Class::*member, int input,
                   Rest... rest) {
  visit(node.*member, input);
  visit_members(node, visit, rest...);
}

// A row: the class, and each member that holds a saved tensor with its input number.
#define PLEAT_SAVES(Class, ...)                                       \
  {                                                                   \
    typeid(Class), [](const Node& node, Visitor visit) {              \
      using C = Class;                                                \
      visit_members(static_cast<const C&>(node), visit, __VA_ARGS__); \
    }                                                                 \
  }

const std::unordered_map<std::type_index, Visit>& visits() {
  static const auto& all = *new std::unordered_map<std::type_index, Visit>{
      PLEAT_SAVES(MmBackward0, &C::self_, 0, &C::mat2_, 1),
      PLEAT_SAVES(BmmBackward0, &C::self_, 0, &C::mat2_, 1),
      PLEAT_SAVES(AddmmBackward0, &C::mat1_, 1, &C::mat2_, 2),
      PLEAT_SAVES(BaddbmmBackward0, &C::batch1_, 1, &C::batch2_, 2),
      PLEAT_SAVES(ConvolutionBackward0, &C::input_, 0, &C::weight_, 1),
      PLEAT_SAVES(NativeLayerNormBackward0, &C::input_, 0, &C::result1_, kResult, &C::result2_,
                  kResult),
      PLEAT_SAVES(NativeGroupNormBackward0, &C::input_, 0, &C::result1_, kResult, &C::result2_,
                  kResult),
      PLEAT_SAVES(NativeBatchNormBackward0, &C::input_, 0, &C::result1_, kResult, &C::result2_,
                  kResult),
      PLEAT_SAVES(FusedRmsNormBackward0, &C::input_, 0, &C::result1_, kResult),
      PLEAT_SAVES(ScaledDotProductFlashAttentionForCpuBackward0, &C::query_, 0, &C::key_, 1,
                  &C::value_, 2, &C::output_, kResult),
      PLEAT_SAVES(MulBackward0, &C::self_, 0, &C::other_, 1),
      PLEAT_SAVES(DivBackward0, &C::self_, 0, &C::other_, 1),
      PLEAT_SAVES(PowBackward0, &C::self_, 0),
      PLEAT_SAVES(GeluBackward0, &C::self_, 0),
      PLEAT_SAVES(SiluBackward0, &C::self_, 0),
      PLEAT_SAVES(ReluBackward0, &C::result_, kResult),
      PLEAT_SAVES(SigmoidBackward0, &C::result_, kResult),
      PLEAT_SAVES(TanhBackward0, &C::result_, kResult),
      PLEAT_SAVES(SoftmaxBackward0, &C::result_, kResult),
      PLEAT_SAVES(LogSoftmaxBackward0, &C::result_, kResult),
      PLEAT_SAVES(NllLossBackward0, &C::self_, 0),
      PLEAT_SAVES(MaxPool2DWithIndicesBackward0, &C::self_, 0),
      PLEAT_SAVES(AvgPool2DBackward0, &C::self_, 0),
      PLEAT_SAVES(LeakyReluBackward0, &C::self_, 0),
      PLEAT_SAVES(EluBackward0, &C::self_, 0),
      PLEAT_SAVES(HardtanhBackward0, &C::self_, 0),
  };
  return all;
}
#undef PLEAT_SAVES

}  // namespace

std::vector<SavedBy> saved_by(const Node& node) {
  std::vector<SavedBy> found;
  const auto visit = visits().find(typeid(node));
  if (visit != visits().end()) {
    const std::unique_lock held(mutex_of(const_cast<Node&>(node)), std::try_to_lock);
    if (held) {
      visit->second(node, Visitor{found});
    }
  }
  return found;
}

}  // namespace pleat::bridge
