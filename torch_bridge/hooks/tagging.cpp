#include "torch_bridge/hooks/tagging.h"

#include <memory>

#include "torch_bridge/policy/before_pole.h"
#include "torch_bridge/policy/node_class.h"
#include "torch_bridge/policy/saving_node.h"
#include "torch_bridge/torch_access/recording.h"
#include "torch_bridge/torch_access/version_error.h"

namespace pleat::bridge {
namespace {

// Of what may stand before a pole it is not known yet if one follows: results that a sigmoid and
// its like save, arguments of pow, sine, clamp and their like, both factors of h * h, which is
// saved `twice` by one node.
bool may_stand_before_pole(const Save& save, bool twice) noexcept {
  const Decision& d = save.decision;
  if (d.producer == nullptr || d.choice.bits == 0 || d.saver == 0) {
    return false;
  }
  return save.context.is_output ? class_of(*d.producer).before_pole == BeforePole::kSavesResult
                                : twice || d.saves_input || pow_is_in_progress();
}

// While tensors of its kind are new the record waits a few nodes for its first lesson. The book of
// lessons has a lock of its own, which is not taken under the link lock.
void wait_for_lesson(TorchRecord& record, const Save& save) noexcept {
  constexpr std::uint64_t kWait = 8;  // nodes: log(1 - (2 s - 1)^2 + e) has six
  try {
    Runtime& runtime = save.runtime;
    const Decision& d = save.decision;
    const std::uint64_t name =
        lesson_before_pole({d.producer, d.output_number, d.saver}, save.tensor.sizes());
    if (!runtime.lessons.is_new(name, runtime.backward_passes.load(std::memory_order_relaxed))) {
      return;
    }
    if (const LessonBook::Known* const lesson = runtime.lessons.follow(name)) {
      // The tensor that is being saved holds the block: nothing was released since it was tagged.
      allocator::Residency& residency = d.backend->residency();
      residency.with_linked(d.block, d.backend->current_stream(), [&](allocator::Record* present) {
        if (present == &record) {
          record.add_lesson(*lesson);
          record.wait_until = residency.clock() + kWait;
        }
        return present;
      });
    }
  } catch (...) {  // no memory: it does not wait
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
  auto record = std::make_unique<TorchRecord>(*save.decision.backend, storage);
  add_ranges(*save.tensor.unsafeGetTensorImpl(), record->bytes, record->ranges);
  record->choice = save.decision.choice.pack();
  record->key = save.decision.key;
  record->nonce = save.runtime.next_nonce();
  add_variable(*record, saved.original, save.context);
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
  saved.creation = creation_of(save.tensor);
}

bool tag(SavedTensor& saved, const Save& save) {
  Runtime& runtime = save.runtime;
  const Decision& d = save.decision;
  const c10::TensorImpl& impl = *save.tensor.unsafeGetTensorImpl();
  c10::StorageImpl* const storage = impl.unsafe_storage().unsafeGetStorageImpl();
  if (!save.context.is_output) {
    saved.original.weak = c10::weak_intrusive_ptr<c10::TensorImpl>(save.tensor.getIntrusivePtr());
  }
  bool made = false;
  bool of_original = false;  // the record is of this very storage, not of one that was restored
  bool twice = false;
  allocator::Residency& residency = d.backend->residency();
  allocator::Record* const linked = residency.with_linked(
      d.block, d.backend->current_stream(), [&](allocator::Record* present) -> allocator::Record* {
        auto* const known = static_cast<TorchRecord*>(present);
        if (known == nullptr) {
          TorchRecord* const record = make_record(saved, save, storage).release();
          twice = record->note_saved_after(gradient_edges(), save.context.is_output);
          made = of_original = true;
          return record;
        }
        if (known->identity == storage && known->restored == nullptr) {
          add_ranges(impl, known->bytes, known->ranges);
          const CodecChoice own = d.choice_of_width(runtime.bits.width_of(known->key));
          known->choice = merge(CodecChoice::unpack(known->choice.words), own).pack();
          add_variable(*known, saved.original, save.context);
          twice = known->note_saved_after(gradient_edges(), save.context.is_output);
          of_original = true;
          if (saved.saved_version != 0) {
            known->note_written();
          }
          residency.add_reference(*known);
          return known;
        }
        if (known->restored == d.block && known->is_restored_into(storage)) {
          // Double backward saves what we restored: the payload already stands for it.
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
  if (made) {
    if (KeyBook::Recording* const recording = this_recording(runtime.keys)) {
      recording->take(d.family);
    }
  }
  if (of_original && may_stand_before_pole(save, twice)) {
    wait_for_lesson(*saved.record, save);
  }
  runtime.packs.fetch_add(1, std::memory_order_relaxed);
  Runtime::note_thread_computes();
  return true;
}

void recompute_from(const SavedTensor& result, const SavedTensor& argument,
                    const Recomputed& how) noexcept {
  if (argument.record != nullptr && argument.record != result.record &&
      &argument.record->backend() == &result.record->backend() && argument.version.enabled() &&
      argument.version.current_version() == argument.saved_version &&
      argument.view.is_whole_in_order(result.record->bytes)) {
    result.record->backend().residency().set_argument(*result.record, *argument.record, how.pack());
  }
}

}  // namespace pleat::bridge
