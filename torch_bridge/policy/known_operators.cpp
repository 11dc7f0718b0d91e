#include "torch_bridge/policy/known_operators.h"

#include <ATen/CPUGeneratorImpl.h>

#include <tuple>

namespace pleat::bridge {
namespace {

at::Tensor leaf(const at::Tensor& value) { return value.detach().requires_grad_(true); }
at::Tensor leaf_of(double value, at::IntArrayRef sizes) {
  return leaf(at::full(sizes, value, at::kFloat));
}

constexpr KnownOperator kKnownOperators[] = {
    // quotients
    {[](const Operands& o) { return at::div(o.x, o.y); }},
    {[](const Operands& o) { return at::div(o.x, o.target); },
     Care::kPole},  // which saves the divisor only
    {[](const Operands& o) { return at::div(o.x, o.y, "floor"); }},
    {[](const Operands& o) { return o.x.clone().div_(o.y); }},
    {[](const Operands& o) { return o.x.clone().div_(o.target); }, Care::kPole},
    {[](const Operands& o) { return o.x.clone().div_(o.y, "floor"); }},
    {[](const Operands& o) { return at::addcdiv(o.x, o.x, o.y); }},
    {[](const Operands& o) { return o.x.clone().addcdiv_(o.x, o.y); }},
    {[](const Operands& o) {
      return at::_foreach_div(at::TensorList{o.x}, at::TensorList{o.y}).front();
    }},
    {[](const Operands& o) { return at::remainder(o.x, o.y); }},
    {[](const Operands& o) { return o.x.clone().remainder_(o.y); }},
    {[](const Operands& o) { return at::fmod(o.x, o.y); }},
    {[](const Operands& o) { return o.x.clone().fmod_(o.y); }},
    // logarithms, powers
    {[](const Operands& o) { return at::log(o.x); }},
    {[](const Operands& o) { return at::log2(o.x); }},
    {[](const Operands& o) { return at::log10(o.x); }},
    {[](const Operands& o) { return at::log1p(o.x); }},
    {[](const Operands& o) { return o.x.clone().log_(); }},
    {[](const Operands& o) { return o.x.clone().log2_(); }},
    {[](const Operands& o) { return o.x.clone().log10_(); }},
    {[](const Operands& o) { return o.x.clone().log1p_(); }},
    {[](const Operands& o) { return at::_foreach_log(at::TensorList{o.x}).front(); }},
    {[](const Operands& o) { return at::logit(o.x); }},
    {[](const Operands& o) { return at::logit(o.x, 1e-3); }},
    {[](const Operands& o) { return o.x.clone().logit_(); }},
    {[](const Operands& o) { return at::xlogy(o.x, o.y); }},
    {[](const Operands& o) { return at::xlogy(at::Scalar(2.0), o.y); }},
    {[](const Operands& o) { return at::xlogy(o.x, at::Scalar(2.0)); }},
    {[](const Operands& o) { return o.x.clone().xlogy_(o.y); }},
    {[](const Operands& o) { return o.x.clone().xlogy_(at::Scalar(2.0)); }},
    {[](const Operands& o) { return at::special_xlog1py(o.x, o.y); }},
    {[](const Operands& o) { return at::special_xlog1py(at::Scalar(2.0), o.y); }},
    {[](const Operands& o) { return at::special_xlog1py(o.x, at::Scalar(2.0)); }},
    {[](const Operands& o) { return at::special_log_ndtr(o.x); }},
    {[](const Operands& o) { return at::special_entr(o.x); }},
    {[](const Operands& o) { return at::pow(o.x, 2); }},
    {[](const Operands& o) { return o.x.clone().pow_(2); }},
    {[](const Operands& o) { return at::pow(o.x, o.y); }},
    {[](const Operands& o) { return o.x.clone().pow_(o.y); }},
    {[](const Operands& o) { return at::pow(at::Scalar(2.0), o.y); }},
    {[](const Operands& o) { return at::ldexp(o.x, o.y); }},
    {[](const Operands& o) { return at::binary_cross_entropy(o.x, o.target); }},
    // inverse functions
    {[](const Operands& o) { return at::acos(o.x); }},
    {[](const Operands& o) { return o.x.clone().acos_(); }},
    {[](const Operands& o) { return at::acosh(o.above_one); }},
    {[](const Operands& o) { return at::asin(o.x); }},
    {[](const Operands& o) { return o.x.clone().asin_(); }},
    {[](const Operands& o) { return at::asinh(o.x); }},
    {[](const Operands& o) { return at::atanh(o.x); }},
    {[](const Operands& o) { return at::atan2(o.x, o.y); }},
    {[](const Operands& o) { return o.x.clone().atan2_(o.y); }},
    {[](const Operands& o) { return at::erfinv(o.x); }},
    {[](const Operands& o) { return o.x.clone().erfinv_(); }},
    {[](const Operands& o) { return at::special_ndtri(o.x); }},
    // norms, distances, products
    {[](const Operands& o) { return at::norm(o.x, 2); }},
    {[](const Operands& o) { return at::norm(o.x, 2, at::kFloat); }},
    {[](const Operands& o) { return at::norm(o.x, 2, at::IntArrayRef{0}, false); }},
    {[](const Operands& o) { return at::norm(o.x, 2, at::IntArrayRef{0}, false, at::kFloat); }},
    {[](const Operands& o) { return at::linalg_vector_norm(o.x, 2); }},
    {[](const Operands& o) { return at::dist(o.x, o.y); }},
    {[](const Operands& o) { return at::cdist(o.x, o.y); }},
    {[](const Operands& o) { return at::pdist(o.x); }},
    {[](const Operands& o) { return at::_euclidean_dist(o.x, o.y); }},
    {[](const Operands& o) { return at::renorm(o.x, 2, 0, 1); }},
    {[](const Operands& o) { return o.x.clone().renorm_(2, 0, 1); }},
    {[](const Operands& o) { return std::get<0>(at::_weight_norm_interface(o.x, o.column, 0)); }},
    {[](const Operands& o) { return at::hypot(o.x, o.y); }},
    {[](const Operands& o) { return o.x.clone().hypot_(o.y); }},
    {[](const Operands& o) { return at::std(o.x, false); }},
    {[](const Operands& o) { return std::get<0>(at::std_mean(o.x, false)); }},
    {[](const Operands& o) { return at::var(o.x, false); }},
    {[](const Operands& o) { return at::var(o.x, at::IntArrayRef{0}); }},
    {[](const Operands& o) { return std::get<0>(at::var_mean(o.x, at::IntArrayRef{0})); }},
    {[](const Operands& o) { return at::prod(o.x); }},
    {[](const Operands& o) { return at::prod(o.x, 0); }},
    {[](const Operands& o) { return at::cumprod(o.x, 0); }},
    {[](const Operands& o) { return o.x.clone().cumprod_(0); }},
    // special functions
    {[](const Operands& o) { return at::lgamma(o.x); }},
    {[](const Operands& o) { return o.x.clone().lgamma_(); }},
    {[](const Operands& o) { return at::digamma(o.x); }},
    {[](const Operands& o) { return o.x.clone().digamma_(); }},
    {[](const Operands& o) { return at::polygamma(1, o.x); }},
    {[](const Operands& o) { return o.x.clone().polygamma_(1); }},
    {[](const Operands& o) { return at::mvlgamma(o.above_three, 2); }},
    {[](const Operands& o) { return o.above_three.clone().mvlgamma_(2); }},
    {[](const Operands& o) { return at::igamma(o.target, o.y); }},
    {[](const Operands& o) { return at::igammac(o.target, o.y); }},
    {[](const Operands& o) { return at::sinc(o.x); }},
    {[](const Operands& o) { return o.x.clone().sinc_(); }},
    {[](const Operands& o) { return at::i0(o.x); }},
    {[](const Operands& o) { return o.x.clone().i0_(); }},
    {[](const Operands& o) { return at::special_i0e(o.x); }},
    {[](const Operands& o) { return at::special_i1(o.x); }},
    {[](const Operands& o) { return at::special_i1e(o.x); }},
    {[](const Operands& o) { return at::special_erfcx(o.x); }},
    {[](const Operands& o) { return at::special_zeta(o.target, o.y); }},
    {[](const Operands& o) { return at::special_zeta(at::Scalar(2.0), o.y); }},
    {[](const Operands& o) { return at::_standard_gamma(o.above_one, o.generator); }},
    // linear algebra
    {[](const Operands& o) { return std::get<0>(at::linalg_inv_ex(o.regular)); }},
    {[](const Operands& o) { return at::linalg_pinv(o.regular, 1e-15, true); }},
    {[](const Operands& o) { return at::linalg_det(o.regular); }},
    {[](const Operands& o) { return std::get<0>(at::linalg_slogdet(o.regular)); }},
    {[](const Operands& o) { return at::linalg_solve(o.regular, o.y); }},
    {[](const Operands& o) { return at::linalg_solve_triangular(o.regular, o.y, true); }},
    {[](const Operands& o) { return std::get<0>(at::linalg_lstsq(o.regular, o.y)); }},
    {[](const Operands& o) { return at::linalg_lu_solve(o.regular, o.pivots, o.y); }},
    {[](const Operands& o) { return std::get<0>(at::linalg_eigh(o.x)); }},
    {[](const Operands& o) { return at::linalg_matrix_exp(o.x); }},
    {[](const Operands& o) { return at::linalg_cross(o.rows_of_three, o.rows_of_three); }},
    {[](const Operands& o) { return at::linalg_householder_product(o.regular, o.vector); }},
    {[](const Operands& o) { return at::ormqr(o.regular, o.vector, o.y); }},
    {[](const Operands& o) { return std::get<0>(at::triangular_solve(o.y, o.regular)); }},
    {[](const Operands& o) { return at::cholesky_solve(o.y, o.regular); }},
    {[](const Operands& o) { return at::cholesky_inverse(o.regular); }},
    // comparisons for equality
    {[](const Operands& o) { return at::amax(o.x, at::IntArrayRef{0}); }},
    {[](const Operands& o) { return at::amin(o.x, at::IntArrayRef{0}); }},
    {[](const Operands& o) { return std::get<0>(at::aminmax(o.x, 0)); }},
    {[](const Operands& o) { return at::max(o.x); }},
    {[](const Operands& o) { return at::min(o.x); }},
    {[](const Operands& o) { return at::median(o.x); }},
    {[](const Operands& o) { return at::nanmedian(o.x); }},
    {[](const Operands& o) { return at::maximum(o.x, o.y); }},
    {[](const Operands& o) { return at::minimum(o.x, o.y); }},
    {[](const Operands& o) { return at::fmax(o.x, o.y); }},
    {[](const Operands& o) { return at::fmin(o.x, o.y); }},
    {[](const Operands& o) { return at::index_reduce(o.x, 0, o.index, o.y, "amax"); }},
    {[](const Operands& o) { return o.x.clone().index_reduce_(0, o.index, o.y, "amax"); }},
    {[](const Operands& o) { return at::scatter_reduce(o.x, 0, o.indices, o.y, "amax"); }},
    {[](const Operands& o) { return o.x.clone().scatter_reduce_(0, o.indices, o.y, "amax"); }},
    {[](const Operands& o) { return at::segment_reduce(o.vector, "max", o.lengths); }},
    // comparisons with a threshold
    {[](const Operands& o) { return at::abs(o.x); }},
    {[](const Operands& o) { return o.x.clone().abs_(); }},
    {[](const Operands& o) { return at::copysign(o.x, o.y); }},
    {[](const Operands& o) { return o.x.clone().copysign_(o.y); }},
    {[](const Operands& o) { return at::clamp(o.x, 0.0, 1.0); }},
    {[](const Operands& o) { return at::clamp(o.x, o.y, o.y); }},
    {[](const Operands& o) { return at::clamp_min(o.x, 0.0); }},
    {[](const Operands& o) { return at::clamp_min(o.x, o.y); }},
    {[](const Operands& o) { return at::clamp_max(o.x, 0.0); }},
    {[](const Operands& o) { return at::clamp_max(o.x, o.y); }},
    {[](const Operands& o) { return o.x.clone().clamp_(0.0, 1.0); }},
    {[](const Operands& o) { return o.x.clone().clamp_(o.y, o.y); }},
    {[](const Operands& o) { return o.x.clone().clamp_min_(0.0); }},
    {[](const Operands& o) { return o.x.clone().clamp_min_(o.y); }},
    {[](const Operands& o) { return o.x.clone().clamp_max_(0.0); }},
    {[](const Operands& o) { return o.x.clone().clamp_max_(o.y); }},
    {[](const Operands& o) { return at::hardtanh(o.x); }},
    {[](const Operands& o) {
      at::Tensor t = o.x.clone();
      return at::hardtanh_(t, 0.0, 1.0);
    }},
    {[](const Operands& o) { return at::threshold(o.x, 0, 0); }},
    {[](const Operands& o) {
      at::Tensor t = o.x.clone();
      return at::threshold_(t, 0, 0);
    }},
    {[](const Operands& o) { return at::hardswish(o.x); }},
    {[](const Operands& o) {
      at::Tensor t = o.x.clone();
      return at::hardswish_(t);
    }},
    {[](const Operands& o) { return at::leaky_relu(o.x); }},
    {[](const Operands& o) {
      at::Tensor t = o.x.clone();
      return at::leaky_relu_(t, 0.01);
    }},
    {[](const Operands& o) { return at::rrelu(o.x, 0.1, 0.3, true, o.generator); }},
    {[](const Operands& o) {
      at::Tensor t = o.x.clone();
      return at::rrelu_(t, 0.1, 0.3, true, o.generator);
    }},
    {[](const Operands& o) { return at::_prelu_kernel(o.x, o.y); }},
    {[](const Operands& o) { return at::hardshrink(o.x); }},
    {[](const Operands& o) { return at::softshrink(o.x); }},
    {[](const Operands& o) { return at::smooth_l1_loss(o.x, o.y); }},
    {[](const Operands& o) { return at::huber_loss(o.x, o.y); }},
    // coordinates
    {[](const Operands& o) { return at::grid_sampler(o.pixel, o.place, 0, 0, false); }},
    {[](const Operands& o) { return at::grid_sampler(o.voxel, o.place_of_voxel, 0, 0, false); }},
    // exponentials, logits, periods
    {[](const Operands& o) { return at::sin(o.x); }},
    {[](const Operands& o) { return o.x.clone().sin_(); }},
    {[](const Operands& o) { return at::cos(o.x); }},
    {[](const Operands& o) { return o.x.clone().cos_(); }},
    {[](const Operands& o) { return at::sinh(o.x); }},
    {[](const Operands& o) { return o.x.clone().sinh_(); }},
    {[](const Operands& o) { return at::cosh(o.x); }},
    {[](const Operands& o) { return o.x.clone().cosh_(); }},
    {[](const Operands& o) { return at::softplus(o.x); }},
    {[](const Operands& o) { return at::logsumexp(o.x, at::IntArrayRef{0}, false); }},
    {[](const Operands& o) { return at::logaddexp(o.x, o.y); }},
    {[](const Operands& o) { return at::logaddexp2(o.x, o.y); }},
    {[](const Operands& o) { return at::logcumsumexp(o.x, 0); }},
    {[](const Operands& o) { return at::binary_cross_entropy_with_logits(o.x, o.target); }},
    {[](const Operands& o) { return at::soft_margin_loss(o.x, o.target); }},
    {[](const Operands& o) { return at::multilabel_margin_loss(o.x, o.indices); }},
    {[](const Operands& o) { return at::nll_loss(o.x, o.index); }},
    {[](const Operands& o) { return at::nll_loss2d(o.image, o.labels); }},
    {[](const Operands& o) {
      return std::get<0>(at::_ctc_loss(o.logits, o.label, at::IntArrayRef{3}, at::IntArrayRef{1}));
    }},
    {[](const Operands& o) { return at::scaled_dot_product_attention(o.query, o.query, o.query); }},
    // Nothing special, but it counts who saves: before a pole (before_pole.h), or the result of
    // a division.
    {[](const Operands& o) { return at::mul(o.x, o.y); }},
    {[](const Operands& o) { return o.x.clone().mul_(o.y); }},
    {[](const Operands& o) { return at::mm(o.x, o.y); }},
    {[](const Operands& o) { return at::mv(o.x, o.vector); }},
    {[](const Operands& o) { return at::addmm(o.y, o.x, o.y); }},
    {[](const Operands& o) { return at::bmm(o.batch, o.batch); }},
    {[](const Operands& o) { return at::baddbmm(o.batch, o.batch, o.batch); }},
    {[](const Operands& o) { return at::conv1d(o.batch, o.batch); }},
    {[](const Operands& o) { return at::erf(o.x); }},
    {[](const Operands& o) { return at::erfc(o.x); }},
    // normalisations
    {[](const Operands& o) {
      return std::get<0>(at::native_layer_norm(o.x, at::IntArrayRef{2}, o.none, o.none, 1e-5));
    }},
    {[](const Operands& o) {
      return std::get<0>(
          at::native_batch_norm(o.image, o.none, o.none, o.none, o.none, true, 0.1, 1e-5));
    }},
    {[](const Operands& o) {
      return std::get<0>(at::native_group_norm(o.image, o.none, o.none, 2, 2, 4, 1, 1e-5));
    }},
};

}  // namespace

std::span<const KnownOperator> known_operators() noexcept { return kKnownOperators; }

Operands make_operands() {
  Operands o;
  o.x = leaf_of(0.5, {2, 2});
  o.y = leaf_of(0.25, {2, 2});
  o.above_one = leaf_of(1.5, {2, 2});
  o.above_three = leaf_of(3.5, {2, 2});
  o.regular = leaf(at::eye(2, at::kFloat) + 0.5);
  o.vector = leaf_of(1, {2});
  o.column = leaf_of(1, {2, 1});
  o.rows_of_three = leaf_of(0.5, {2, 3});
  o.batch = leaf_of(0.5, {1, 2, 2});
  o.image = leaf_of(0.5, {2, 2, 2, 2});
  o.pixel = leaf_of(0, {1, 1, 1, 1});
  o.place = leaf_of(0, {1, 1, 1, 2});
  o.voxel = leaf_of(0, {1, 1, 1, 1, 1});
  o.place_of_voxel = leaf_of(0, {1, 1, 1, 1, 3});
  o.query = leaf_of(0.5, {1, 1, 2, 8});
  o.logits = leaf_of(-1, {3, 1, 2});
  o.target = o.y.detach();
  o.index = at::zeros({2}, at::kLong);
  o.indices = at::zeros({2, 2}, at::kLong);
  o.labels = at::zeros({2, 2, 2}, at::kLong);
  o.label = at::ones({1, 1}, at::kLong);
  o.lengths = at::ones({2}, at::kLong);
  o.pivots = at::ones({2}, at::kInt) + at::arange(2, at::kInt);
  o.generator = at::detail::createCPUGenerator();
  return o;
}

}  // namespace pleat::bridge
