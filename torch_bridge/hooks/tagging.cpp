#include "torch_bridge/hooks/tagging.h"

#include <memory>

#include "sensitivity/sensitivity.h"
#include "torch_bridge/policy/before_pole.h"
#include "torch_bridge/policy/node_class.h"
#include "torch_bridge/policy/saving_node.h"

namespace pleat::bridge {
namespace {

// Of what may stand before a pole it is not known yet if one follows: results that a sigmoid and
// its like save, arguments of pow, sine, clamp and their like, both factors of h * h. Under the
// link lock.
void note_saved(TorchRecord& record, const Save& save) {
  const bool twice = record.note_saved_after(gradient_edges(), save.context.is_output);
  const Decision& d = save.decision;
  if (d.producer == nullptr || d.choice.bits == 0 || d.saver == 0) {
    return;
  }
  if (save.context.is_output ? class_of(*d.producer).before_pole == BeforePole::kSavesResult
                             : twice || d.saves_input || pow_is_in_progress()) {
    Runtime& runtime = save.runtime;
    const std::uint64_t lesson =
        lesson_before_pole({d.producer, d.output_number, d.saver}, save.tensor.sizes());
    if (runtime.lessons.is_new(lesson, runtime.backward_passes.load(std::memory_order_relaxed))) {
      constexpr std::uint64_t kWait = 8;  // nodes: log(1 - (2 s - 1)^2 + e) has six
      record.add_lesson(lesson);
      record.wait_until = runtime.residency.clock() + kWait;
    }
  }
}

// Where it is not known whether the variable is an output of the very node, holding it might be a
// cycle.
void add_variable(TorchRecord& record, SavedVariableSlot& original,
                  const SaveContext& context) noexcept {
  if (context.known && !context.is_output) {
    record.add_variable(original);
  }
}

std::unique_ptr<TorchRecord> make_record(SavedTensor& saved, const Save& save,
                                         c10::StorageImpl* storage) {
  auto record = std::make_unique<TorchRecord>(storage);
  add_ranges(*save.tensor.unsafeGetTensorImpl(), record->bytes, record->ranges);
  record->choice = save.decision.choice.pack();
  const std::uint64_t family = save.decision.family;
  record->key.value = sensitivity::tensor_key(family, save.runtime.next_ordinal(family));
  record->nonce = save.runtime.next_nonce();
  add_variable(*record, saved.original, save.context);
  note_saved(*record, save);
  return record;
}

}  // namespace

void remember(SavedTensor& saved, const Save& save) {
  const c10::TensorImpl* const impl = save.tensor.unsafeGetTensorImpl();
  saved.requires_grad = save.tensor.requires_grad();
  saved.version = impl->version_counter();
  saved.saved_version = saved.version.enabled() ? saved.version.current_version() : 0;
  if (!save.decision.eligible()) {
    return;
  }
  saved.view = StridedView(*impl);
  // The grad_fn of a view written to in place may die before us.
  const SaveContext& context = save.context;
  const bool held = context.known ? !context.is_inplace_on_view : !save.tensor.is_view();
  saved.producer = held ? save.decision.producer : nullptr;
  saved.output_number = save.decision.output_number;
}

bool tag(SavedTensor& saved, const Save& save) {
  Runtime& runtime = save.runtime;
  const Decision& d = save.decision;
  const c10::TensorImpl& impl = *save.tensor.unsafeGetTensorImpl();
  c10::StorageImpl* const storage = impl.unsafe_storage().unsafeGetStorageImpl();
  if (!save.context.is_output) {
    saved.original.weak = c10::weak_intrusive_ptr<c10::TensorImpl>(save.tensor.getIntrusivePtr());
  }
  allocator::Record* const linked =
      runtime.residency.with_linked(d.block, [&](allocator::Record* present) -> allocator::Record* {
        auto* const known = static_cast<TorchRecord*>(present);
        if (known == nullptr) {
          return make_record(saved, save, storage).release();
        }
        if (known->identity == storage && known->restored == nullptr) {
          const CodecChoice merged = merge(CodecChoice::unpack(known->choice), d.choice);
          known->choice = merged.pack();
          add_ranges(impl, known->bytes, known->ranges);
          add_variable(*known, saved.original, save.context);
          note_saved(*known, save);
          if (saved.saved_version != 0) {
            known->note_written();
          }
          runtime.residency.add_reference(*known);
          return known;
        }
        if (known->restored == d.block && known->is_restored_into(storage)) {
          // Double backward saves what we restored: the payload already stands for it.
          runtime.residency.add_reference(*known);
          runtime.reused.fetch_add(1, std::memory_order_relaxed);
          return known;
        }
        return nullptr;
      });
  if (linked == nullptr) {
    return false;
  }
  saved.record = static_cast<TorchRecord*>(linked);
  runtime.packs.fetch_add(1, std::memory_order_relaxed);
  Runtime::note_thread_computes();
  return true;
}

void follow(Runtime& runtime, const SavedTensor& result, const SavedTensor& argument,
            const Recipe& recipe) noexcept {
  if (argument.record != nullptr && argument.record != result.record &&
      argument.version.enabled() && argument.version.current_version() == argument.saved_version &&
      argument.view.is_whole_in_order(result.record->bytes)) {
    runtime.residency.set_origin(*result.record, *argument.record, recipe.pack());
  }
}

}  // namespace pleat::bridge
