#include "torch_bridge/policy/known_operators.h"

#include <torch/csrc/autograd/custom_function.h>

namespace pleat::bridge {
namespace {

at::Tensor leaf_of(double value, at::IntArrayRef sizes) {
  return at::full(sizes, value, at::kFloat).requires_grad_(true);
}

// Saves like any function in C++ does. Its two call sites are those of all such functions: a full
// list grows at another one, so four tensors are needed to reach both.
struct AnyFunction : torch::autograd::Function<AnyFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x) {
    context->save_for_backward({x, x, x, x});
    return x.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* /*context*/,
                                                 torch::autograd::variable_list gradients) {
    return gradients;
  }
};

constexpr KnownOperator kKnownOperators[] = {
    // functions in C++
    [](const Operands& o) { return AnyFunction::apply(o.x); },
    // contractions
    [](const Operands& o) { return at::mm(o.x, o.y); },
    [](const Operands& o) { return at::mv(o.x, o.vector); },
    [](const Operands& o) { return at::addmm(o.y, o.x, o.y); },
    [](const Operands& o) { return at::addmv(o.vector, o.x, o.vector); },
    [](const Operands& o) { return at::bmm(o.batch, o.batch); },
    [](const Operands& o) { return at::baddbmm(o.batch, o.batch, o.batch); },
    [](const Operands& o) { return at::conv1d(o.batch, o.batch); },
    // normalisations
    [](const Operands& o) {
      return std::get<0>(at::native_layer_norm(o.x, at::IntArrayRef{2}, o.none, o.none, 1e-5));
    },
    [](const Operands& o) {
      return std::get<0>(at::_fused_rms_norm(o.x, at::IntArrayRef{2}, o.vector, 1e-5));
    },
    [](const Operands& o) {
      return std::get<0>(
          at::native_batch_norm(o.image, o.none, o.none, o.none, o.none, true, 0.1, 1e-5));
    },
    [](const Operands& o) {
      return std::get<0>(at::native_group_norm(o.image, o.none, o.none, 2, 2, 4, 1, 1e-5));
    },
    // attention
    [](const Operands& o) { return at::scaled_dot_product_attention(o.query, o.query, o.query); },
};

}  // namespace

std::span<const KnownOperator> known_operators() noexcept { return kKnownOperators; }

Operands make_operands() {
  Operands o;
  o.x = leaf_of(0.5, {2, 2});
  o.y = leaf_of(0.25, {2, 2});
  o.vector = leaf_of(1, {2});
  o.batch = leaf_of(0.5, {1, 2, 2});
  o.image = leaf_of(0.5, {2, 2, 2, 2});
  o.query = leaf_of(0.5, {1, 1, 2, 8});
  return o;
}

}  // namespace pleat::bridge
