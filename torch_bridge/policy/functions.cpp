#include "torch_bridge/policy/functions.h"

#include <string_view>

#include "torch_bridge/core/runtime.h"
#include "torch_bridge/torch_access/python_objects.h"

namespace pleat::bridge {
namespace {

using torch::autograd::Node;

struct Named {
  std::string_view name;  // of the function's class; empty if unknown
  const void* python_class = nullptr;
  bool may_be_trusted = false;
};

Named named(const Node& node) noexcept {
  const NodeClass& c = class_of(node);
  if (c.of_torch || c.accumulate_grad) {
    return {};
  }
  if (!c.python) {  // nodes of other classes: TorchScript's, whose name is the same for every
                    // script
    return {c.name, nullptr, c.cpp_function};
  }
  const PythonClass known = class_of_function(node);
  if (known.name == nullptr) {
    return {};
  }
  std::string_view name = known.name;
  constexpr std::string_view kAddedByTorch = "Backward";
  if (name.size() > kAddedByTorch.size() && name.ends_with(kAddedByTorch)) {
    name.remove_suffix(kAddedByTorch.size());
  }
  // A checkpoint with use_reentrant=True is the one, with False it saves with the other. Like a
  // compiled function it covers any code.
  if (name == "CheckpointFunction" || name == "_NoopSaveInputs") {
    return {"torch.utils.checkpoint", known.type};
  }
  return {name, known.type, name != "CompiledFunction"};
}

}  // namespace

Trust trust_in(const Node& node) noexcept {
  Runtime* const runtime = Runtime::get();
  if (runtime == nullptr || !runtime->proofs.trusts_any()) {
    return Trust::kNone;
  }
  const Named function = named(node);
  return function.may_be_trusted ? runtime->proofs.trust_in(function.name, function.python_class)
                                 : Trust::kNone;
}

ProofBook::Function* function_of(const Node& node) noexcept {
  Runtime* const runtime = Runtime::get();
  const Named function = named(node);
  return runtime != nullptr && !function.name.empty()
             ? runtime->proofs.find(function.name, function.may_be_trusted)
             : nullptr;
}

std::string shown_name(const Node& node) {
  const Named function = named(node);
  return function.name.empty() ? class_of(node).name : std::string(function.name);
}

}  // namespace pleat::bridge
