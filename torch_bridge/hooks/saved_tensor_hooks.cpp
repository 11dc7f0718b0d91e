#include "torch_bridge/hooks/saved_tensor_hooks.h"

#include <ATen/ATen.h>

#include <atomic>
#include <cstring>
#include <optional>
#include <typeinfo>
#include <utility>

#include "sensitivity/sensitivity.h"
#include "torch_bridge/core/sampled_timer.h"
#include "torch_bridge/hooks/handed_out.h"
#include "torch_bridge/memory/cpu_allocator.h"
#include "torch_bridge/memory/torch_record.h"
#include "torch_bridge/policy/before_pole.h"
#include "torch_bridge/policy/node_class.h"
#include "torch_bridge/policy/recomputed.h"
#include "torch_bridge/policy/saving_node.h"
#include "torch_bridge/torch_access/pass_state.h"
#include "torch_bridge/torch_access/strided_view.h"
#include "torch_bridge/torch_access/version_error.h"

namespace pleat::bridge {
namespace {

using torch::autograd::Node;

// Of whatever may be saved: undefined, without storage (sparse), or of symbolic size (0).
std::size_t storage_bytes(const at::Tensor& tensor) noexcept {
  if (!tensor.defined() || !tensor.unsafeGetTensorImpl()->has_storage()) {
    return 0;
  }
  const auto bytes = tensor.unsafeGetTensorImpl()->unsafe_storage().sym_nbytes().maybe_as_int();
  return bytes && *bytes > 0 ? static_cast<std::size_t>(*bytes) : 0;
}

// The bytes of `storage` in `range`, in a storage of their own.
c10::Storage copy_of(const c10::Storage& storage, allocator::ByteRange range) {
  c10::Storage copy(c10::Storage::use_byte_size_t(), range.end - range.begin, cpu_allocator(),
                    /*resizable=*/true);
  std::memcpy(copy.mutable_data(), static_cast<const char*>(storage.data()) + range.begin,
              range.end - range.begin);
  return copy;
}

class SavedTensorHooks final : public torch::autograd::SavedVariableHooks {
 public:
  SavedTensorHooks(Runtime& runtime, std::optional<Decision> decision, SaveContext context)
      : runtime_(runtime), decision_(decision), context_(context) {}

  ~SavedTensorHooks() override {
    if (record_ != nullptr) {
      runtime_.residency.drop(record_, [&] { TorchRecord::remove_variable(original_); });
    }
  }
  SavedTensorHooks(const SavedTensorHooks&) = delete;
  SavedTensorHooks& operator=(const SavedTensorHooks&) = delete;

  // Who asks for the tensor, and might hand it on as a gradient, which an accumulator takes as it
  // is.
  struct Reader {
    bool formula = false;  // of torch's, which returns nothing that it saved; or no pass runs
    const Node* node =
        nullptr;  // of a user's that runs, or whose hook does; null in a thread without a pass
    bool lets_go = false;  // it asks for what it saved itself, which stock gives up once it has run
  };

  // Under NoGradGuard, at record time. Never throws: on any trouble the tensor is kept as it is.
  void call_pack_hook(const at::Tensor& tensor) override {
    const SampledTimer timer(runtime_);
    if (!decision_) {
      decision_ = runtime_.tagging() ? judge(runtime_, tensor, context_) : Decision{};
      runtime_.reasons.add(decision_->reason, storage_bytes(tensor));
    }
    remember_layout(tensor);
    bool tagged = false;
    if (decision_->eligible()) {
      try {
        tagged = tag(tensor);
      } catch (...) {
        tagged = false;
      }
    }
    if (!tagged) {
      strong_ = tensor.detach();
    } else if (decision_->choice.bits != 0 && runtime_.recompute.load(std::memory_order_relaxed)) {
      follow_argument(tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl());
    }
  }

  at::Tensor call_unpack_hook() override {
    check_version();
    return unpack(reader());
  }

  at::Tensor unpack(const Reader& reader) {
    SampledTimer timer(runtime_);
    runtime_.unpacks.fetch_add(1, std::memory_order_relaxed);
    if (record_ == nullptr) {
      return lent(strong_.detach(), reader);
    }
    if (VariablePtr original = lock_original()) {
      count_living(*original);
      // Autograd makes a detached copy of whatever we return, so the variable itself will do.
      return lent(at::Tensor(std::move(original)), reader);
    }
    if (StoragePtr live = record_->weak.lock()) {
      runtime_.live_at_unpack.fetch_add(1, std::memory_order_relaxed);
      return lent(view_.on(c10::Storage(std::move(live)), version_), reader);
    }
    learn_consumer();
    timer.stop();
    if (reader.formula) {
      TorchRecord::Restored restored = record_->restore(runtime_);
      return view_.on(std::move(restored.storage), restored.version);
    }
    if (reader.node != nullptr && !context_.is_output) {
      for (const auto& [sibling, variable] : given_to(*reader.node, *record_)) {
        if (sibling.storage().nbytes() == record_->bytes) {
          return view_.on(sibling.storage(), sibling.unsafeGetTensorImpl()->version_counter());
        }
      }
    }
    const allocator::ByteRange hull = view_.hull();
    if (2 * (hull.end - hull.begin) <= record_->bytes && !record_->several_of_one_node() &&
        runtime_.residency.shared(*record_)) {
      // One of many slices: the whole is restored once for all of them.
      const TorchRecord::Restored whole = record_->restore(runtime_);
      return view_.on_hull(copy_of(whole.storage, hull), c10::VariableVersion(0));
    }
    TorchRecord::Restored restored = record_->restore_apart(runtime_, /*last=*/reader.lets_go);
    return view_.on(std::move(restored.storage), restored.version);
  }

  // What a user's hooks are given in place of ours: they ask for no version check.
  at::Tensor value() { return unpack({.formula = true}).detach(); }

  at::Tensor present_variable() {
    if (record_ == nullptr || !context_.known) {
      return {};
    }
    at::Tensor present;
    if (VariablePtr original = lock_original()) {
      present = at::Tensor(std::move(original));
      // One detached in place since has no grad_fn any more, for which stock raises an internal
      // error.
      if (producer_ != nullptr && present.grad_fn() == nullptr) {
        return {};
      }
      count_living(*present.unsafeGetTensorImpl());
      if (const Reader reading = reader();
          reading.lets_go && !runtime_.residency.shared(*record_)) {
        handed_ = present;
      } else if (reading.node != nullptr) {
        lend(*reading.node, present);  // stock's graph keeps it for others
      }
    } else if (const Reader reading = reader(); reading.node != nullptr && !context_.is_output) {
      for (const auto& [tensor, variable] : given_to(*reading.node, *record_)) {
        if (variable == original_.weak._unsafe_get_target()) {
          present = tensor;
        }
      }
    }
    if (present.defined()) {
      const SampledTimer timer(runtime_);
      runtime_.unpacks.fetch_add(1, std::memory_order_relaxed);
      check_version();
    }
    return present;
  }

  void note_unpacked(const at::Tensor& variable) noexcept {
    const Reader reading = reader();
    if (reading.node == nullptr || context_.is_output) {
      return;
    }
    if (record_ == nullptr) {
      lend(*reading.node, variable);
      return;
    }
    if (!record_->weak.expired()) {
      lend(*reading.node, variable);
    } else if (reading.lets_go) {
      handed_ = variable;
    }
    give(*reading.node, *record_, {variable, original_.weak._unsafe_get_target()},
         /*hold=*/!reading.lets_go || runtime_.residency.shared(*record_));
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

  // Under create_graph no accumulator takes anything, and a second backward pass finds the record
  // by its storage: as for formulas.
  Reader reader() const {
    if (backward_creates_graph()) {
      return {.formula = true};
    }
    if (torch::autograd::get_current_graph_task_id() < 0) {
      return {.formula = !backward_is_running()};
    }
    const Node* const running = torch::autograd::get_current_node().get();
    const Node* const asked = unpacking_node();
    if (asked != nullptr && asked != running) {
      return {.node = running != nullptr ? running : asked};
    }
    if (running == nullptr) {
      return {};
    }
    if (!class_of(*running).of_torch) {
      return {.node = running, .lets_go = !torch::autograd::get_current_graph_task_keep_graph()};
    }
    // A formula names its node for outputs only.
    const bool formula = asked == nullptr || context_.is_output;
    return {.formula = formula, .node = formula ? nullptr : running};
  }

  // A tensor whose storage lives, for a user's node: stock's saved variable would be a second
  // reference to it, so that no accumulator takes it. Of an output stock keeps none either.
  at::Tensor lent(at::Tensor living, const Reader& reader) {
    if (reader.node == nullptr || context_.is_output) {
      return living;
    }
    if (context_.known) {
      return living;  // note_unpacked() comes with what autograd makes of it
    }
    if (requires_grad_) {
      return living.detach().clone();
    }
    lend(*reader.node, living);
    return living;
  }

  // Of an output of its own node there is none: holding it would be a cycle, stock does not either.
  VariablePtr lock_original() const {
    VariablePtr original = context_.is_output ? VariablePtr() : original_.weak.lock();
    return original && original->has_storage() ? std::move(original) : VariablePtr();
  }

  // If the variable's .data was swapped since it was saved, backward sees the new data, as in
  // stock.
  void count_living(const c10::TensorImpl& original) {
    const bool swapped = original.unsafe_storage().unsafeGetStorageImpl() != record_->identity;
    (swapped ? runtime_.swapped : runtime_.live_at_unpack).fetch_add(1, std::memory_order_relaxed);
  }

  void remember_layout(const at::Tensor& tensor) {
    const c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
    requires_grad_ = tensor.requires_grad();
    version_ = impl->version_counter();
    saved_version_ = version_.enabled() ? version_.current_version() : 0;
    if (!decision_->eligible()) {
      return;
    }
    view_ = StridedView(*impl);
    // The grad_fn of a view written to in place may die before us.
    const bool held = context_.known ? !context_.is_inplace_on_view : !tensor.is_view();
    producer_ = held ? decision_->producer : nullptr;
    output_number_ = decision_->output_number;
    creation_ = creation_of(tensor);
  }

  bool tag(const at::Tensor& tensor) {
    c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
    c10::StorageImpl* const storage = impl->unsafe_storage().unsafeGetStorageImpl();
    const Decision& d = *decision_;
    if (!context_.is_output) {
      original_.weak = c10::weak_intrusive_ptr<c10::TensorImpl>(tensor.getIntrusivePtr());
    }
    allocator::Record* const linked = runtime_.residency.with_linked(
        d.block, [&](allocator::Record* present) -> allocator::Record* {
          auto* const known = static_cast<TorchRecord*>(present);
          if (known == nullptr) {
            return make_record(*impl, storage);
          }
          if (known->identity == storage && known->restored == nullptr) {
            const CodecChoice merged = merge(CodecChoice::unpack(known->choice), d.choice);
            known->choice = merged.pack();
            add_ranges(*impl, known->bytes, known->ranges);
            add_variable(*known);
            note_saved(*known, *impl);
            if (saved_version_ != 0) {
              known->note_written();
            }
            runtime_.residency.add_reference(*known);
            return known;
          }
          if (known->restored == d.block && known->is_restored_into(storage)) {
            // Double backward saves what we restored: the payload already stands for it.
            runtime_.residency.add_reference(*known);
            runtime_.reused.fetch_add(1, std::memory_order_relaxed);
            return known;
          }
          return nullptr;
        });
    if (linked == nullptr) {
      return false;
    }
    record_ = static_cast<TorchRecord*>(linked);
    runtime_.packs.fetch_add(1, std::memory_order_relaxed);
    Runtime::note_thread_computes();
    return true;
  }

  // If this is what an activation has made of a tensor that is compressed by now, the same payload
  // will do for both.
  void follow_argument(const c10::StorageImpl* storage) noexcept {
    if (decision_->producer == nullptr || context_.is_output || !version_.enabled() ||
        saved_version_ != 0 || record_->identity != storage) {
      return;
    }
    const MadeBy made = made_by(*decision_->producer);
    if (made.function == compress::Function::kNone || !is_saved_tensor_hooks(made.argument)) {
      return;
    }
    const auto& argument = static_cast<const SavedTensorHooks&>(*made.argument);
    if (argument.record_ != nullptr && argument.record_ != record_ && argument.version_.enabled() &&
        argument.version_.current_version() == argument.saved_version_ &&
        argument.view_.is_whole_in_order(record_->bytes)) {
      const Recipe recipe{made.function, decision_->choice.type};
      runtime_.residency.set_origin(*record_, *argument.record_, recipe.pack());
    }
  }

  // Under the link lock. Of what may stand before a pole it is not known yet if one follows:
  // results that a sigmoid and its like save, arguments of pow, sine, clamp and their like, both
  // factors of h * h.
  void note_saved(TorchRecord& record, const c10::TensorImpl& impl) {
    const bool twice = record.note_saved_after(gradient_edges(), context_.is_output);
    const Decision& d = *decision_;
    if (d.producer == nullptr || d.choice.bits == 0 || d.saver == 0) {
      return;
    }
    if (context_.is_output ? class_of(*d.producer).before_pole == BeforePole::kSavesResult
                           : twice || d.saves_input || pow_is_in_progress()) {
      const std::uint64_t lesson =
          lesson_before_pole({d.producer, d.output_number, d.saver}, impl.sizes());
      if (runtime_.lessons.is_new(lesson,
                                  runtime_.backward_passes.load(std::memory_order_relaxed))) {
        constexpr std::uint64_t kWait = 8;  // nodes: log(1 - (2 s - 1)^2 + e) has six
        record.add_lesson(lesson);
        record.wait_until = runtime_.residency.clock() + kWait;
      }
    }
  }

  TorchRecord* make_record(const c10::TensorImpl& impl, c10::StorageImpl* storage) {
    auto record = std::make_unique<TorchRecord>(storage);
    add_ranges(impl, record->bytes, record->ranges);
    record->choice = decision_->choice.pack();
    record->key.value =
        sensitivity::tensor_key(decision_->family, runtime_.next_ordinal(decision_->family));
    record->nonce = runtime_.next_nonce();
    add_variable(*record);
    note_saved(*record, impl);
    return record.release();
  }

  // Where it is not known whether the variable is an output of the very node, holding it might be a
  // cycle.
  void add_variable(TorchRecord& record) noexcept {
    if (context_.known && !context_.is_output) {
      record.add_variable(original_);
    }
  }

  // Autograd leaves the version check to whoever has hooks; the text is its own.
  void check_version() const {
    if (!version_.enabled()) {
      return;
    }
    const auto current = version_.current_version();
    if (current == saved_version_) {
      return;
    }
    // Stock holds the variable itself unless it is an output of the node that saves it: there the
    // text names the variable's present grad_fn, and always output 0.
    const Node* named = context_.is_inplace_on_view ? unpacking_node() : producer_;
    std::int64_t output = output_number_;
    at::Tensor original;
    if (!context_.is_output) {
      if (auto alive = original_.weak.lock()) {
        original = at::Tensor(std::move(alive));
        named = original.grad_fn().get();
        if (named == nullptr && producer_ != nullptr && context_.known) {
          named = unpacking_node();
          if (named == nullptr) {
            check_not_detached();
          }
        }
      } else if (named != nullptr) {
        check_view(creation_, *named, output);
      }
      output = 0;
    }
    throw_version_error({.dtype = record_ != nullptr ? view_.dtype() : strong_.dtype(),
                         .sizes = record_ != nullptr ? view_.sizes() : strong_.sizes(),
                         .producer = named,
                         .output_number = output,
                         .version = current,
                         .saved_version = saved_version_});
  }

  void learn_consumer() noexcept {
    if (learned_) {
      return;
    }
    learned_ = true;
    try {
      if (const auto node = torch::autograd::get_current_node()) {
        // A lesson under a call site is for every node saved from there, whatever it looks like
        // itself.
        const Needs needs =
            context_.call_site != nullptr ? class_of(*node).as_consumer : needs_of_consumer(*node);
        if (needs != Needs()) {
          runtime_.lessons.learn(decision_->lesson, needs);
        }
      }
    } catch (...) {
    }
  }

  Runtime& runtime_;
  std::optional<Decision> decision_;
  SaveContext context_;
  bool learned_ = false;
  TorchRecord* record_ = nullptr;  // one reference of ours
  at::Tensor strong_;              // ineligible without a construction scope, or not tagged
  SavedVariableSlot original_;
  at::Tensor handed_;  // to the node that owns us: until it lets go of what it saved, as in stock
  c10::VariableVersion version_;
  std::uint32_t saved_version_ = 0;
  bool requires_grad_ = false;
  StridedView view_;
  // Alive as long as the SavedVariable that owns us: it holds its grad_fn, or is held by it.
  const Node* producer_ = nullptr;
  std::int64_t output_number_ = 0;
  torch::autograd::CreationMeta creation_{};
};

}  // namespace

ConstructionScope*& current_construction() noexcept {
  thread_local ConstructionScope* scope = nullptr;
  return scope;
}

std::unique_ptr<torch::autograd::SavedVariableHooks> make_saved_tensor_hooks(Runtime& runtime) {
  const ConstructionScope* const scope = current_construction();
  if (scope == nullptr || scope->variable == nullptr) {
    return runtime.tagging()
               ? std::make_unique<SavedTensorHooks>(runtime, std::nullopt, SaveContext{})
               : nullptr;
  }
  const SampledTimer timer(runtime);
  const at::Tensor& variable = *scope->variable;
  const Decision decision =
      runtime.tagging() ? judge(runtime, variable, scope->context) : Decision{};
  runtime.reasons.add(decision.reason, storage_bytes(variable));
  if (!decision.eligible()) {
    return nullptr;
  }
  return std::make_unique<SavedTensorHooks>(runtime, decision, scope->context);
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
