#include "torch_bridge/policy/eligibility.h"

#include <c10/core/DispatchKeySet.h>

#include <algorithm>

#include "sensitivity/sensitivity.h"
#include "torch_bridge/policy/node_class.h"
#include "torch_bridge/policy/proofs.h"
#include "torch_bridge/policy/saving_node.h"
#include "torch_bridge/torch_access/pass_state.h"
#include "torch_bridge/torch_access/python_objects.h"
#include "torch_bridge/torch_access/torch_version.h"

namespace pleat::bridge {
namespace {

using compress::ElementType;
using torch::autograd::Node;

// The view layout handles lazy conjugation and negation.
bool has_plain_keys(const c10::TensorImpl& tensor) noexcept {
  using c10::DispatchKeySet;
  constexpr DispatchKeySet on_every_device{c10::DispatchKey::CPU, c10::DispatchKey::ADInplaceOrView,
                                           c10::DispatchKey::AutogradCPU,
                                           c10::DispatchKey::Conjugate, c10::DispatchKey::Negative};
  const DispatchKeySet beside(DispatchKeySet::RAW, tensor.key_set().raw_repr() &
                                                       ~on_every_device.raw_repr() &
                                                       ~c10::full_backend_mask);
  if (beside.empty()) {
    return true;
  }
  if (!(beside - c10::autocast_dispatch_keyset).empty()) {
    return false;  // looking up its device could run foreign code
  }
  const DeviceBackend* const backend = backend_of(tensor.device());
  return backend != nullptr && beside == DispatchKeySet(backend->autocast_key());
}

ElementType element_type(at::ScalarType type) noexcept {
  switch (type) {
    case at::kFloat:
      return ElementType::kFloat32;
    case at::kBFloat16:
      return ElementType::kBFloat16;
    case at::kHalf:
      return ElementType::kFloat16;
    case at::kBool:
      return ElementType::kBool;
    case at::kLong:
      return ElementType::kInt64;
    case at::kInt:
      return ElementType::kInt32;
    default:
      return ElementType::kBytes;
  }
}

// Follows single inputs through casts, transposes and views of a parameter to its AccumulateGrad.
bool hides_parameter(const Node* node) noexcept {
  for (int steps = 0; node != nullptr && steps < 5; ++steps) {
    const NodeClass& c = class_of(*node);
    if (c.accumulate_grad) {
      return true;
    }
    if (!c.has(kPassesParameter) || node->num_outputs() == 0) {
      return false;
    }
    node = node->next_edge(0).function.get();
  }
  return false;
}

// True if code in Python gets the saved variable back, with its Python object: from a function in
// Python, which holds the interpreter's lock while it saves.
bool returns_to_python(const SaveContext& context) noexcept {
  if (!context.known) {
    return holds_interpreter();
  }
  return !context.is_output && saved_by_python_function(context.call_site);
}

// The reason why a tensor gets no record, else kEligibleLossless. Stores its findings in `d`.
Reason reason_against(Runtime& runtime, const at::Tensor& tensor, const SaveContext& context,
                      Eligibility& d) noexcept {
  if (!tensor.defined()) {
    return Reason::kUndefined;
  }
  const c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
  if (!is_plain_strided(*impl)) {
    return Reason::kNotPlainStrided;
  }
  d.backend = backend_of(impl->device());
  if (d.backend == nullptr) {
    return Reason::kOtherDevice;
  }
  const c10::StorageImpl* const storage = impl->unsafe_storage().unsafeGetStorageImpl();
  const std::size_t bytes = storage->nbytes();
  if (bytes == 0 || bytes < runtime.min_bytes.load(std::memory_order_relaxed) ||
      impl->numel() == 0) {
    return Reason::kTooSmall;
  }
  try {
    d.producer = tensor.grad_fn().get();
  } catch (...) {  // a view that must not be differentiated: stock raises if backward reads it
    return Reason::kNotPlainStrided;
  }
  if (impl->requires_grad() && d.producer == nullptr) {
    return Reason::kLeaf;
  }
  if (operators_are_watched()) {
    return Reason::kWatched;
  }
  if (saved_by_compiled_function(context.call_site)) {
    return Reason::kCompiledFunction;
  }
  if (returns_to_python(context) && has_python_state(*impl)) {
    return Reason::kPythonState;
  }
  if ((d.block = d.backend->block_of(*storage)) == nullptr) {
    return Reason::kForeignStorage;
  }
  if (tensor.is_view()) {
    const at::TensorBase& base = tensor._base();
    if (base.is_leaf() && base.requires_grad()) {
      return Reason::kViewOfLeaf;
    }
  }
  if (d.producer != nullptr && hides_parameter(d.producer)) {
    return Reason::kCastOfParameter;
  }
  return Reason::kEligibleLossless;
}

void name(const at::Tensor& tensor, const SaveContext& context, Eligibility& d) noexcept {
  const c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
  sensitivity::KeyParts key;
  key.element_type = static_cast<std::uint32_t>(tensor.scalar_type());
  key.rank = static_cast<std::uint32_t>(impl->dim());
  key.last_dimension = impl->dim() > 0 ? impl->size(impl->dim() - 1) : 0;
  d.output_number = key.output_number = static_cast<std::uint32_t>(tensor.output_nr());
  key.is_output = context.is_output;
  if (d.producer != nullptr) {
    key.producer = structure_of(*d.producer);
  }
  d.key.value = sensitivity::tensor_key(key);
}

}  // namespace

bool is_plain_strided(const c10::TensorImpl& tensor) noexcept {
  return has_plain_keys(tensor) && tensor.has_storage() && tensor.layout() == at::kStrided &&
         !tensor.is_python_dispatch();
}

Eligibility judge(Runtime& runtime, const at::Tensor& tensor, const SaveContext& context) noexcept {
  Eligibility d;
  d.reason = reason_against(runtime, tensor, context, d);
  if (!d.eligible()) {
    return d;
  }
  d.type = element_type(tensor.scalar_type());
  name(tensor, context, d);
  // Types without a shorter form (double, complex) get a record too, whose block is held raw at no
  // cost. The record makes the bytes exact for another view of the same storage.
  if (compress::is_floating(d.type) && tensor.unsafeGetTensorImpl()->requires_grad() &&
      d.producer != nullptr && (runtime.bits.uniform() != 0 || runtime.sensitivity.measures())) {
    d.reason = Reason::kEligibleLossy;
    const bool assumed = runtime.rule.load(std::memory_order_relaxed) == Rule::kAssumed;
    d.exactness = assumed                           ? Exactness::kMayBearNoise
                  : in_backward()                   ? Exactness::kInBackward
                  : expects_derivative()            ? Exactness::kDerivative
                  : is_made_of_weights(*d.producer) ? Exactness::kComputedWeight
                                                    : Exactness::kMayBearNoise;
  }
  return d;
}

}  // namespace pleat::bridge
