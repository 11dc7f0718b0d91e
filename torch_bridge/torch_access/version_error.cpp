#include "torch_bridge/torch_access/version_error.h"

#include <ATen/ATen.h>
#include <ATen/SavedTensorHooks.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>

#include <sstream>
#include <string>
#include <string_view>

#include "torch_bridge/core/runtime.h"

namespace pleat::bridge {
namespace {

using torch::autograd::CreationMeta;
using torch::autograd::Node;

// While an instance lives, this thread records by stock's defaults: without hooks of Pleat's or of
// users.
class Plainly {
 public:
  Plainly() : outer_(at::SavedTensorDefaultHooks::set_tracing(true)) { Runtime::exempt_enter(); }
  ~Plainly() {
    Runtime::exempt_exit();
    at::SavedTensorDefaultHooks::set_tracing(outer_);
  }
  Plainly(const Plainly&) = delete;
  Plainly& operator=(const Plainly&) = delete;

 private:
  const bool outer_;
  const c10::InferenceMode normal_{false};
  const at::AutoGradMode recording_{true};
};

// The name of a node in stock's version error: 2.15 names the operator, earlier releases the node.
template <class AnyNode>
std::string name_in_messages(const AnyNode& node) {
  if constexpr (requires { node.forward_op_name(); }) {
    return node.forward_op_name();
  } else {
    return node.name();
  }
}

// The hint that stock appends to its version error, taken from stock: the wording differs between
// releases and with anomaly mode.
std::string stock_hint() {
  try {
    const Plainly plainly;
    const at::Tensor probe = at::zeros({1});
    const torch::autograd::SavedVariable saved(probe, false);
    probe.add_(1);
    (void)saved.unpack();
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    constexpr std::string_view kEnd = "instead.";
    if (const auto at = text.find(kEnd); at != std::string::npos) {
      return text.substr(at + kEnd.size());
    }
  }
  return {};
}

}  // namespace

void throw_version_error(const VersionMismatch& mismatch) {
  std::ostringstream message;
  message << "one of the variables needed for gradient computation has been modified by an "
             "inplace operation: ["
          << at::empty({0}, at::TensorOptions().dtype(mismatch.dtype)).toString() << " "
          << mismatch.sizes << "]";
  if (mismatch.producer != nullptr) {
    message << ", which is output " << mismatch.output_number << " of "
            << name_in_messages(*mismatch.producer) << ",";
  }
  message << " is at version " << mismatch.version << "; expected version "
          << mismatch.saved_version << " instead." << stock_hint();
  TORCH_CHECK(false, message.str());
}

CreationMeta creation_of(const at::Tensor& variable) {
  const auto* const view = torch::autograd::impl::get_view_autograd_meta(variable);
  return view != nullptr && view->has_bw_view() ? view->get_creation_meta() : CreationMeta::DEFAULT;
}

void check_view(CreationMeta creation, const Node& producer, std::int64_t output_number) {
  if (creation == CreationMeta::DEFAULT) {
    return;
  }
  const Plainly plainly;
  const at::Tensor view = at::zeros({1}).requires_grad_().view({1});
  auto* const meta = torch::autograd::impl::get_view_autograd_meta(view);
  meta->set_creation_meta(creation);
  meta->grad_fn_ = const_cast<Node&>(producer).getptr();
  meta->output_nr_ = static_cast<std::uint32_t>(output_number);
  torch::autograd::handle_view_on_rebase(meta, /*indirect=*/true);
}

void check_not_detached() {
  const Plainly plainly;
  at::Tensor probe = at::zeros({1}).requires_grad_().clone();
  const torch::autograd::SavedVariable saved(probe, false);
  probe.detach_();
  (void)saved.unpack();
}

}  // namespace pleat::bridge
