#include "torch_bridge/node_class.h"

#include <ATen/ATen.h>
#include <c10/util/Type.h>

#include <array>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string_view>
#include <tuple>
#include <typeinfo>
#include <unordered_map>
#include <vector>

#include "sensitivity/key.h"
#include "torch_bridge/code_pages.h"

namespace pleat::bridge {
namespace {

using namespace std::string_view_literals;

struct Family {
  std::string_view prefix;
  Care as_producer;
  Care as_consumer;
};

// First match wins. Names are those of torch's derivatives.yaml; a trailing "Backward0" is implied.
constexpr Family kFamilies[] = {
    // exponentials: exp(x) enters again, an error of e in the exponent is a factor of 1 + e
    {"ExpBackward"sv, Care::kEight, Care::kEight},
    {"Exp2Backward"sv, Care::kEight, Care::kEight},
    {"Expm1Backward"sv, Care::kEight, Care::kEight},
    {"Softmax"sv, Care::kEight, Care::kEight},
    {"LogSoftmax"sv, Care::kEight, Care::kEight},
    {"SafeSoftmax"sv, Care::kEight, Care::kEight},
    {"Logsumexp"sv, Care::kEight, Care::kEight},
    {"Logaddexp"sv, Care::kEight, Care::kEight},
    {"Logcumsumexp"sv, Care::kEight, Care::kEight},
    {"ScaledDotProduct"sv, Care::kEight, Care::kEight},
    {"EfficientAttention"sv, Care::kEight, Care::kEight},
    {"FlashAttention"sv, Care::kEight, Care::kEight},
    {"BinaryCrossEntropy"sv, Care::kEight, Care::kEight},
    {"CtcLoss"sv, Care::kExact, Care::kExact},
    {"NllLoss"sv, Care::kNone, Care::kEight},
    {"SoftMarginLoss"sv, Care::kEight, Care::kEight},
    {"MultilabelMarginLoss"sv, Care::kEight, Care::kEight},
    {"Softplus"sv, Care::kEight, Care::kEight},
    // factors and solutions of linear algebra
    {"Linalg"sv, Care::kExact, Care::kExact},
    {"Cholesky"sv, Care::kExact, Care::kExact},
    {"TriangularSolve"sv, Care::kExact, Care::kExact},
    {"Lu"sv, Care::kExact, Care::kExact},
    {"Geqrf"sv, Care::kExact, Care::kExact},
    {"Ormqr"sv, Care::kExact, Care::kExact},
    {"HouseholderProduct"sv, Care::kExact, Care::kExact},
    {"Svd"sv, Care::kExact, Care::kExact},
    {"Matrix"sv, Care::kExact, Care::kExact},
    {"Pinverse"sv, Care::kExact, Care::kExact},
    // comparisons for equality: a value and the extreme it may be must stay the same number
    {"Amax"sv, Care::kExact, Care::kExact},
    {"Amin"sv, Care::kExact, Care::kExact},  // and Aminmax
    {"MaxBackward"sv, Care::kExact, Care::kExact},
    {"MinBackward"sv, Care::kExact, Care::kExact},
    {"Median"sv, Care::kExact, Care::kExact},
    {"Nanmedian"sv, Care::kExact, Care::kExact},
    {"Maximum"sv, Care::kExact, Care::kExact},
    {"Minimum"sv, Care::kExact, Care::kExact},
    {"Fmax"sv, Care::kExact, Care::kExact},
    {"Fmin"sv, Care::kExact, Care::kExact},
    {"IndexReduce"sv, Care::kExact, Care::kExact},
    {"ScatterReduce"sv, Care::kExact, Care::kExact},
    {"SegmentReduce"sv, Care::kExact, Care::kExact},
    // comparisons with a threshold: noise near it picks the wrong slope. (The result of ReLU is not
    // here: the codec keeps zeros zero and positive values positive.)
    {"LeakyRelu"sv, Care::kNone, Care::kEight},
    {"Prelu"sv, Care::kNone, Care::kEight},
    {"Abs"sv, Care::kNone, Care::kEight},
    {"Clamp"sv, Care::kNone, Care::kEight},
    {"Hardtanh"sv, Care::kNone, Care::kEight},
    {"Hardswish"sv, Care::kNone, Care::kEight},
    {"Hardshrink"sv, Care::kNone, Care::kEight},
    {"Softshrink"sv, Care::kNone, Care::kEight},
    {"Threshold"sv, Care::kNone, Care::kEight},
    {"SmoothL1Loss"sv, Care::kNone, Care::kEight},
    {"HuberLoss"sv, Care::kNone, Care::kEight},
    // poles and branch points: a value restored a little closer to them is a gradient far off
    {"DivBackward"sv, Care::kExact, Care::kExact},
    {"Sqrt"sv, Care::kExact, Care::kExact},
    {"Rsqrt"sv, Care::kExact, Care::kExact},
    {"Reciprocal"sv, Care::kExact, Care::kExact},
    {"LogSigmoid"sv, Care::kNone, Care::kNone},
    {"Log"sv, Care::kExact, Care::kExact},  // Log, Log2, Log10, Log1P, LogNdtr, Logit
    {"Xlogy"sv, Care::kExact, Care::kExact},
    // x^n with a number n: polynomials in practice (gelu, rms norm), and a group of one sign never
    // decodes to zero. With a tensor of exponents (PowBackward1): exact.
    {"PowBackward0"sv, Care::kNone, Care::kNone},
    {"Pow"sv, Care::kExact, Care::kExact},
    {"FloatPower"sv, Care::kExact, Care::kExact},
    {"Norm"sv, Care::kExact, Care::kExact},
    {"Dist"sv, Care::kExact, Care::kExact},
    {"Cdist"sv, Care::kExact, Care::kExact},
    {"Pdist"sv, Care::kExact, Care::kExact},
    {"Renorm"sv, Care::kExact, Care::kExact},
    {"WeightNorm"sv, Care::kExact, Care::kExact},
    {"Prod"sv, Care::kExact, Care::kExact},
    {"Cumprod"sv, Care::kExact, Care::kExact},
    {"Atan2"sv, Care::kExact, Care::kExact},
    {"Hypot"sv, Care::kExact, Care::kExact},
    {"Acos"sv, Care::kExact, Care::kExact},  // Acos, Acosh
    {"Asin"sv, Care::kExact, Care::kExact},
    {"Atanh"sv, Care::kExact, Care::kExact},
    {"Tan"sv, Care::kNone, Care::kNone},     // Tan, Tanh: polynomials of their result
    {"Erfinv"sv, Care::kExact, Care::kExact},
    {"Lgamma"sv, Care::kExact, Care::kExact},
    {"Digamma"sv, Care::kExact, Care::kExact},
    {"Polygamma"sv, Care::kExact, Care::kExact},
    {"Mvlgamma"sv, Care::kExact, Care::kExact},
    {"Igamma"sv, Care::kExact, Care::kExact},
    {"Special"sv, Care::kExact, Care::kExact},
    {"I0"sv, Care::kExact, Care::kExact},
    {"Sinc"sv, Care::kExact, Care::kExact},
    {"StandardGamma"sv, Care::kExact, Care::kExact},
    {"DirichletGrad"sv, Care::kExact, Care::kExact},
    {"StdBackward"sv, Care::kExact, Care::kExact},
    {"StdMean"sv, Care::kExact, Care::kExact},
    {"PoissonNllLoss"sv, Care::kEight, Care::kEight},
    {"KlDiv"sv, Care::kEight, Care::kEight},
    {"Ldexp"sv, Care::kExact, Care::kExact},
    {"Fmod"sv, Care::kExact, Care::kExact},
    {"Remainder"sv, Care::kExact, Care::kExact},
};

constexpr std::string_view kPassesParameter[] = {
    "TBackward"sv,       "TransposeBackward"sv, "ViewBackward"sv,      "UnsafeViewBackward"sv,
    "ToCopyBackward"sv,  "PermuteBackward"sv,   "ExpandBackward"sv,    "SliceBackward"sv,
    "SelectBackward"sv,  "UnsqueezeBackward"sv, "SqueezeBackward"sv,   "AsStridedBackward"sv,
    "ReshapeAlias"sv,    "AliasBackward"sv,     "CloneBackward"sv,     "SplitBackward"sv,
    "SplitWithSizes"sv,  "UnbindBackward"sv,    "DetachBackward"sv,    "ConjBackward"sv,
    "NumpyTBackward"sv,  "NarrowBackward"sv,    "MovedimBackward"sv,   "SwapdimsBackward"sv,
};

struct Registry {
  std::shared_mutex mutex;
  std::unordered_map<const std::type_info*, std::unique_ptr<NodeClass>> classes;
};

Registry& registry() {
  static auto* const r = new Registry;  // leaked: nodes are looked up until the process ends
  return *r;
}

// ---- call sites ----

struct CallSites {
  std::shared_mutex mutex;
  std::unordered_map<const void*, Care> care;
};

CallSites& call_sites() {
  static auto* const c = new CallSites;
  return *c;
}

// The sites seen while one operator runs.
thread_local std::vector<const void*>* learning = nullptr;

}  // namespace

NodeClass classify(const std::string& name) {
  NodeClass c;
  c.name = name;
  c.hash = sensitivity::hash_text(name.c_str());
  c.accumulate_grad = name == "AccumulateGrad";
  for (const Family& family : kFamilies) {
    if (std::string_view(name).starts_with(family.prefix)) {
      c.as_producer = family.as_producer;
      c.as_consumer = family.as_consumer;
      break;
    }
  }
  for (const std::string_view prefix : kPassesParameter) {
    c.passes_parameter = c.passes_parameter || std::string_view(name).starts_with(prefix);
  }
  return c;
}

const NodeClass& class_of(const torch::autograd::Node& node) noexcept {
  static const NodeClass unknown{};
  const std::type_info* const type = &typeid(node);
  thread_local std::array<std::pair<const std::type_info*, const NodeClass*>, 64> cache{};
  auto& cached = cache[(reinterpret_cast<std::uintptr_t>(type) >> 4) % cache.size()];
  if (cached.first == type) {
    return *cached.second;
  }
  try {
    Registry& r = registry();
    const NodeClass* found = nullptr;
    {
      const std::shared_lock<std::shared_mutex> guard(r.mutex);
      if (const auto it = r.classes.find(type); it != r.classes.end()) {
        found = it->second.get();
      }
    }
    if (found == nullptr) {
      std::string name = c10::demangle(type->name());
      if (const auto colon = name.rfind("::"); colon != std::string::npos) {
        name.erase(0, colon + 2);
      }
      auto made = std::make_unique<NodeClass>(classify(name));
      const std::unique_lock<std::shared_mutex> guard(r.mutex);
      auto& slot = r.classes[type];
      if (slot == nullptr) {
        slot = std::move(made);
      }
      found = slot.get();
    }
    cached = {type, found};
    return *found;
  } catch (...) {
    return unknown;
  }
}

Care care_of_call_site(const void* return_address) noexcept {
  CallSites& sites = call_sites();
  const std::shared_lock<std::shared_mutex> guard(sites.mutex);
  const auto it = sites.care.find(return_address);
  return it == sites.care.end() ? Care::kNone : it->second;
}

bool learning_call_sites() noexcept { return learning != nullptr; }

void note_call_site(const void* return_address) noexcept {
  try {
    learning->push_back(return_address);
  } catch (...) {
  }
}

namespace {

// True if `result` came from one node that stands directly on leaves: every tensor saved meanwhile
// was saved by that node, so its call sites are this operator's own. A composite operator fails here,
// whose sites belong to mul, sub and the like.
bool made_by_one_node(const at::Tensor& result) {
  const auto node = result.grad_fn();
  if (!node) {
    return false;
  }
  for (const auto& edge : node->next_edges()) {
    if (edge.function && !class_of(*edge.function).accumulate_grad) {
      return false;
    }
  }
  return true;
}

const at::Tensor& first_of(const at::Tensor& result) { return result; }
template <class... Results>
const at::Tensor& first_of(const std::tuple<Results...>& results) {
  return std::get<0>(results);
}

template <class Operator>
void learn_sites_of(Care care, Operator&& op) {
  std::vector<const void*> sites;
  learning = &sites;
  bool own = false;
  try {
    own = made_by_one_node(first_of(op()));
  } catch (...) {  // an operator this build lacks, or has under other terms
  }
  learning = nullptr;
  if (!own) {
    return;
  }
  CallSites& all = call_sites();
  const std::unique_lock<std::shared_mutex> guard(all.mutex);
  for (const void* const site : sites) {
    Care& known = all.care[site];
    known = std::max(known, care);
  }
}

at::Tensor leaf(const at::Tensor& value) { return value.detach().requires_grad_(true); }

}  // namespace

void learn_call_sites() {
  // Operators in beta warn at their first call; that call is not the user's.
  class Silent final : public c10::WarningHandler {
    void process(const c10::Warning&) override {}
  } silent;
  const c10::WarningUtils::WarningHandlerGuard quiet(&silent);
  const TransientCodePages code_pages("libtorch_cpu.so");  // 9 MB of them else
  // Each of these saves its arguments, so that the consumer is known when the tensor is packed and
  // not only at its first unpack.
  const c10::AutoGradMode grad_on(true);
  const at::Tensor x = at::full({2, 2}, 0.5, at::kFloat).requires_grad_(true);
  const at::Tensor y = at::full({2, 2}, 0.25, at::kFloat).requires_grad_(true);
  const at::Tensor above_one = leaf(x + 1);
  const at::Tensor above_three = leaf(x + 3);
  const at::Tensor regular = leaf(at::eye(2) + x);  // an invertible matrix
  const at::Tensor target = y.detach();
  const auto run = [](Care care, auto&& op) { learn_sites_of(care, op); };
  run(Care::kExact, [&] { return at::div(x, y); });
  run(Care::kExact, [&] { return at::div(x, y, "floor"); });
  run(Care::kExact, [&] { return at::log(x); });
  run(Care::kExact, [&] { return at::log2(x); });
  run(Care::kExact, [&] { return at::log10(x); });
  run(Care::kExact, [&] { return at::log1p(x); });
  run(Care::kExact, [&] { return at::logit(x); });
  run(Care::kExact, [&] { return at::logit(x, 1e-3); });
  run(Care::kExact, [&] { return at::xlogy(x, y); });
  run(Care::kExact, [&] { return at::special_xlog1py(x, y); });
  run(Care::kExact, [&] { return at::pow(x, y); });
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
  run(Care::kExact, [&] { return at::acos(x); });
  run(Care::kExact, [&] { return at::acosh(above_one); });
  run(Care::kExact, [&] { return at::asin(x); });
  run(Care::kExact, [&] { return at::atanh(x); });
  run(Care::kExact, [&] { return at::erfinv(x); });
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
  run(Care::kExact, [&] { return at::maximum(x, y); });
  run(Care::kExact, [&] { return at::minimum(x, y); });
  run(Care::kExact, [&] { return at::fmax(x, y); });
  run(Care::kExact, [&] { return at::fmin(x, y); });
  const at::Tensor index = at::zeros({2}, at::kLong);
  const at::Tensor indices = at::zeros({2, 2}, at::kLong);
  for (const char* const reduce : {"prod", "mean", "amax", "amin"}) {
    run(Care::kExact, [&] { return at::index_reduce(x, 0, index, y, reduce); });
    run(Care::kExact, [&] { return at::scatter_reduce(x, 0, indices, y, reduce); });
  }
  run(Care::kEight, [&] { return at::leaky_relu(x); });
  run(Care::kEight, [&] { return at::prelu(x, at::full({1}, 0.25, at::kFloat).requires_grad_(true)); });
  run(Care::kEight, [&] { return at::abs(x); });
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
  run(Care::kExact, [&] { return at::binary_cross_entropy(x, target); });
  run(Care::kEight, [&] { return at::soft_margin_loss(x, target); });
  run(Care::kEight, [&] { return at::kl_div(x, y); });
  run(Care::kEight, [&] { return at::poisson_nll_loss(x, y, true, false, 1e-8, 1); });
  run(Care::kEight, [&] {
    const at::Tensor q = at::full({1, 1, 2, 8}, 0.5, at::kFloat).requires_grad_(true);
    return at::scaled_dot_product_attention(q, q, q);
  });
}

}  // namespace pleat::bridge
