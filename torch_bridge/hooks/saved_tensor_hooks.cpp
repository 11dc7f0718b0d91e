#include "torch_bridge/hooks/saved_tensor_hooks.h"

#include <ATen/ATen.h>

#include <atomic>
#include <optional>
#include <typeinfo>
#include <utility>

#include "torch_bridge/core/clock.h"
#include "torch_bridge/hooks/handed_out.h"
#include "torch_bridge/hooks/reader.h"
#include "torch_bridge/hooks/tagging.h"
#include "torch_bridge/memory/torch_record.h"
#include "torch_bridge/policy/node_class.h"
#include "torch_bridge/policy/recomputed.h"
#include "torch_bridge/policy/saving_node.h"
#include "torch_bridge/torch_access/pass_state.h"
#include "torch_bridge/torch_access/strided_view.h"
#include "torch_bridge/torch_access/version_error.h"
#include "torch_bridge/trace/state.h"
#include "torch_bridge/trace/trace.h"

namespace pleat::bridge {
namespace {

// Times one in 64 decisions, packs and unpacks (without the codec), so that the cost of a hook is
// known and the knowing costs nothing.
class SampledTimer {
 public:
  explicit SampledTimer(Runtime& runtime) noexcept : runtime_(runtime) {
    start_ = (Runtime::next_turn() & 63u) == 0 ? monotonic_ns() : 0;
  }
  ~SampledTimer() { stop(); }
  void stop() noexcept {
    if (start_ != 0) {
      runtime_.hook_ns_sampled.fetch_add(monotonic_ns() - start_, std::memory_order_relaxed);
      runtime_.hook_samples.fetch_add(1, std::memory_order_relaxed);
      start_ = 0;
    }
  }
  SampledTimer(const SampledTimer&) = delete;
  SampledTimer& operator=(const SampledTimer&) = delete;

 private:
  Runtime& runtime_;
  std::uint64_t start_;
};

using torch::autograd::Node;

// 0 for an undefined tensor, without storage (sparse), or with a symbolic size.
std::size_t storage_bytes(const at::Tensor& tensor) noexcept {
  if (!tensor.defined() || !tensor.unsafeGetTensorImpl()->has_storage()) {
    return 0;
  }
  const auto bytes = tensor.unsafeGetTensorImpl()->unsafe_storage().sym_nbytes().maybe_as_int();
  return bytes && *bytes > 0 ? static_cast<std::size_t>(*bytes) : 0;
}

void note_eligibility(Runtime& runtime, const Eligibility& found,
                      const at::Tensor& tensor) noexcept {
  const std::size_t bytes = storage_bytes(tensor);
  runtime.reasons.add(found.reason, bytes);
  if (tracing() && !found.eligible()) [[unlikely]]
    trace_left(found.reason,
               found.backend != nullptr ? found.backend->heap().device().value
                                        : allocator::HeapTable::kHost,
               found.block, bytes);
}

class SavedTensorHooks final : public torch::autograd::SavedVariableHooks, private LateLink {
 public:
  // Judged in pack.
  explicit SavedTensorHooks(Runtime& runtime) : runtime_(runtime) {}
  SavedTensorHooks(Runtime& runtime, const Eligibility& eligibility, const SaveContext& context)
      : runtime_(runtime), eligibility_(eligibility), context_(context) {}

  ~SavedTensorHooks() override { untag(saved_); }
  SavedTensorHooks(const SavedTensorHooks&) = delete;
  SavedTensorHooks& operator=(const SavedTensorHooks&) = delete;

  // Under NoGradGuard, at record time. Never throws: on a failure the tensor is kept as it is.
  void call_pack_hook(const at::Tensor& tensor) override {
    const SampledTimer timer(runtime_);
    if (!eligibility_) {
      eligibility_ = runtime_.tagging() ? judge(runtime_, tensor, context_) : Eligibility{};
      note_eligibility(runtime_, *eligibility_, tensor);
      find_nodes(runtime_, tensor);
    }
    const Save save{runtime_, tensor, *eligibility_, context_};
    remember(saved_, save);
    bool tagged = false;
    if (eligibility_->eligible()) {
      try {
        tagged = tag(saved_, save, *this, *this);
      } catch (...) {
        tagged = false;
      }
    }
    if (!tagged) {
      strong_ = tensor.detach();
    }
  }

  at::Tensor call_unpack_hook() override {
    check_version();
    return unpack(present_reader(context_));
  }

  at::Tensor unpack(const Reader& reader) {
    SampledTimer timer(runtime_);
    runtime_.unpacks.fetch_add(1, std::memory_order_relaxed);
    if (saved_.record == nullptr) {
      return hand_living(strong_.detach(), reader, context_, saved_.requires_grad);
    }
    if (VariablePtr original = lock_original()) {
      count_living(*original);
      tell_of_read(/*living=*/true);
      // Autograd detaches the returned tensor, so the variable itself suffices.
      return hand_living(at::Tensor(std::move(original)), reader, context_, saved_.requires_grad);
    }
    if (StoragePtr live = saved_.record->weak.lock()) {
      runtime_.live_at_unpack.fetch_add(1, std::memory_order_relaxed);
      tell_of_read(/*living=*/true);
      return hand_living(saved_.view.on(c10::Storage(std::move(live)), saved_.version), reader,
                         context_, saved_.requires_grad);
    }
    timer.stop();
    tell_of_read(/*living=*/false);
    const bool slice = 2 * saved_.view.touched_bytes() <= saved_.record->bytes;
    if (reader.formula || gets_raw_block(reader)) {
      TorchRecord::Restored restored = saved_.record->restore(slice);
      return saved_.view.on(std::move(restored.storage), restored.version);
    }
    if (reader.node != nullptr && !context_.is_output) {
      for (const auto& [sibling, variable] : given_to(*reader.node, *saved_.record)) {
        if (sibling.storage().nbytes() == saved_.record->bytes) {
          return saved_.view.on(sibling.storage(),
                                sibling.unsafeGetTensorImpl()->version_counter());
        }
      }
    }
    if (const std::uint32_t hooks = slice ? backend().residency().hooks(*saved_.record) : 1;
        hooks > 1) {
      // One of many slices: the whole is restored once for all of them.
      const allocator::ByteRange hull = saved_.view.hull();
      const bool has_gaps = 2 * (hull.end - hull.begin) > saved_.record->bytes;
      if (!has_gaps && !saved_.record->several_of_one_node()) {
        const TorchRecord::Restored whole = saved_.record->restore(slice);
        return saved_.view.on_hull(backend().copy(whole.storage, hull, backend().current_stream()),
                                   c10::VariableVersion(0));
      }
      // The view spans the whole storage, or the node saved several views of it. A copy for every
      // hook costs as much as a restore, so these hooks share one restored storage and its version
      // counter, like slices in stock. An accumulator can take a view without gaps, unless
      // note_unpacked() holds it.
      if (hooks >= TorchRecord::kManyHooks && (has_gaps || context_.known)) {
        TorchRecord::Restored whole = saved_.record->restore(slice);
        return saved_.view.on(std::move(whole.storage), whole.version);
      }
    }
    TorchRecord::Restored restored = saved_.record->restore_apart(/*last=*/reader.lets_go);
    return saved_.view.on(std::move(restored.storage), restored.version);
  }

  // The tensor for a user's hooks that replace these: they need no version check.
  at::Tensor value() { return unpack({.formula = true}).detach(); }

  at::Tensor present_variable() {
    if (saved_.record == nullptr || !context_.known) {
      return {};
    }
    const Reader reading = present_reader(context_);
    at::Tensor present;
    bool living = true;
    if (VariablePtr original = lock_original()) {
      present = at::Tensor(std::move(original));
      // A variable detached in place has no grad_fn; stock raises an internal error for it.
      if (saved_.producer != nullptr && present.grad_fn() == nullptr) {
        return {};
      }
      count_living(*present.unsafeGetTensorImpl());
    } else if (reading.node != nullptr && !context_.is_output) {
      present = held_unwritten();
      living = present.defined();
      if (!living) {
        for (const auto& [tensor, variable] : given_to(*reading.node, *saved_.record)) {
          if (variable == saved_.original.weak._unsafe_get_target()) {
            present = tensor;
          }
        }
      }
    }
    if (present.defined()) {
      tell_of_read(living);
      const SampledTimer timer(runtime_);
      runtime_.unpacks.fetch_add(1, std::memory_order_relaxed);
      check_version();
      if (living && reading.node != nullptr && !hold(present)) {
        lend(*reading.node, present);
      }
    }
    return present;
  }

  void note_unpacked(const at::Tensor& variable) noexcept {
    const Reader reading = present_reader(context_);
    if (reading.node == nullptr || context_.is_output) {
      return;
    }
    if (saved_.record == nullptr) {
      lend(*reading.node, variable);
      return;
    }
    if (!saved_.record->weak.expired() || gets_raw_block(reading)) {
      if (hold(variable)) {
        return;
      }
      lend(*reading.node, variable);
    } else if (reading.lets_go) {
      handed_ = variable;
    }
    give(*reading.node, *saved_.record, {variable, saved_.original.weak._unsafe_get_target()},
         /*hold=*/!reading.lets_go || backend().residency().shared(*saved_.record));
  }

  std::optional<std::pair<c10::SafePyObject, c10::SafePyObject>> retrieve_unpack_hook_data()
      const override {
    return std::nullopt;
  }
#if PLEAT_HOOKS_HAVE_RETRIEVE_UNPACK_HOOK
  std::optional<c10::SafePyObject> retrieve_unpack_hook() const override { return std::nullopt; }
#endif

 private:
  using VariablePtr = c10::intrusive_ptr<c10::TensorImpl>;

  // The backend of the saved tensor's device. Only for a tagged tensor.
  [[nodiscard]] DeviceBackend& backend() const noexcept { return saved_.record->backend(); }

  // Empty for an output of the saving node: holding it would be a cycle, in stock as well.
  VariablePtr lock_original() const {
    VariablePtr original = context_.is_output ? VariablePtr() : saved_.original.weak.lock();
    return original && original->has_storage() ? std::move(original) : VariablePtr();
  }

  // Holds a tensor that has the bytes of the save itself as long as stock's graph does. False if
  // the graph is kept: the pass ends first.
  [[nodiscard]] bool hold(const at::Tensor& tensor) const noexcept {
    return !torch::autograd::get_current_graph_task_keep_graph() &&
           saved_.record->hold(saved_.original, tensor);
  }
  // The tensor of hold(), unless it was written to: call_unpack_hook() throws the error then.
  [[nodiscard]] at::Tensor held_unwritten() const noexcept {
    at::Tensor held = saved_.record->held_for(saved_.original);
    if (!held.defined()) {
      return held;
    }
    const std::uint32_t expected = saved_.record->weak.expired() ? 0 : saved_.saved_version;
    const c10::VariableVersion& version = held.unsafeGetTensorImpl()->version_counter();
    return !version.enabled() || version.current_version() == expected ? held : at::Tensor();
  }
  // True if hold() will hold it and nothing is decompressed for it: then it costs what it costs in
  // stock.
  [[nodiscard]] bool gets_raw_block(const Reader& reader) const noexcept {
    return reader.node != nullptr && !context_.is_output &&
           !torch::autograd::get_current_graph_task_keep_graph() &&
           saved_.record->may_hold(saved_.original) && saved_.record->is_raw();
  }

  void tell_of_read(bool living) noexcept {
    if (PassWatch* const watch = pass_facts().watch; watch != nullptr) [[unlikely]] {
      watch->note_read({.record = *saved_.record,
                        .reader = torch::autograd::get_current_node().get(),
                        .producer = saved_.producer,
                        .sizes = saved_.view.sizes(),
                        .dtype = saved_.view.dtype(),
                        .living = living});
    }
  }

  // If the variable's .data was swapped since it was saved, backward reads the new data, as in
  // stock.
  void count_living(const c10::TensorImpl& original) {
    const bool swapped =
        original.unsafe_storage().unsafeGetStorageImpl() != saved_.record->identity;
    (swapped ? runtime_.swapped : runtime_.live_at_unpack).fetch_add(1, std::memory_order_relaxed);
  }

  // If an activation made this tensor from a tensor that is compressed by now, one payload serves
  // both.
  void link_argument() noexcept override {
    if (saved_.producer == nullptr || context_.is_output || !saved_.version.enabled() ||
        saved_.saved_version != 0 || !runtime_.recompute.load(std::memory_order_relaxed)) {
      return;
    }
    const RecomputedFrom from = recomputed_from(*saved_.producer);
    if (from.function != compress::Function::kNone && is_saved_tensor_hooks(from.argument)) {
      recompute_from(saved_, static_cast<const SavedTensorHooks&>(*from.argument).saved_,
                     Recomputed{from.function, eligibility_->type});
    }
  }

  // Autograd leaves the version check to the hooks; the text is autograd's own.
  void check_version() const {
    if (!saved_.version.enabled()) {
      return;
    }
    const auto current = saved_.version.current_version();
    if (current == saved_.saved_version) {
      return;
    }
    // Stock holds the variable itself, except an output of the saving node: there the text names
    // the variable's present grad_fn, and always output 0.
    const Node* named = context_.is_inplace_on_view ? unpacking_node() : saved_.producer;
    std::int64_t output = saved_.output_number;
    at::Tensor original;
    if (!context_.is_output) {
      if (auto alive = saved_.original.weak.lock()) {
        original = at::Tensor(std::move(alive));
        named = original.grad_fn().get();
        if (named == nullptr && saved_.producer != nullptr && context_.known) {
          named = unpacking_node();
          if (named == nullptr) {
            check_not_detached();
          }
        }
      } else if (named != nullptr) {
        check_view(saved_.creation, *named, output);
      }
      output = 0;
    }
    throw_version_error({.dtype = saved_.record != nullptr ? saved_.view.dtype() : strong_.dtype(),
                         .sizes = saved_.record != nullptr ? saved_.view.sizes() : strong_.sizes(),
                         .producer = named,
                         .output_number = output,
                         .version = current,
                         .saved_version = saved_.saved_version});
  }

  Runtime& runtime_;
  std::optional<Eligibility> eligibility_;
  SaveContext context_;
  SavedTensor saved_;
  at::Tensor strong_;  // ineligible without a construction scope, or not tagged
  at::Tensor handed_;  // decompressed for the owning node, kept until it releases its saves
};

}  // namespace

std::unique_ptr<torch::autograd::SavedVariableHooks> make_saved_tensor_hooks(Runtime& runtime) {
  const ConstructionScope* const scope = thread_policy.construction;
  if (scope == nullptr || scope->variable == nullptr) {
    return runtime.tagging() && !operators_are_watched()
               ? std::make_unique<SavedTensorHooks>(runtime)
               : nullptr;
  }
  const SampledTimer timer(runtime);
  const at::Tensor& variable = *scope->variable;
  const Eligibility eligibility =
      runtime.tagging() ? judge(runtime, variable, scope->context) : Eligibility{};
  note_eligibility(runtime, eligibility, variable);
  if (!eligibility.eligible()) {
    return nullptr;
  }
  return std::make_unique<SavedTensorHooks>(runtime, eligibility, scope->context);
}

bool is_saved_tensor_hooks(const torch::autograd::SavedVariableHooks* hooks) noexcept {
  return hooks != nullptr && typeid(*hooks) == typeid(SavedTensorHooks);
}

at::Tensor value_of(torch::autograd::SavedVariableHooks& hooks) {
  return static_cast<SavedTensorHooks&>(hooks).value();
}

at::Tensor present_variable(torch::autograd::SavedVariableHooks& hooks) {
  return static_cast<SavedTensorHooks&>(hooks).present_variable();
}

void note_unpacked(torch::autograd::SavedVariableHooks& hooks,
                   const at::Tensor& variable) noexcept {
  static_cast<SavedTensorHooks&>(hooks).note_unpacked(variable);
}

}  // namespace pleat::bridge
