#include "torch_bridge/measure/check.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <cmath>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "torch_bridge/core/runtime.h"
#include "torch_bridge/measure/gradient_sketches.h"
#include "torch_bridge/torch_access/python_objects.h"
#include "torch_bridge/torch_access/python_source.h"

namespace pleat::bridge {
namespace {

using torch::autograd::AccumulateGrad;
using torch::autograd::edge_list;
using torch::autograd::variable_list;

std::string shape_of(const at::Tensor& leaf) {
  std::string text = "[";
  for (const std::int64_t size : leaf.sizes()) {
    text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  }
  return text + "]";
}

std::vector<CheckBook::Parameter> parameters_of(const edge_list& leaves) {
  const std::unordered_map<const c10::TensorImpl*, std::string> names = parameter_names();
  std::vector<CheckBook::Parameter> parameters;
  for (const torch::autograd::Edge& leaf : leaves) {
    const at::Tensor& variable = static_cast<const AccumulateGrad&>(*leaf.function).variable;
    const c10::TensorImpl* const impl = variable.unsafeGetTensorImpl();
    const auto named = names.find(impl);
    CheckBook::Parameter& parameter = parameters.emplace_back();
    parameter.name = (named != names.end() ? named->second + " " : "") + shape_of(variable);
    if (named != names.end() || is_parameter(*impl)) {
      using Weak = c10::weak_intrusive_ptr<c10::TensorImpl>;
      parameter.leaf = impl;
      parameter.keeps_address = std::make_shared<Weak>(variable.getIntrusivePtr());
    }
  }
  return parameters;
}

// The reason to record for a pass that cannot be looked at; empty: it can be.
std::string refusal(PassKind kind) {
  if (kind.creates_graph) {
    return "create_graph";
  }
  if (!kind.accumulates) {
    return "gradients asked for by inputs= or autograd.grad";
  }
  return operators_are_watched() ? "a dispatch mode, tracing or a function transform" : "";
}

// The exact gradient of each parameter in the last pass that was looked at and had a finite one.
using Gradients = std::unordered_map<const void*, at::Tensor>;

void compare_with_pass_before(CheckBook& book, std::vector<CheckBook::Parameter>& parameters,
                              variable_list exact) {
  if (book.between_passes() == nullptr) {
    book.between_passes() = std::make_shared<Gradients>();
  }
  auto& gradients_before = *static_cast<Gradients*>(book.between_passes().get());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    CheckBook::Parameter& parameter = parameters[i];
    at::Tensor gradient = std::exchange(exact[i], {});
    if (parameter.leaf == nullptr || !gradient.defined() ||
        !std::isfinite(parameter.errors.gradient)) {
      continue;
    }
    at::Tensor& before = gradients_before[parameter.leaf];
    if (before.defined() && before.sizes() == gradient.sizes() &&
        before.device() == gradient.device()) {  // the parameter may have moved
      parameter.errors.batch = energy_of_difference(gradient, before);
      parameter.errors.pairs = 1;
    }
    // Its own copy: the script may hold and change what it gave to backward().
    before = gradient.clone();
  }
}

void look_at(Runtime& runtime, const GraphSurvey& graph, const ExtraPasses& passes) {
  const at::AutoGradMode no_grad(false);
  std::vector<CheckBook::Parameter> parameters = parameters_of(graph.leaves);
  variable_list exact = passes.gradients(graph.leaves, PassValues::kOriginal);
  const auto compare = [&](PassValues values, double GradientErrors::*error) {
    const variable_list others = passes.gradients(graph.leaves, values);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      parameters[i].errors.*error = energy_of_difference(others[i], exact[i]);
    }
  };
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    parameters[i].errors.gradient = energy_of_difference(exact[i], {});
  }
  compare(PassValues::kOriginal, &GradientErrors::repeated);
  compare(PassValues::kYardstick, &GradientErrors::yardstick);
  compare(PassValues::kPayload, &GradientErrors::noisy);
  compare_with_pass_before(runtime.check, parameters, std::move(exact));
  runtime.check.add_pass(parameters, runtime.bits.uniform());
  if (!runtime.check.watching()) {
    runtime.check.between_passes().reset();
  }
}

void check(Runtime& runtime, const edge_list& roots, PassKind kind, ExtraPasses::Run run) {
  if (!runtime.check.begin_look()) {
    return;  // what other threads run meanwhile is not looked at
  }
  struct Turn {
    CheckBook& book;
    ~Turn() { book.end_look(); }
  } const turn{runtime.check};
  if (const std::string why = refusal(kind); !why.empty()) {
    runtime.check.add_refusal(why);
    return;
  }
  const GraphSurvey graph = survey(roots);
  if (!graph.obstacle.empty() || graph.leaves.empty()) {
    runtime.check.add_refusal(graph.leaves.empty() ? "no leaf to reach" : graph.obstacle);
    return;
  }
  if (const std::string module = sharded_module(); !module.empty()) {
    runtime.check.add_refusal("parameters are sharded: " + module);
    return;
  }
  const ExtraPasses passes(std::move(run), graph);
  look_at(runtime, graph, passes);
}

}  // namespace

CheckedPass::CheckedPass(const edge_list& roots, PassKind kind, ExtraPasses::Run run) {
  Runtime* const runtime = Runtime::get();
  if (runtime == nullptr || !runtime->check.watching()) [[likely]] {
    return;
  }
  runtime_ = runtime;
  if (torch::autograd::get_current_graph_task_id() < 0 &&
      !runtime->retired()) {  // an outermost one
    try {
      check(*runtime, roots, kind, std::move(run));
    } catch (...) {
      runtime->check.add_refusal(line_of_exception());
    }
  }
  if (!in_extra_pass()) {  // a pass within one reads what that reads
    facts_.emplace(PassFacts{.values = PassValues::kOriginal});
  }
}

CheckedPass::~CheckedPass() {
  if (runtime_ == nullptr) {
    return;
  }
  facts_.reset();
  if (!runtime_->check.watching()) {
    runtime_->renew_heaps();  // originals are not kept any more
  }
}

}  // namespace pleat::bridge
