#include "torch_bridge/policy/call_sites.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <initializer_list>
#include <mutex>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "torch_bridge/core/code_pages.h"
#include "torch_bridge/core/fork_locks.h"

namespace pleat::bridge {
namespace {

struct CallSites {
  std::mutex mutex;
  ForkLock fork_lock{ForkPlace::kCallSites, mutex};
  std::unordered_map<const void*, CallSite> known;
};
// Leaked, and made when the library is loaded: as the node classes.
CallSites& call_sites = *new CallSites;

// The sites seen while one operator runs.
thread_local std::vector<const void*>* learning = nullptr;

// While it lives, what this thread saves gets no hooks.
class Learning {
 public:
  Learning() noexcept { learning = &sites; }
  ~Learning() { learning = nullptr; }
  Learning(const Learning&) = delete;
  Learning& operator=(const Learning&) = delete;

  std::vector<const void*> sites;
};

}  // namespace

CallSite known_call_site(const void* return_address) noexcept {
  const std::lock_guard<std::mutex> guard(call_sites.mutex);
  const auto it = call_sites.known.find(return_address);
  return it == call_sites.known.end() ? CallSite() : it->second;
}

bool learning_call_sites() noexcept { return learning != nullptr; }

void note_call_site(const void* return_address) noexcept {
  try {
    learning->push_back(return_address);
  } catch (...) {
  }
}

namespace {

// The node that `result` came from, if it stands directly on leaves, or on copies of them to write
// to: every tensor saved meanwhile was saved by that node, so its call sites are this operator's
// own. A composite operator has none, whose sites belong to mul, sub and the like.
NodePtr only_node_of(const at::Tensor& result) {
  NodePtr node = result.grad_fn();
  if (!node) {
    return {};
  }
  for (const auto& edge : node->next_edges()) {
    if (edge.function && !class_of(*edge.function).accumulate_grad &&
        class_of(*edge.function).name != "CloneBackward0") {
      return {};
    }
  }
  return node;
}

const at::Tensor& first_of(const at::Tensor& result) { return result; }
const at::Tensor& first_of(const std::vector<at::Tensor>& results) { return results.front(); }
template <class... Results>
const at::Tensor& first_of(const std::tuple<Results...>& results) {
  return std::get<0>(results);
}

template <class Operator>
void learn_sites_of(Needs needs, Operator&& op) {
  std::vector<const void*> sites;
  NodePtr node;
  try {
    Learning scope;
    node = only_node_of(first_of(op()));
    sites = std::move(scope.sites);
  } catch (...) {  // an operator this build lacks, or has under other terms
  }
  if (!node) {
    return;
  }
  const std::lock_guard<std::mutex> guard(call_sites.mutex);
  for (const void* const site : sites) {
    CallSite& known = call_sites.known[site];
    known.needs.raise(needs);
    known.saver = class_of(*node).hash;
    known.saves_input = class_of(*node).before_pole == BeforePole::kSavesInput;
    known.bears_noise = class_of(*node).bears_noise;
  }
}

at::Tensor leaf(const at::Tensor& value) { return value.detach().requires_grad_(true); }

}  // namespace

void learn_call_sites(void (*also)()) {
  // Some operators warn once; the user's call is to warn, not ours.
  class Silent final : public c10::WarningHandler {
    void process(const c10::Warning&) override {}
  } silent;
  const c10::WarningUtils::WarningHandlerGuard quiet(&silent);
  const c10::WarningUtils::WarnAlways not_the_one_time;
  const at::DisableRecordFunctionGuard unprofiled;
  const TransientCodePages code_pages("libtorch_cpu.so");  // 9 MB of them else
  // Each of these saves its arguments, so that the consumer is known when the tensor is packed and
  // not only at its first unpack.
  const c10::AutoGradMode grad_on(true);
  const at::Tensor x = at::full({2, 2}, 0.5, at::kFloat).requires_grad_(true);
  const at::Tensor y = at::full({2, 2}, 0.25, at::kFloat).requires_grad_(true);
  const at::Tensor above_one = leaf(x + 1);
  const at::Tensor above_three = leaf(x + 3);
  const at::Tensor regular = leaf(at::eye(2, at::kFloat) + x);  // an invertible matrix
  const at::Tensor target = y.detach();
  const at::Generator generator = at::detail::createCPUGenerator();  // the job's stays where it is
  const auto run = [](Needs needs, auto&& op) { learn_sites_of(needs, op); };
  const auto in_place = [&](Care care, const at::Tensor& leaf, auto&& op) {
    run(care, [&] {
      at::Tensor copy = leaf.clone();
      op(copy);
      return copy;
    });
  };
  run(Care::kExact, [&] { return at::div(x, y); });
  run(Care::kPole, [&] { return at::div(x, target); });  // which saves the divisor only
  run(Care::kExact, [&] { return at::div(x, y, "floor"); });
  run(Care::kPole, [&] { return at::log(x); });
  run(Care::kPole, [&] { return at::log2(x); });
  run(Care::kPole, [&] { return at::log10(x); });
  run(Care::kPole, [&] { return at::log1p(x); });
  run(Care::kPole, [&] { return at::logit(x); });
  run(Care::kPole, [&] { return at::logit(x, 1e-3); });
  run(Care::kPole, [&] { return at::xlogy(x, y); });
  run(Care::kPole, [&] { return at::special_xlog1py(x, y); });
  run(Care::kPole, [&] { return at::pow(x, y); });
  run(Care::kExact, [&] { return at::pow(at::Scalar(2.0), y); });
  run(Care::kExact, [&] { return at::norm(x, 2); });
  run(Care::kExact, [&] { return at::norm(x, 2, at::IntArrayRef{0}, false); });
  run(Care::kExact, [&] { return at::dist(x, y); });
  run(Care::kExact, [&] { return at::linalg_vector_norm(x, 2); });
  run(Care::kExact, [&] { return at::cdist(x, y); });
  run(Care::kExact, [&] { return at::pdist(x); });
  run(Care::kExact, [&] { return at::renorm(x, 2, 0, 1); });
  run(Care::kExact, [&] { return at::prod(x); });
  run(Care::kExact, [&] { return at::prod(x, 0); });
  run(Care::kExact, [&] { return at::cumprod(x, 0); });
  run(Care::kExact, [&] { return at::atan2(x, y); });
  run(Care::kExact, [&] { return at::hypot(x, y); });
  run(Care::kPole, [&] { return at::acos(x); });
  run(Care::kPole, [&] { return at::acosh(above_one); });
  run(Care::kPole, [&] { return at::asin(x); });
  run(Care::kPole, [&] { return at::atanh(x); });
  run(Care::kPole, [&] { return at::erfinv(x); });
  run(Care::kExact, [&] { return at::lgamma(x); });
  run(Care::kExact, [&] { return at::digamma(x); });
  run(Care::kExact, [&] { return at::polygamma(1, x); });
  run(Care::kExact, [&] { return at::mvlgamma(above_three, 2); });
  run(Care::kExact, [&] { return at::sinc(x); });
  run(Care::kExact, [&] { return at::i0(x); });
  run(Care::kExact, [&] { return at::special_i0e(x); });
  run(Care::kExact, [&] { return at::special_i1(x); });
  run(Care::kExact, [&] { return at::special_i1e(x); });
  run(Care::kExact, [&] { return at::special_ndtri(x); });
  run(Care::kExact, [&] { return at::special_log_ndtr(x); });
  run(Care::kExact, [&] { return at::special_entr(x); });
  run(Care::kExact, [&] { return at::special_erfcx(x); });
  run(Care::kExact, [&] { return at::special_zeta(at::Scalar(2.0), y); });
  run(Care::kExact, [&] { return at::std(x, false); });
  run(Care::kExact, [&] { return at::std_mean(x, false); });
  run(Care::kExact, [&] { return at::remainder(x, y); });
  run(Care::kExact, [&] { return at::fmod(x, y); });
  run(Care::kExact, [&] { return at::linalg_inv_ex(regular); });
  run(Care::kExact, [&] { return at::linalg_solve(regular, y); });
  run(Care::kExact, [&] { return at::linalg_eigh(x); });
  run(Care::kExact, [&] { return at::linalg_matrix_exp(x); });
  run(Care::kExact, [&] { return at::linalg_det(regular); });
  run(Care::kExact, [&] { return at::linalg_slogdet(regular); });
  run(Care::kExact, [&] { return at::linalg_solve_triangular(regular, y, true); });
  run(Care::kExact, [&] { return at::linalg_lstsq(regular, y); });
  run(Care::kExact, [&] { return at::cholesky_solve(y, regular); });
  run(Care::kExact, [&] { return at::cholesky_inverse(regular); });
  run(Care::kExact, [&] { return at::amax(x, at::IntArrayRef{0}); });
  run(Care::kExact, [&] { return at::amin(x, at::IntArrayRef{0}); });
  run(Care::kExact, [&] { return at::aminmax(x, 0); });
  run(Care::kExact, [&] { return at::max(x); });
  run(Care::kExact, [&] { return at::min(x); });
  run(Care::kExact, [&] { return at::median(x); });
  run(Care::kExact, [&] { return at::nanmedian(x); });
  run(Care::kPole, [&] { return at::special_xlog1py(at::Scalar(2.0), y); });
  run(Care::kPole, [&] { return at::xlogy(at::Scalar(2.0), y); });
  run(Care::kExact, [&] { return at::addcdiv(x, x, y); });
  run(Care::kExact, [&] { return at::_foreach_div(at::TensorList{x}, at::TensorList{y}); });
  run(Care::kExact, [&] { return at::copysign(x, y); });
  run(Care::kExact, [&] { return at::_euclidean_dist(x, y); });
  run(Care::kExact, [&] { return at::igamma(target, y); });
  run(Care::kExact, [&] { return at::igammac(target, y); });
  run(Care::kExact, [&] { return at::linalg_pinv(regular, 1e-15, true); });
  run(Care::kExact, [&] { return at::triangular_solve(y, regular); });
  const at::Tensor factors = leaf(at::ones({2}, at::kFloat));
  run(Care::kExact, [&] { return at::linalg_householder_product(regular, factors); });
  run(Care::kExact, [&] { return at::ormqr(regular, factors, y); });
  const at::Tensor pivots = at::ones({2}, at::kInt) + at::arange(2, at::kInt);
  run(Care::kExact, [&] { return at::linalg_lu_solve(regular, pivots, y); });
  run(Care::kExact, [&] { return at::_standard_gamma(above_one, generator); });
  run(Care::kExact, [&] {
    return at::_weight_norm_interface(x, leaf(at::ones({2, 1}, at::kFloat)), 0);
  });
  run(Care::kExact, [&] { return at::maximum(x, y); });
  run(Care::kExact, [&] { return at::minimum(x, y); });
  run(Care::kExact, [&] { return at::fmax(x, y); });
  run(Care::kExact, [&] { return at::fmin(x, y); });
  for (const std::int64_t dimensions : {2, 3}) {
    const std::vector<std::int64_t> image(static_cast<std::size_t>(dimensions) + 2, 1);
    std::vector<std::int64_t> grid(static_cast<std::size_t>(dimensions) + 1, 1);
    grid.push_back(dimensions);
    run(Care::kExact, [&] {
      return at::grid_sampler(leaf(at::zeros(image, at::kFloat)), leaf(at::zeros(grid, at::kFloat)),
                              0, 0, false);
    });
  }
  const at::Tensor index = at::zeros({2}, at::kLong);
  const at::Tensor indices = at::zeros({2, 2}, at::kLong);
  for (const char* const reduce : {"prod", "mean", "amax", "amin"}) {
    run(Care::kExact, [&] { return at::index_reduce(x, 0, index, y, reduce); });
    run(Care::kExact, [&] { return at::scatter_reduce(x, 0, indices, y, reduce); });
  }
  using InPlace = at::Tensor& (at::Tensor::*)() const;
  using InPlaceWithTensor = at::Tensor& (at::Tensor::*)(const at::Tensor&) const;
  for (const InPlace function : std::initializer_list<InPlace>{
           &at::Tensor::log_, &at::Tensor::log2_, &at::Tensor::log10_, &at::Tensor::log1p_,
           &at::Tensor::acos_, &at::Tensor::asin_, &at::Tensor::erfinv_}) {
    in_place(Care::kPole, x, [&](at::Tensor& t) { (t.*function)(); });
  }
  for (const InPlace function : std::initializer_list<InPlace>{
           &at::Tensor::lgamma_, &at::Tensor::digamma_, &at::Tensor::sinc_, &at::Tensor::abs_}) {
    in_place(Care::kExact, x, [&](at::Tensor& t) { (t.*function)(); });
  }
  for (const InPlaceWithTensor function : std::initializer_list<InPlaceWithTensor>{
           &at::Tensor::xlogy_, &at::Tensor::atan2_, &at::Tensor::hypot_, &at::Tensor::copysign_,
           &at::Tensor::remainder_, &at::Tensor::fmod_}) {
    in_place(Care::kExact, x, [&](at::Tensor& t) { (t.*function)(y); });
  }
  for (const InPlace function : std::initializer_list<InPlace>{
           &at::Tensor::sin_, &at::Tensor::cos_, &at::Tensor::sinh_, &at::Tensor::cosh_}) {
    in_place(Care::kEight, x, [&](at::Tensor& t) { (t.*function)(); });
  }
  const at::Tensor lengths = at::ones({2}, at::kLong);
  for (const char* const reduce : {"sum", "mean", "max", "min", "prod"}) {
    run(Care::kExact, [&] { return at::segment_reduce(x, reduce, lengths); });
  }
  in_place(Care::kExact, x, [&](at::Tensor& t) { t.div_(y); });
  in_place(Care::kPole, x, [&](at::Tensor& t) { t.div_(target); });  // which saves the divisor only
  run(Care::kPole, [&] { return at::_foreach_log(at::TensorList{x}); });
  in_place(Care::kExact, x, [&](at::Tensor& t) { t.addcdiv_(x, y); });
  in_place(Care::kExact, x, [&](at::Tensor& t) { t.logit_(); });
  in_place(Care::kExact, x, [&](at::Tensor& t) { t.pow_(y); });
  in_place(Care::kExact, above_one, [&](at::Tensor& t) { t.acosh_(); });
  in_place(Care::kExact, x, [&](at::Tensor& t) { t.renorm_(2, 0, 1); });
  in_place(Care::kExact, x, [&](at::Tensor& t) { t.cumprod_(0); });
  in_place(Care::kEight, x, [&](at::Tensor& t) { t.clamp_(0.0, 1.0); });
  in_place(Care::kEight, x, [&](at::Tensor& t) { at::hardtanh_(t, 0.0, 1.0); });
  in_place(Care::kEight, x, [&](at::Tensor& t) { at::threshold_(t, 0, 0); });
  in_place(Care::kEight, x, [&](at::Tensor& t) { at::hardswish_(t); });
  in_place(Care::kEight, x, [&](at::Tensor& t) { at::leaky_relu_(t); });
  run(Care::kEight, [&] { return at::sin(x); });
  run(Care::kEight, [&] { return at::cos(x); });
  run(Care::kEight, [&] { return at::sinh(x); });
  run(Care::kEight, [&] { return at::cosh(x); });
  run(Care::kEight, [&] { return at::leaky_relu(x); });
  run(Care::kEight,
      [&] { return at::prelu(x, at::full({1}, 0.25, at::kFloat).requires_grad_(true)); });
  run(Care::kExact, [&] { return at::abs(x); });
  run(Care::kEight, [&] { return at::clamp(x, 0.0, 1.0); });
  run(Care::kEight, [&] { return at::clamp_min(x, 0.0); });
  run(Care::kEight, [&] { return at::clamp_max(x, 0.0); });
  run(Care::kEight, [&] { return at::clamp(x, y, y); });
  run(Care::kEight, [&] { return at::hardtanh(x); });
  run(Care::kEight, [&] { return at::hardswish(x); });
  run(Care::kEight, [&] { return at::hardshrink(x); });
  run(Care::kEight, [&] { return at::softshrink(x); });
  run(Care::kEight, [&] { return at::threshold(x, 0, 0); });
  run(Care::kEight, [&] { return at::smooth_l1_loss(x, y); });
  run(Care::kEight, [&] { return at::huber_loss(x, y); });
  run(Care::kEight, [&] { return at::logsumexp(x, at::IntArrayRef{0}, false); });
  run(Care::kEight, [&] { return at::logaddexp(x, y); });
  run(Care::kEight, [&] { return at::logaddexp2(x, y); });
  run(Care::kEight, [&] { return at::logcumsumexp(x, 0); });
  run(Care::kEight, [&] { return at::softplus(x); });
  run(Care::kEight, [&] { return at::binary_cross_entropy_with_logits(x, target); });
  run(Care::kPole, [&] { return at::binary_cross_entropy(x, target); });
  run(Care::kEight, [&] { return at::soft_margin_loss(x, target); });
  run(Care::kEight, [&] { return at::kl_div(x, y); });
  run(Care::kEight, [&] { return at::poisson_nll_loss(x, y, true, false, 1e-8, 1); });
  // Nothing special, but it counts who saves: before a pole (before_pole.h), or the result of a
  // division.
  run(Care::kNone, [&] { return at::mm(x, y); });
  run(Care::kNone, [&] { return at::mv(x, leaf(y.select(0, 0))); });
  run(Care::kNone, [&] { return at::addmm(y, x, leaf(y)); });
  run(Care::kNone, [&] { return at::bmm(leaf(x.unsqueeze(0)), leaf(y.unsqueeze(0))); });
  run(Care::kNone, [&] {
    return at::baddbmm(leaf(x.unsqueeze(0)), leaf(y.unsqueeze(0)), leaf(x.unsqueeze(0)));
  });
  run(Care::kNone, [&] { return at::conv1d(leaf(x.unsqueeze(0)), leaf(y.unsqueeze(0))); });
  run(Care::kNone, [&] { return at::mul(x, y); });
  run(Care::kNone, [&] { return at::pow(x, 2); });
  run(Care::kNone, [&] { return at::erf(x); });
  run(Care::kNone, [&] { return at::erfc(x); });
  run(Care::kNone, [&] { return at::var(x, false); });
  run(Care::kNone, [&] { return at::var(x, at::IntArrayRef{0}); });
  run(Care::kNone, [&] { return at::var_mean(x, at::IntArrayRef{0}); });
  in_place(Care::kNone, x, [&](at::Tensor& t) { t.mul_(y); });
  in_place(Care::kNone, x, [&](at::Tensor& t) { t.pow_(2); });
  const at::Tensor none;
  const Needs rows(Care::kNone, Rows::kLastDimension);
  run(rows, [&] { return at::native_layer_norm(x, at::IntArrayRef{2}, none, none, 1e-5); });
  run(rows, [&] { return at::rms_norm(x, at::IntArrayRef{2}, {}, 1e-5); });
  const Needs planes(Care::kNone, Rows::kPlanes);
  const at::Tensor image = leaf(at::full({2, 2, 2, 2}, 0.5, at::kFloat));
  run(planes,
      [&] { return at::native_batch_norm(image, none, none, none, none, true, 0.1, 1e-5); });
  run(planes, [&] { return at::native_group_norm(image, none, none, 2, 2, 4, 1, 1e-5); });
  run(Care::kEight, [&] {
    const at::Tensor q = at::full({1, 1, 2, 8}, 0.5, at::kFloat).requires_grad_(true);
    return at::scaled_dot_product_attention(q, q, q);
  });
  const Learning unhooked;
  also();
}

}  // namespace pleat::bridge
