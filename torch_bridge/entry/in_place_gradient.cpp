#include "torch_bridge/entry/in_place_gradient.h"

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <ATen/ops/_log_softmax_backward_data_ops.h>
#include <ATen/ops/_softmax_backward_data_ops.h>
#include <ATen/ops/div_ops.h>
#include <ATen/ops/elu_backward_ops.h>
#include <ATen/ops/gelu_backward_ops.h>
#include <ATen/ops/hardtanh_backward_ops.h>
#include <ATen/ops/leaky_relu_backward_ops.h>
#include <ATen/ops/mul_ops.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/sigmoid_backward_ops.h>
#include <ATen/ops/silu_backward_ops.h>
#include <ATen/ops/tanh_backward_ops.h>
#include <ATen/ops/threshold_backward_ops.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "torch_bridge/core/runtime.h"
#include "torch_bridge/memory/device_backend.h"
#include "torch_bridge/policy/eligibility.h"
#include "torch_bridge/policy/node_class.h"
#include "torch_bridge/torch_access/pass_state.h"
#include "torch_bridge/torch_access/strided_view.h"

namespace pleat::bridge {
namespace {

using torch::autograd::Node;

// Where torch's formulas call these operators from. Anybody may multiply in a hook, while a
// product's node counts as the one that runs: those calls come from elsewhere. Written while call
// sites are learned, before the first tensor is saved.
class KnownSites {
 public:
  void add(const void* site) noexcept {
    for (std::atomic<const void*>& known : sites_) {
      if (known == nullptr || known == site) {
        known = site;
        return;
      }
    }
  }
  [[nodiscard]] bool has(const void* site) const noexcept {
    return std::any_of(sites_.begin(), sites_.end(), [&](const std::atomic<const void*>& known) {
      return known.load(std::memory_order_relaxed) == site;
    });
  }

 private:
  std::array<std::atomic<const void*>, 8> sites_{};
};
std::array<KnownSites, PLEAT_GRADIENTS> known_sites;

// A result of torch would have its strides, to the last: those of dimensions of size 1 are anything
// in a view, but not in a result.
bool has_strides_of_results(const at::Tensor& grad) noexcept {
  std::int64_t stride = 1;
  bool contiguous = true;
  bool any_single = false;
  for (std::int64_t d = grad.dim() - 1; d >= 0; --d) {
    contiguous = contiguous && grad.stride(d) == stride;
    any_single = any_single || grad.size(d) == 1;
    stride *= grad.size(d);
  }
  return contiguous || !any_single;
}

// Plain, without gaps, and with the bytes to itself: there is no other reference to the tensor or
// its storage (but the tensor that it is a view of, which lives for it alone), and no saved tensor
// is there.
bool is_ours_alone(Runtime& runtime, const at::Tensor& grad) noexcept {
  const c10::TensorImpl* const impl = grad.unsafeGetTensorImpl();
  if (grad.use_count() != 1 || !is_plain_strided(*impl)) {
    return false;
  }
  const c10::Storage& storage = impl->unsafe_storage();
  const std::size_t bytes = storage.nbytes();
  if (bytes < runtime.min_bytes.load(std::memory_order_relaxed) || bytes != grad.nbytes() ||
      grad.requires_grad() || !at::isFloatingType(grad.scalar_type()) || grad.is_neg() ||
      grad.is_inference() || grad._fw_grad(0).defined() || !impl->is_non_overlapping_and_dense() ||
      !has_strides_of_results(grad)) {
    return false;
  }
  const bool is_view = grad.is_view();
  if (storage.use_count() != (is_view ? 2 : 1) || (is_view && grad._base().use_count() != 1)) {
    return false;
  }
  const DeviceBackend* const backend = backend_of(impl->device());
  if (backend == nullptr || !backend->is_current_streams_alone(*storage.unsafeGetStorageImpl())) {
    return false;
  }
  const allocator::Block* const block = backend->block_of(*storage.unsafeGetStorageImpl());
  return block != nullptr && block->record.load(std::memory_order_relaxed) == nullptr;
}

// The second input of a formula of torch's, if its result is the gradient's like in shape, layout
// and type.
bool matches(const at::Tensor& grad, const at::Tensor& beside) {
  return is_plain_strided(*beside.unsafeGetTensorImpl()) && !beside._fw_grad(0).defined() &&
         beside.scalar_type() == grad.scalar_type() && beside.sizes() == grad.sizes() &&
         beside.strides() == grad.strides();
}
// A factor may be smaller, or a number: the layout of the result is that of the first operand,
// where that says enough.
bool matches_factor(const at::Tensor& grad, const at::Tensor& beside) {
  const auto has_single = [](const at::Tensor& t) {
    return std::find(t.sizes().begin(), t.sizes().end(), 1) != t.sizes().end();
  };
  if (has_single(grad) && beside.dim() != 0 && beside.strides() != grad.strides()) {
    return false;
  }
  return is_plain_strided(*beside.unsafeGetTensorImpl()) && !beside._fw_grad(0).defined() &&
         at::is_expandable_to(beside.sizes(), grad.sizes()) &&
         at::result_type(grad, beside) == grad.scalar_type();
}

struct LikeGradient {  // activations
  template <class... Rest>
  static bool fits(const Node&, const at::Tensor& grad, const Rest&... rest) {
    const auto fit = [&](const auto& argument) {
      if constexpr (std::is_same_v<std::decay_t<decltype(argument)>, at::Tensor>) {
        return matches(grad, argument);
      } else {
        return true;
      }
    };
    return (fit(rest) && ...);
  }
};
struct RowsOfGradient {  // softmax: a row's sum is taken before anything of the row is written
  static bool fits(const Node&, const at::Tensor& grad, const at::Tensor& output, std::int64_t dim,
                   at::ScalarType input_type) {
    return matches(grad, output) && grad.is_contiguous() && input_type == grad.scalar_type() &&
           grad.dim() > 0 && (dim == -1 || dim == grad.dim() - 1);
  }
};
struct OneFactor {  // a product reads the gradient twice if it has two gradients to make
  static bool fits(const Node& node, const at::Tensor& grad, const at::Tensor& other) {
    return node.num_outputs() == 2 &&
           node.task_should_compute_output(0) != node.task_should_compute_output(1) &&
           matches_factor(grad, other);
  }
};
struct Dividend {  // of a divisor's gradient the quotient is but a part
  static bool fits(const Node& node, const at::Tensor& grad, const at::Tensor& other) {
    return node.num_outputs() == 2 && !node.task_should_compute_output(1) &&
           matches_factor(grad, other);
  }
};

// The call is a formula's own, the node that runs is of its kind and needs the gradient no more,
// and no mode records or replaces operators.
template <class Fit, class... Rest>
bool may_write_over(PleatGradient formula, const void* call_site, const at::Tensor& grad,
                    const Rest&... rest) noexcept {
  if (!known_sites[formula].has(call_site)) [[likely]] {
    return false;
  }
  Runtime* const runtime = Runtime::get();
  if (!grad.defined() || !runtime->reuse_gradients.load(std::memory_order_relaxed) ||
      !is_ours_alone(*runtime, grad) || torch::autograd::get_current_graph_task_id() < 0 ||
      at::GradMode::is_enabled() || c10::InferenceMode::is_enabled() || !runtime->tagging() ||
      operators_are_watched()) {
    return false;
  }
  try {
    const auto node = torch::autograd::get_current_node();
    if (node.get() == nullptr || class_of(*node).gradient != formula ||
        !Fit::fits(*node, grad, rest...)) {
      return false;
    }
  } catch (...) {  // sizes that do not go together: the operator says so itself
    return false;
  }
  runtime->gradients_reused.fetch_add(1, std::memory_order_relaxed);
  runtime->gradient_bytes_reused.fetch_add(grad.nbytes(), std::memory_order_relaxed);
  return true;
}

// at::_ops::...::call and its form with a target.
template <PleatGradient kFormula, class Fit, auto kInto, class... Rest>
struct Formula {
  using Function = at::Tensor (*)(const at::Tensor&, Rest...);
  static inline Function real = nullptr;

  static at::Tensor ours(const at::Tensor& grad, Rest... rest) {
    const void* const call_site = __builtin_return_address(0);
    if (thread_policy.formula_being_learned == kFormula) [[unlikely]] {
      known_sites[kFormula].add(call_site);
      return real(grad, rest...);
    }
    if (!may_write_over<Fit>(kFormula, call_site, grad, rest...)) {
      return real(grad, rest...);
    }
    // A tensor of its own, as torch would make one: the gradient may be a view.
    at::Tensor result =
        StridedView(*grad.unsafeGetTensorImpl()).on(grad.storage(), c10::VariableVersion(0));
    kInto(grad, rest..., result);
    result.unsafeGetTensorImpl()->set_version_counter(c10::VariableVersion(0));  // a new tensor's
    return result;
  }

  static void* install(void* host) noexcept {
    real = reinterpret_cast<Function>(host);
    return host != nullptr ? reinterpret_cast<void*>(&ours) : nullptr;
  }
};

using T = const at::Tensor&;
using S = const at::Scalar&;
namespace op = at::_ops;
constexpr auto kInstallers = [] {
  std::array<void* (*)(void*) noexcept, PLEAT_GRADIENTS> table{};
  table[PLEAT_GELU_BACKWARD] =
      &Formula<PLEAT_GELU_BACKWARD, LikeGradient, &op::gelu_backward_grad_input::call, T,
               c10::string_view>::install;
  table[PLEAT_SILU_BACKWARD] =
      &Formula<PLEAT_SILU_BACKWARD, LikeGradient, &op::silu_backward_grad_input::call, T>::install;
  table[PLEAT_THRESHOLD_BACKWARD] =
      &Formula<PLEAT_THRESHOLD_BACKWARD, LikeGradient, &op::threshold_backward_grad_input::call, T,
               S>::install;
  table[PLEAT_SIGMOID_BACKWARD] = &Formula<PLEAT_SIGMOID_BACKWARD, LikeGradient,
                                           &op::sigmoid_backward_grad_input::call, T>::install;
  table[PLEAT_TANH_BACKWARD] =
      &Formula<PLEAT_TANH_BACKWARD, LikeGradient, &op::tanh_backward_grad_input::call, T>::install;
  table[PLEAT_LEAKY_RELU_BACKWARD] =
      &Formula<PLEAT_LEAKY_RELU_BACKWARD, LikeGradient, &op::leaky_relu_backward_grad_input::call,
               T, S, bool>::install;
  table[PLEAT_HARDTANH_BACKWARD] =
      &Formula<PLEAT_HARDTANH_BACKWARD, LikeGradient, &op::hardtanh_backward_grad_input::call, T, S,
               S>::install;
  table[PLEAT_ELU_BACKWARD] =
      &Formula<PLEAT_ELU_BACKWARD, LikeGradient, &op::elu_backward_grad_input::call, S, S, S, bool,
               T>::install;
  table[PLEAT_SOFTMAX_BACKWARD] =
      &Formula<PLEAT_SOFTMAX_BACKWARD, RowsOfGradient, &op::_softmax_backward_data_out::call, T,
               std::int64_t, at::ScalarType>::install;
  table[PLEAT_LOG_SOFTMAX_BACKWARD] =
      &Formula<PLEAT_LOG_SOFTMAX_BACKWARD, RowsOfGradient,
               &op::_log_softmax_backward_data_out::call, T, std::int64_t, at::ScalarType>::install;
  table[PLEAT_MUL] = &Formula<PLEAT_MUL, OneFactor, &op::mul_out::call, T>::install;
  table[PLEAT_DIV] = &Formula<PLEAT_DIV, Dividend, &op::div_out::call, T>::install;
  return table;
}();

// Runs the formula of the node that `op` makes, outside of any pass.
template <class Operator>
void learn_formula_sites_of(Operator&& op) {
  try {
    const at::Tensor result = op();
    if (const auto node = result.grad_fn()) {
      const at::NoGradGuard no_grad;
      thread_policy.formula_being_learned = class_of(*node).gradient;
      (void)(*node)({at::ones_like(result)});
    }
  } catch (...) {  // an operator this build lacks: its gradients stay apart
  }
  thread_policy.formula_being_learned = PLEAT_GRADIENTS;
}

}  // namespace

void learn_gradient_call_sites() {
  const at::Tensor x = at::full({2, 2}, 0.5, at::kFloat).requires_grad_(true);
  const at::Tensor number = at::full({}, 0.5, at::kFloat);
  learn_formula_sites_of([&] { return at::gelu(x); });
  learn_formula_sites_of([&] { return at::silu(x); });
  learn_formula_sites_of([&] { return at::relu(x); });
  learn_formula_sites_of([&] { return at::threshold(x, 0, 0); });
  learn_formula_sites_of([&] { return at::sigmoid(x); });
  learn_formula_sites_of([&] { return at::tanh(x); });
  learn_formula_sites_of([&] { return at::leaky_relu(x); });
  learn_formula_sites_of([&] { return at::hardtanh(x); });
  learn_formula_sites_of([&] { return at::elu(x); });
  learn_formula_sites_of([&] { return at::celu(x); });
  learn_formula_sites_of([&] { return at::_softmax(x, 1, false); });
  learn_formula_sites_of([&] { return at::_log_softmax(x, 1, false); });
  learn_formula_sites_of([&] { return at::mul(x, number); });
  learn_formula_sites_of([&] { return at::mul(number, x); });
  learn_formula_sites_of([&] { return at::div(x, number); });
  using InPlace = void (*)(at::Tensor&);
  for (const InPlace op : std::initializer_list<InPlace>{
           [](at::Tensor& t) { at::threshold_(t, 0, 0); },
           [](at::Tensor& t) { at::leaky_relu_(t); }, [](at::Tensor& t) { at::hardtanh_(t); },
           [](at::Tensor& t) { at::elu_(t); }, [](at::Tensor& t) { at::celu_(t); }}) {
    learn_formula_sites_of([&] {
      at::Tensor copy = x.clone();
      op(copy);
      return copy;
    });
  }
}

void install_in_place_gradients(void* const (&real)[PLEAT_GRADIENTS],
                                void* (&ours)[PLEAT_GRADIENTS]) noexcept {
  for (std::size_t i = 0; i < PLEAT_GRADIENTS; ++i) {
    ours[i] = kInstallers[i](real[i]);
  }
}

}  // namespace pleat::bridge
