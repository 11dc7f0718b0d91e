#include "torch_bridge/policy/eligibility.h"

#include <c10/core/DispatchKeySet.h>
#include <torch/csrc/jit/frontend/tracer.h>

#include <algorithm>
#include <array>

#include "sensitivity/sensitivity.h"
#include "torch_bridge/memory/cpu_allocator.h"
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
bool plain_key_set(const c10::DispatchKeySet& keys) noexcept {
  constexpr c10::DispatchKeySet plain{
      c10::DispatchKey::CPU,         c10::DispatchKey::ADInplaceOrView,
      c10::DispatchKey::AutogradCPU, c10::DispatchKey::AutocastCPU,
      c10::DispatchKey::Conjugate,   c10::DispatchKey::Negative};
  return (keys.raw_repr() & ~plain.raw_repr() & ~c10::full_backend_mask) == 0;
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

std::uint64_t lesson_of(const void* call_site) noexcept {
  return sensitivity::mix(reinterpret_cast<std::uintptr_t>(call_site));
}

// What is known of a call site, from the start or learned since; nothing of none. A program has a
// few dozen that save.
CallSite call_site_at(Runtime& runtime, const void* call_site) noexcept {
  if (call_site == nullptr) {
    return {};
  }
  struct Known {
    const void* call_site;
    std::uint64_t lessons;  // learned when this was written
    CallSite site;
  };
  thread_local std::array<Known, 64> cache{};
  const std::uint64_t lesson = lesson_of(call_site);
  Known& known = cache[lesson % cache.size()];
  const std::uint64_t lessons = runtime.lessons.edition();
  if (known.call_site != call_site || known.lessons != lessons) {
    known = {call_site, lessons, known_call_site(call_site)};
    known.site.needs.raise(runtime.lessons.learned(lesson));
  }
  return known.site;
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

// What the node that made a tensor says of it. A quotient that is but a factor elsewhere may be
// noisy; one of an exponential is a softmax.
Care care_of_producer(const Node& producer, std::uint32_t output_number, const SaveContext& context,
                      const CallSite& site) noexcept {
  const NodeClass& c = class_of(producer);
  if (c.statistics && output_number > 0) {
    return Care::kExact;
  }
  if (c.as_producer <= Care::kEight || context.is_output || !site.bears_noise) {
    return c.as_producer;
  }
  const Node* const numerator =
      producer.num_outputs() != 0 ? producer.next_edge(0).function.get() : nullptr;
  const bool softmax = numerator != nullptr && class_of(*numerator).as_producer == Care::kEight;
  return softmax ? Care::kEight : Care::kNone;
}

// A tensor that Pleat leaves alone may be the argument of a pole all the same: a gathered few of
// many.
void note_pole(Runtime& runtime, const at::Tensor& tensor, const SaveContext& context) noexcept {
  const CallSite site = call_site_at(runtime, context.call_site);
  Needs needs = context.care;
  needs.raise(site.needs);
  if (needs.care != Care::kPole && context.known && !context.is_output) {
    return;
  }
  try {
    if (const auto& producer = tensor.grad_fn()) {
      const auto output_number = static_cast<std::uint32_t>(tensor.output_nr());
      needs.raise(care_of_producer(*producer, output_number, context, site));
      if (needs.care == Care::kPole) {
        teach_before_pole(runtime, *producer, tensor, context.is_output);
      }
    }
  } catch (...) {  // a view that must not be differentiated
  }
}

}  // namespace

bool is_plain_strided(const c10::TensorImpl& tensor) noexcept {
  return plain_key_set(tensor.key_set()) && tensor.has_storage() &&
         tensor.layout() == at::kStrided && !tensor.is_python_dispatch();
}

Decision judge(Runtime& runtime, const at::Tensor& tensor, const SaveContext& context) noexcept {
  Decision d;
  if (!tensor.defined()) {
    d.reason = Reason::kUndefined;
    return d;
  }
  const c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
  if (!is_plain_strided(*impl)) {
    d.reason = Reason::kNotPlainStrided;
    return d;
  }
  if (!impl->device().is_cpu()) {
    d.reason = Reason::kOtherDevice;
    return d;
  }
  const c10::StorageImpl* const storage = impl->unsafe_storage().unsafeGetStorageImpl();
  const std::size_t bytes = storage->nbytes();
  if (bytes == 0 || bytes < runtime.min_bytes.load(std::memory_order_relaxed) ||
      impl->numel() == 0) {
    note_pole(runtime, tensor, context);
    d.reason = Reason::kTooSmall;
    return d;
  }
  const Node* producer = nullptr;
  try {
    producer = tensor.grad_fn().get();
  } catch (...) {  // a view that must not be differentiated: stock says so if backward reads it
    d.reason = Reason::kNotPlainStrided;
    return d;
  }
  const bool requires_grad = impl->requires_grad();
  if (requires_grad && producer == nullptr) {
    d.reason = Reason::kLeaf;
    return d;
  }
  if (torch::jit::tracer::isTracing()) {
    d.reason = Reason::kTracing;
    return d;
  }
  if (saved_by_compiled_function(context.call_site)) {
    d.reason = Reason::kCompiledFunction;
    return d;
  }
  if ((d.block = block_of(runtime, *storage)) == nullptr) {
    note_pole(runtime, tensor, context);
    d.reason = Reason::kForeignStorage;
    return d;
  }
  if (tensor.is_view()) {
    const at::TensorBase& base = tensor._base();
    if (base.is_leaf() && base.requires_grad()) {
      d.reason = Reason::kViewOfLeaf;
      return d;
    }
  }
  if (producer != nullptr && hides_parameter(producer)) {
    d.reason = Reason::kCastOfParameter;
    return d;
  }

  d.least.type = element_type(tensor.scalar_type());
  sensitivity::KeyParts key;
  key.element_type = static_cast<std::uint32_t>(tensor.scalar_type());
  key.rank = static_cast<std::uint32_t>(impl->dim());
  key.last_dimension = impl->dim() > 0 ? impl->size(impl->dim() - 1) : 0;
  d.producer = producer;
  d.output_number = key.output_number = static_cast<std::uint32_t>(tensor.output_nr());
  key.is_output = context.is_output;
  Needs needs = context.care;
  if (producer != nullptr) {
    key.producer = class_of(*producer).hash;
    key.ancestors = ancestors_hash(*producer);
  }
  d.family = sensitivity::family_key(key);
  // A call site of the constructor is one operand of one operator: it names the consumer better
  // than the tensor's own looks do.
  d.lesson = d.family;
  const CallSite site = call_site_at(runtime, context.call_site);
  if (context.call_site != nullptr) {
    d.lesson = lesson_of(context.call_site);
    needs.raise(site.needs);
    d.saver = context.is_output ? kSavedByProducer : site.saver;
    d.saves_input = site.saves_input;
  } else {
    needs.raise(runtime.lessons.learned(d.lesson));
  }

  if (producer != nullptr) {
    needs.raise(care_of_producer(*producer, d.output_number, context, site));
    if (d.saver != 0 || !context.known) {
      needs.raise(needs_before_pole(runtime, {producer, d.output_number, d.saver}, impl->sizes()));
    }
    if (needs.care == Care::kPole) {
      teach_before_pole(runtime, *producer, tensor, context.is_output);
    }
  }
  if (compress::is_floating(d.least.type) && requires_grad && needs.care < Care::kExact) {
    d.least.bits = needs.care == Care::kEight ? 8 : 1;
    d.least.exponent = needs.care == Care::kEight;
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
