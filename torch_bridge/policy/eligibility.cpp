#include "torch_bridge/policy/eligibility.h"

#include <c10/core/DispatchKeySet.h>
#include <torch/csrc/jit/frontend/tracer.h>

#include <algorithm>

#include "sensitivity/sensitivity.h"
#include "torch_bridge/policy/before_pole.h"
#include "torch_bridge/policy/call_sites.h"
#include "torch_bridge/policy/node_class.h"
#include "torch_bridge/policy/saving_node.h"
#include "torch_bridge/torch_access/recording.h"
#include "torch_bridge/torch_access/torch_version.h"

namespace pleat::bridge {
namespace {

using compress::ElementType;
using compress::block::kShortestLine;
using compress::block::Lines;
using compress::block::Look;
using torch::autograd::Node;

// Lazy conjugation and negation are carried by the view layout.
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
    return false;  // nor may it be asked for its device: that may run anybody's code
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

// Casts, transposes and views of a parameter: following single inputs leads to its AccumulateGrad.
bool hides_parameter(const Node* node) noexcept {
  for (int steps = 0; node != nullptr && steps < 5; ++steps) {
    const NodeClass& c = class_of(*node);
    if (c.accumulate_grad) {
      return true;
    }
    if (!c.passes_parameter || node->num_outputs() == 0) {
      return false;
    }
    node = node->next_edge(0).function.get();
  }
  return false;
}

// For CodecChoice::lines: kZeroRows where none are asked for but rows of zeros may be worth a look,
// kNone where the lines are not apart in memory.
Lines lines_of(const c10::TensorImpl& tensor, Rows rows) noexcept {
  constexpr std::uint32_t kShortestZeroRow = 32;
  const auto lines = [](Look look, std::int64_t length) {
    return length > 1 && length <= UINT32_MAX ? Lines{look, static_cast<std::uint32_t>(length)}
                                              : Lines{};
  };
  const std::int64_t dimensions = tensor.dim();
  if (dimensions < 2) {
    return {};
  }
  const std::int64_t channels = tensor.size(1);
  if (!tensor.is_contiguous()) {
    const bool of_image = rows == Rows::kPlanes || rows == Rows::kSamples;
    const bool channels_last =
        of_image && tensor.stride(1) == 1 && tensor.is_non_overlapping_and_dense();
    return channels_last ? lines(Look::kColumns, channels) : Lines{};
  }
  const std::int64_t last = tensor.size(dimensions - 1);
  const std::int64_t plane = c10::multiply_integers(tensor.sizes().slice(2));
  if (rows == Rows::kPlanes) {  // of one channel the small ones are columns side by side
    return plane >= kShortestLine ? lines(Look::kRows, plane)
                                  : lines(Look::kColumns, channels * plane);
  }
  if (rows == Rows::kSamples) {
    return lines(Look::kRows, plane >= kShortestLine ? plane : channels * plane);
  }
  if (rows == Rows::kLastDimension) {
    std::int64_t length = last;
    for (std::int64_t d = dimensions - 2; d > 0 && length < kShortestLine; --d) {
      length *= tensor.size(d);  // normalised together with the last, or nobody knows
    }
    return lines(Look::kRows, length);
  }
  return dimensions <= 3 && last >= kShortestZeroRow ? lines(Look::kZeroRows, last) : Lines{};
}

bool bears_noise(const CallSite& site) noexcept {
  return site.saver != nullptr && site.saver->bears_noise;
}

// What the node that made a tensor says of it. A quotient that is but a factor elsewhere may be
// noisy; one of an exponential is a softmax.
Care care_of_producer(const Node& producer, std::uint32_t output_number, const SaveContext& context,
                      const CallSite& site) noexcept {
  const NodeClass& c = class_of(producer);
  if (c.statistics && output_number > 0) {
    return Care::kExact;
  }
  if (c.as_producer <= Care::kEight || context.is_output || !bears_noise(site)) {
    return c.as_producer;
  }
  const Node* const numerator =
      producer.num_outputs() != 0 ? producer.next_edge(0).function.get() : nullptr;
  const bool softmax = numerator != nullptr && class_of(*numerator).as_producer == Care::kEight;
  return softmax ? Care::kEight : Care::kNone;
}

// What keeps a tensor from getting a record; kEligibleLossless if nothing does. Notes in `d` what
// it has found on its way.
Reason reason_against(Runtime& runtime, const at::Tensor& tensor, const SaveContext& context,
                      Decision& d) noexcept {
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
  } catch (...) {  // a view that must not be differentiated: stock says so if backward reads it
    return Reason::kNotPlainStrided;
  }
  if (impl->requires_grad() && d.producer == nullptr) {
    return Reason::kLeaf;
  }
  if (torch::jit::tracer::isTracing()) {
    return Reason::kTracing;
  }
  if (saved_by_compiled_function(context.call_site)) {
    return Reason::kCompiledFunction;
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

// A tensor that Pleat leaves alone may be the argument of a pole all the same: a gathered few of
// many.
void look_for_pole(Runtime& runtime, const at::Tensor& tensor, const SaveContext& context,
                   Decision& d) noexcept {
  const CallSite site = call_site_at(runtime, context.call_site);
  Needs needs = context.care;
  needs.raise(site.needs);
  if (needs.care != Care::kPole && context.known && !context.is_output) {
    return;
  }
  try {
    d.producer = tensor.grad_fn().get();
  } catch (...) {  // a view that must not be differentiated
    return;
  }
  if (d.producer != nullptr) {
    d.output_number = static_cast<std::uint32_t>(tensor.output_nr());
    needs.raise(care_of_producer(*d.producer, d.output_number, context, site));
    d.at_pole = needs.care == Care::kPole;
  }
}

// Its key, and what those that save and make it need of it.
Needs needs_of_eligible(Runtime& runtime, const at::Tensor& tensor, const SaveContext& context,
                        Decision& d) noexcept {
  const c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
  sensitivity::KeyParts key;
  key.element_type = static_cast<std::uint32_t>(tensor.scalar_type());
  key.rank = static_cast<std::uint32_t>(impl->dim());
  key.last_dimension = impl->dim() > 0 ? impl->size(impl->dim() - 1) : 0;
  d.output_number = key.output_number = static_cast<std::uint32_t>(tensor.output_nr());
  key.is_output = context.is_output;
  if (d.producer != nullptr) {
    key.producer = class_of(*d.producer).hash;
    key.ancestors = ancestors_hash(*d.producer);
  }
  d.family = sensitivity::family_key(key);
  // A call site of the constructor is one operand of one operator: it names the consumer better
  // than the tensor's own looks do.
  d.lesson = d.family;
  Needs needs = context.care;
  const CallSite site = call_site_at(runtime, context.call_site);
  if (context.call_site != nullptr) {
    d.lesson = lesson_of(context.call_site);
    needs.raise(site.needs);
    if (site.saver != nullptr) {
      d.saver = site.saver->hash;
      d.saves_input = site.saver->before_pole == BeforePole::kSavesInput;
    }
    if (context.is_output) {
      d.saver = kSavedByProducer;
    }
  } else {
    needs.raise(runtime.lessons.learned(d.lesson));
  }
  if (d.producer != nullptr) {
    needs.raise(care_of_producer(*d.producer, d.output_number, context, site));
    if (d.saver != 0 || !context.known) {
      needs.raise(
          needs_before_pole(runtime, {d.producer, d.output_number, d.saver}, impl->sizes()));
    }
    d.at_pole = needs.care == Care::kPole;
  }
  return needs;
}

}  // namespace

bool is_plain_strided(const c10::TensorImpl& tensor) noexcept {
  return has_plain_keys(tensor) && tensor.has_storage() && tensor.layout() == at::kStrided &&
         !tensor.is_python_dispatch();
}

Decision judge(Runtime& runtime, const at::Tensor& tensor, const SaveContext& context) noexcept {
  Decision d;
  d.reason = reason_against(runtime, tensor, context, d);
  if (d.reason == Reason::kTooSmall || d.reason == Reason::kForeignStorage) {
    look_for_pole(runtime, tensor, context, d);
  }
  if (!d.eligible()) {
    return d;
  }
  d.least.type = element_type(tensor.scalar_type());
  const Needs needs = needs_of_eligible(runtime, tensor, context, d);
  const c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
  if (compress::is_floating(d.least.type) && impl->requires_grad() && needs.care < Care::kExact) {
    d.least.bits = needs.care == Care::kEight ? 8 : 1;
    d.least.steps = needs.care == Care::kEight ? compress::block::Steps::kExponent
                                               : compress::block::Steps::kAny;
    d.least.lines = lines_of(*impl, needs.rows);
  }
  KeyBook::Recording* const recording = this_recording(runtime.keys);
  d.key.value =
      sensitivity::tensor_key(d.family, recording != nullptr ? recording->next(d.family) : 0);
  d.choice = d.choice_of_width(runtime.bits.width_of(d.key));
  // Types without a shorter form (double, complex) get a record too: it costs nothing, the block is
  // held as it is, and another view of the same storage learns that its bytes must stay exact.
  d.reason = d.choice.bits != 0 ? Reason::kEligibleLossy : Reason::kEligibleLossless;
  return d;
}

}  // namespace pleat::bridge
