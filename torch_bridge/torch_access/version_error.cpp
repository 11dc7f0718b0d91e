#include "torch_bridge/torch_access/version_error.h"

#include <ATen/ATen.h>
#include <ATen/SavedTensorHooks.h>

#include <sstream>
#include <string>
#include <string_view>

#include "torch_bridge/core/runtime.h"

namespace pleat::bridge {
namespace {

// While it lives, tensors saved by this thread get no hooks of ours.
class NoHooks {
 public:
  NoHooks() noexcept { Runtime::exempt_enter(); }
  ~NoHooks() { Runtime::exempt_exit(); }
  NoHooks(const NoHooks&) = delete;
  NoHooks& operator=(const NoHooks&) = delete;
};

// What stock calls a node in its version error: 2.15 names the operator, earlier releases the node.
template <class AnyNode>
std::string name_in_messages(const AnyNode& node) {
  if constexpr (requires { node.forward_op_name(); }) {
    return node.forward_op_name();
  } else {
    return node.name();
  }
}

// What stock appends to its version error, taken from stock: the wording differs between releases
// and with anomaly mode.
std::string stock_hint() {
  try {
    const NoHooks no_hooks;
    struct Restore {  // nor those of a user
      const bool outer = at::SavedTensorDefaultHooks::set_tracing(true);
      ~Restore() { at::SavedTensorDefaultHooks::set_tracing(outer); }
    } const no_user_hooks;
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

}  // namespace pleat::bridge
