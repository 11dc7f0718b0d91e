#include "torch_bridge/measure/gradient_sketches.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/function_hook.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

#include "compress/cuda/device_sketch.h"
#include "compress/sketch/sketch.h"
#include "torch_bridge/memory/device_backend.h"
#include "torch_bridge/torch_access/pass_state.h"

namespace pleat::bridge {

using sensitivity::Sketch;
using torch::autograd::edge_list;
using torch::autograd::variable_list;

static_assert(std::is_same_v<Sketch, compress::Sketch>);

namespace {

// The seed of a leaf's sketches: two leaves' have nothing to do with each other.
std::uint64_t seed_of(std::size_t leaf) { return leaf + 1; }

std::optional<compress::ElementType> element_type(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return compress::ElementType::kFloat32;
    case at::kBFloat16:
      return compress::ElementType::kBFloat16;
    case at::kHalf:
      return compress::ElementType::kFloat16;
    default:
      return std::nullopt;
  }
}

// Undefined where the device makes no such sketches.
at::Tensor parts_on_device(const at::Tensor& gradient, std::size_t leaf) {
  const std::optional<compress::ElementType> type = element_type(gradient.scalar_type());
  const DeviceBackend* const backend =
      gradient.is_cpu() || !type.has_value() || gradient.unsafeGetTensorImpl()->is_python_dispatch()
          ? nullptr
          : backend_of(gradient.device());
  if (backend == nullptr || gradient.numel() == 0 || !gradient.has_storage()) {
    return {};
  }
  const at::Tensor values = gradient.resolve_neg().contiguous();
  if (values.const_data_ptr() == nullptr) {
    return {};
  }
  const auto elements = static_cast<std::size_t>(values.numel());
  at::Tensor parts = at::empty({static_cast<std::int64_t>(compress::sketch_parts(elements)),
                                static_cast<std::int64_t>(compress::kSketchPart)},
                               values.options().dtype(at::kDouble).memory_format(std::nullopt));
  const compress::cuda::SketchTask task{.values = values.const_data_ptr(),
                                        .parts = parts.mutable_data_ptr<double>(),
                                        .elements = elements,
                                        .type = *type,
                                        .seed = seed_of(leaf)};
  return backend->sketch({&task, 1}, backend->current_stream()) ? parts : at::Tensor();
}

void sketch_on_host(const at::Tensor& gradient, std::size_t leaf, SketchUnderWay& into) {
  const bool wide = gradient.scalar_type() == at::kDouble;
  const at::Tensor flat = gradient.to(at::kCPU, wide ? at::kDouble : at::kFloat).contiguous();
  const auto size = static_cast<std::size_t>(flat.numel());
  const auto add = [&](auto values) {
    compress::add_to_sketch(values, 0, size, seed_of(leaf), into.sketch);
    for (const auto value : values) {
      into.energy += static_cast<double>(value) * static_cast<double>(value);
    }
  };
  if (wide) {
    add(std::span(flat.const_data_ptr<double>(), size));
  } else {
    add(std::span(flat.const_data_ptr<float>(), size));
  }
}

// Adds the parts that devices have made. One copy, and one wait, for each device.
void complete(std::vector<SketchUnderWay>& sketches) {
  std::vector<SketchUnderWay*> left;
  for (SketchUnderWay& sketch : sketches) {
    if (sketch.parts.defined()) {
      left.push_back(&sketch);
    }
  }
  while (!left.empty()) {
    const at::Device device = left.front()->parts.device();
    const auto others = std::stable_partition(
        left.begin(), left.end(), [&](const auto* s) { return s->parts.device() == device; });
    std::vector<at::Tensor> parts;
    for (auto at = left.begin(); at != others; ++at) {
      parts.push_back((*at)->parts);
    }
    const at::Tensor all = at::cat(parts).cpu();
    const double* values = all.const_data_ptr<double>();
    for (auto at = left.begin(); at != others; ++at) {
      const auto count = static_cast<std::size_t>(std::exchange((*at)->parts, {}).numel());
      (*at)->energy += compress::add_parts({values, count}, (*at)->sketch);
      values += count;
    }
    left.erase(left.begin(), others);
  }
}

}  // namespace

SketchUnderWay::SketchUnderWay(at::Tensor gradient, std::size_t leaf) {
  if (!gradient.defined() || gradient.is_complex()) {
    return;
  }
  const at::AutoGradMode no_grad(false);
  gradient = gradient.is_sparse() ? gradient.to_dense() : gradient.detach();
  parts = parts_on_device(gradient, leaf);
  if (!parts.defined()) {
    sketch_on_host(gradient, leaf, *this);
  }
}

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

GradientSketches::GradientSketches(variable_list gradients) {
  std::vector<SketchUnderWay> sketches;
  sketches.reserve(gradients.size());
  for (std::size_t p = 0; p < gradients.size(); ++p) {
    sketches.emplace_back(std::exchange(gradients[p], {}), p);
  }
  complete(sketches);
  of_leaf.reserve(sketches.size());
  for (const SketchUnderWay& leaf : sketches) {
    of_leaf.push_back(leaf.sketch);
    energy += leaf.energy;
  }
}

struct ArrivingGradients::Hook final : torch::autograd::FunctionPreHook {
  Hook(ArrivingGradients& owner, std::size_t leaf) : owner_(owner), leaf_(leaf) {}
  variable_list operator()(const variable_list& gradients) override {
    if (gradients.size() == 1 && pass_facts().arriving == &owner_) {  // not of another thread's
      try {
        SketchUnderWay of_gradient(gradients[0], leaf_);
        const std::lock_guard guard(owner_.mutex_);
        owner_.sketches_[leaf_] = std::move(of_gradient);
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
  complete(sketches_);
  std::vector<double> energies(expected.size());
  for (std::size_t p = 0; p < expected.size() && p < sketches_.size(); ++p) {
    if (arrived_[p]) {
      energies[p] = energy_of(difference(sketches_[p].sketch, expected[p]));
    }
  }
  return energies;
}

}  // namespace pleat::bridge
