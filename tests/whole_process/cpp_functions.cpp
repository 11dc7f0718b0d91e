// Functions in C++ as in a user's library, each behind an operator (test_trust.py).
#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Its argument enters the gradient through a product; a template, as such functions often are.
template <class Number>
struct ProductFunction : torch::autograd::Function<ProductFunction<Number>> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& a, const at::Tensor& b) {
    context->save_for_backward({a, b});
    return a * b;
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    return {gradients[0] * saved[1], gradients[0] * saved[0]};
  }
};

// Divides by its saved tensor, the last of four: a full list grows at another call site in torch's
// code than one with room.
struct LogFunction : torch::autograd::Function<LogFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x) {
    const at::Tensor unit = at::ones({1}, x.options());
    context->save_for_backward({unit, unit, unit, x});
    return x.log();
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    return {gradients[0] / context->get_saved_variables()[3]};
  }
};

}  // namespace

TORCH_LIBRARY(pleat_tests, library) {
  library.def(
      "product(Tensor a, Tensor b) -> Tensor",
      [](const at::Tensor& a, const at::Tensor& b) { return ProductFunction<float>::apply(a, b); });
  library.def("log(Tensor x) -> Tensor", [](const at::Tensor& x) { return LogFunction::apply(x); });
}
