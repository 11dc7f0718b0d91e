#include "torch_bridge/hooks/tagging.h"

#include <memory>
#include <string>
#include <utility>

#include "torch_bridge/policy/node_class.h"
#include "torch_bridge/policy/saving_node.h"
#include "torch_bridge/torch_access/python_source.h"
#include "torch_bridge/torch_access/version_error.h"
#include "torch_bridge/trace/state.h"

namespace pleat::bridge {
namespace {

// If the variable can be an output of the saving node, holding it could be a cycle.
void add_variable(TorchRecord& record, SavedVariableSlot& original,
                  const SaveContext& context) noexcept {
  if (context.known && !context.is_output) {
    record.add_variable(original);
  }
}

// The decision that a save alone implies. For a tensor that can be lossy, its claim makes it.
Decision decision_of(const Eligibility& save) noexcept {
  Decision decision;
  decision.choice = compress::block::lossless(save.type);
  if (!save.may_be_lossy()) {
    return decision.with(Why::kExactType, 0);
  }
  if (save.exactness == Exactness::kMayBearNoise) {
    decision.choice.kept = compress::block::Kept::kNothing;
  }
  return decision.exact(save.exactness);
}

std::unique_ptr<TorchRecord> make_record(SavedTensor& saved, const Save& save,
                                         c10::StorageImpl* storage) {
  auto record = std::make_unique<TorchRecord>(*save.eligibility.backend, storage,
                                              decision_of(save.eligibility));
  add_ranges(*save.tensor.unsafeGetTensorImpl(), record->bytes, record->ranges);
  record->key = save.eligibility.key;
  record->nonce = save.runtime.next_nonce();
  add_variable(*record, saved.original, save.context);
  return record;
}

// The claim of a tensor whose noise is undecided; else null.
std::unique_ptr<Claim> make_claim(const SavedTensor& saved, const Save& save, LateLink& link,
                                  const torch::autograd::SavedVariableHooks& hooks) {
  if (!save.eligibility.may_be_lossy() || save.eligibility.exactness != Exactness::kMayBearNoise) {
    return nullptr;
  }
  auto claim = std::make_unique<Claim>();
  claim->shape = SavedShape(*save.tensor.unsafeGetTensorImpl());
  claim->is_output = save.context.is_output;
  claim->output_number = save.eligibility.output_number;
  claim->producer = saved.producer;
  claim->link = &link;
  claim->hooks = &hooks;
  return claim;
}

// The line of the script, and the operator that made the tensor. Takes the interpreter's lock.
std::uint32_t place_of(Runtime& runtime, const Eligibility& saved) noexcept {
  try {
    std::string place = python_line();
    if (place.empty()) {
      place = "unknown line";
    }
    if (saved.producer != nullptr) {
      place += ", result of " + saved.producer->name();
    }
    return runtime.check.place(place);
  } catch (...) {  // memory for the text is short
    return 0;
  }
}

// Called under the link lock.
void note_claim(Claim* claim, TorchRecord& record) noexcept {
  if (claim != nullptr) {
    claim->record = &record;
    record.add_undecided();
  }
}

}  // namespace

void remember(SavedTensor& saved, const Save& save) {
  const c10::TensorImpl* const impl = save.tensor.unsafeGetTensorImpl();
  saved.requires_grad = save.tensor.requires_grad();
  saved.version = impl->version_counter();
  saved.saved_version = saved.version.enabled() ? saved.version.current_version() : 0;
  if (!save.eligibility.eligible()) {
    return;
  }
  saved.view = StridedView(*impl);
  // The grad_fn of a view written to in place can be freed before the hook.
  const SaveContext& context = save.context;
  const bool held = context.known ? !context.is_inplace_on_view : !save.tensor.is_view();
  saved.producer = held ? save.eligibility.producer : nullptr;
  saved.output_number = save.eligibility.output_number;
  saved.creation = creation_of(save.tensor);
}

bool tag(SavedTensor& saved, const Save& save, LateLink& link,
         const torch::autograd::SavedVariableHooks& hooks) {
  Runtime& runtime = save.runtime;
  const Eligibility& d = save.eligibility;
  const c10::TensorImpl& impl = *save.tensor.unsafeGetTensorImpl();
  c10::StorageImpl* const storage = impl.unsafe_storage().unsafeGetStorageImpl();
  if (!save.context.is_output) {
    saved.original.weak = c10::weak_intrusive_ptr<c10::TensorImpl>(save.tensor.getIntrusivePtr());
  }
  const std::uint32_t place = runtime.check.watching() ? place_of(runtime, d) : 0;
  bool of_original = false;  // the record belongs to this storage, not to a restored one
  std::unique_ptr<Claim> claim = make_claim(saved, save, link, hooks);
  allocator::Residency& residency = d.backend->residency();
  allocator::StreamId stream;
  if (!d.backend->saving_stream(&stream)) {
    return false;
  }
  allocator::Record* const linked =
      residency.with_linked(d.block, stream, [&](allocator::Record* present) -> allocator::Record* {
        auto* const known = static_cast<TorchRecord*>(present);
        if (known == nullptr) {
          TorchRecord* const record = make_record(saved, save, storage).release();
          record->note_saved_after(gradient_edges());
          record->note_place(place);
          of_original = true;
          note_claim(claim.get(), *record);
          return record;
        }
        if (known->identity == storage && known->restored == nullptr) {
          add_ranges(impl, known->bytes, known->ranges);
          Decision again = decision_of(d);
          again.written = saved.saved_version != 0;
          known->add_save(again);
          add_variable(*known, saved.original, save.context);
          known->note_saved_after(gradient_edges());
          of_original = true;
          note_claim(claim.get(), *known);
          residency.add_reference(*known);
          return known;
        }
        if (known->restored == d.block && known->is_restored_into(storage)) {
          // Double backward saves a restored storage: its payload already exists.
          residency.add_reference(*known);
          runtime.reused.fetch_add(1, std::memory_order_relaxed);
          return known;
        }
        return nullptr;
      });
  if (linked == nullptr) {
    return false;
  }
  saved.record = static_cast<TorchRecord*>(linked);
  if (of_original && claim != nullptr) {
    saved.claim = claim.release();
    const BitsByKey::Entry asked = runtime.bits.entry_of(saved.record->key);
    saved.claim->lossy = Decision::ask(d.type, asked.why, asked.width);
    if (save.context.known) {
      add_claim(runtime, *saved.claim, saved_by_function(save.context.call_site));
    } else {
      add_unplaced_claim(runtime, *saved.claim, *d.producer);
    }
  }
  runtime.packs.fetch_add(1, std::memory_order_relaxed);
  Runtime::note_thread_computes();
  return true;
}

void untag(SavedTensor& saved) noexcept {
  if (saved.claim != nullptr) {
    drop_claim(*std::exchange(saved.claim, nullptr));
  }
  if (TorchRecord* const record = std::exchange(saved.record, nullptr)) {
    at::Tensor held;  // destroyed without the lock
    record->backend().residency().drop(record,
                                       [&] { held = record->remove_variable(saved.original); });
  }
}

void recompute_from(const SavedTensor& result, const SavedTensor& argument,
                    const Recomputed& how) noexcept {
  if (argument.record != nullptr && argument.record != result.record &&
      &argument.record->backend() == &result.record->backend() && argument.version.enabled() &&
      argument.version.current_version() == argument.saved_version &&
      argument.view.is_whole_in_order(result.record->bytes)) {
    if (tracing()) [[unlikely]]
      result.record->note_planned_argument(*argument.record);
    result.record->backend().residency().set_argument(*result.record, *argument.record, how.pack());
  }
}

}  // namespace pleat::bridge
