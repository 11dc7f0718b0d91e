#include "torch_bridge/entry/gradient_sketches.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/function_hook.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <utility>

#include "torch_bridge/torch_access/pass_state.h"

namespace pleat::bridge {

using sensitivity::Sketch;
using torch::autograd::edge_list;
using torch::autograd::variable_list;

namespace {

// Adds the gradient of the leaf-th leaf to its sketch, and returns its squared norm.
double sketch(at::Tensor gradient, std::size_t leaf, Sketch& into) {
  if (!gradient.defined() || gradient.is_complex()) {
    return 0;
  }
  const at::AutoGradMode no_grad(false);
  if (gradient.is_sparse()) {
    gradient = gradient.to_dense();
  }
  const bool wide = gradient.scalar_type() == at::kDouble;
  const at::Tensor flat =
      gradient.detach().to(at::kCPU, wide ? at::kDouble : at::kFloat).contiguous();
  const auto size = static_cast<std::size_t>(flat.numel());
  double energy = 0;
  const auto add = [&](auto values) {
    sensitivity::add_to_sketch(values, 0, size, leaf + 1, into);
    for (const auto value : values) {
      energy += static_cast<double>(value) * static_cast<double>(value);
    }
  };
  if (wide) {
    add(std::span(flat.const_data_ptr<double>(), size));
  } else {
    add(std::span(flat.const_data_ptr<float>(), size));
  }
  return energy;
}

}  // namespace

double energy_of(const Sketch& sketch) noexcept {
  double energy = 0;
  for (const double value : sketch) {
    energy += value * value;
  }
  return energy;
}

Sketch difference(const Sketch& a, const Sketch& b) noexcept {
  Sketch d;
  for (std::size_t i = 0; i < d.size(); ++i) {
    d[i] = a[i] - b[i];
  }
  return d;
}

void scale_to(double energy, Sketch& sketch) noexcept {
  const double own = energy_of(sketch);
  for (double& value : sketch) {
    value *= own > 0 ? std::sqrt(energy / own) : 0;
  }
}

double energy_of_difference(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined()) {
    return b.defined() ? energy_of_difference(b, a) : 0;
  }
  const auto wide = [](const at::Tensor& t) {
    const at::Tensor dense = t.is_sparse() ? t.to_dense() : t;
    return dense.to(dense.is_complex() ? at::kComplexDouble : at::kDouble);
  };
  const at::Tensor difference = b.defined() ? wide(a) - wide(b) : wide(a);
  return difference.abs().square().sum().item<double>();
}

GradientSketches::GradientSketches(variable_list gradients) : of_leaf(gradients.size(), Sketch{}) {
  for (std::size_t p = 0; p < gradients.size(); ++p) {
    energy += sketch(std::exchange(gradients[p], {}), p, of_leaf[p]);
  }
}

struct ArrivingGradients::Hook final : torch::autograd::FunctionPreHook {
  Hook(ArrivingGradients& owner, std::size_t leaf) : owner_(owner), leaf_(leaf) {}
  variable_list operator()(const variable_list& gradients) override {
    if (gradients.size() == 1 && pass_facts().arriving == &owner_) {  // not of another thread's
      try {
        Sketch of_gradient{};
        sketch(gradients[0], leaf_, of_gradient);
        const std::lock_guard guard(owner_.mutex_);
        owner_.sketches_[leaf_] = of_gradient;
        owner_.arrived_[leaf_] = true;
      } catch (...) {  // no memory: it is as if nothing had arrived
      }
    }
    return gradients;
  }

  ArrivingGradients& owner_;
  const std::size_t leaf_;
};

ArrivingGradients::ArrivingGradients(const edge_list& leaves)
    : sketches_(leaves.size()), arrived_(leaves.size()) {
  leaves_.reserve(leaves.size());
  for (std::size_t p = 0; p < leaves.size(); ++p) {
    leaves_.push_back(leaves[p].function);
    leaves_.back()->add_pre_hook(std::make_unique<Hook>(*this, p));
  }
}

ArrivingGradients::~ArrivingGradients() {
  for (const NodePtr& leaf : leaves_) {
    std::erase_if(leaf->pre_hooks(), [this](const auto& hook) {
      const auto* const ours = dynamic_cast<const Hook*>(hook.get());
      return ours != nullptr && &ours->owner_ == this;
    });
  }
}

std::vector<double> ArrivingGradients::differences(const std::vector<Sketch>& expected) {
  std::vector<double> energies(expected.size());
  for (std::size_t p = 0; p < expected.size() && p < sketches_.size(); ++p) {
    if (arrived_[p]) {
      energies[p] = energy_of(difference(sketches_[p], expected[p]));
    }
  }
  return energies;
}

}  // namespace pleat::bridge
