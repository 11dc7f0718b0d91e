#include "torch_bridge/memory/torch_record.h"

#include <c10/util/SmallVector.h>

#include <mutex>
#include <utility>

#include "torch_bridge/core/runtime.h"
#include "torch_bridge/trace/state.h"
#include "torch_bridge/trace/trace.h"

namespace pleat::bridge {

TorchRecord::TorchRecord(DeviceBackend& backend, c10::StorageImpl* storage,
                         const bridge::Decision& save)
    : identity(storage),
      weak(StoragePtr::reclaim_copy(storage)),
      backend_(backend),
      decision_(save) {
  bytes = storage->nbytes();
}

// Locking a weak reference can take the interpreter's lock, and dropping a strong one can free a
// block: neither under a lock of Pleat's.
bool TorchRecord::keep_storage() noexcept {
  struct Living {
    const SavedVariableSlot* slot;  // compare only
    c10::weak_intrusive_ptr<c10::TensorImpl> weak;
    c10::intrusive_ptr<c10::TensorImpl> strong;
  };
  c10::SmallVector<Living, 2> living;
  allocator::Residency& residency = backend_.residency();
  residency.under_link_lock([&] {
    for (const SavedVariableSlot* slot = variables_; slot != nullptr; slot = slot->next) {
      if (!slot->weak.expired()) {
        living.push_back({slot, slot->weak, {}});
      }
    }
  });
  if (living.empty() && weak.expired()) {
    return false;  // the usual case
  }
  kept_ = weak.lock();
  for (Living& variable : living) {
    variable.strong = variable.weak.lock();
  }
  residency.under_link_lock([&] {
    for (SavedVariableSlot* slot = variables_; slot != nullptr; slot = slot->next) {
      for (Living& variable : living) {
        if (variable.slot == slot && variable.strong && !slot->kept) {
          slot->kept = std::move(variable.strong);
        }
      }
    }
  });
  return true;  // the rest of `living` is destroyed without the lock
}

std::uint32_t TorchRecord::hooks_without_block() noexcept {
  if (kept_) {
    return kEveryHook;
  }
  std::uint32_t kept = 0;
  for (const SavedVariableSlot* slot = variables_; slot != nullptr; slot = slot->next) {
    kept += slot->kept ? 1 : 0;
  }
  return kept;
}

void TorchRecord::add_variable(SavedVariableSlot& slot) noexcept {
  slot.next = variables_;
  slot.link = &variables_;
  if (slot.next != nullptr) {
    slot.next->link = &slot.next;
  }
  variables_ = &slot;
}

at::Tensor TorchRecord::remove_variable(SavedVariableSlot& slot) noexcept {
  if (slot.link != nullptr) {
    *slot.link = slot.next;
    if (slot.next != nullptr) {
      slot.next->link = slot.link;
    }
    slot.link = nullptr;
  }
  return variables_ == nullptr ? std::move(held_) : at::Tensor();
}

bool TorchRecord::may_hold_locked(const SavedVariableSlot& slot) const noexcept {
  const c10::TensorImpl* const variable = slot.weak._unsafe_get_target();
  if (slot.link == nullptr || (held_.defined() && held_for_ != variable)) {
    return false;
  }
  for (const SavedVariableSlot* one = variables_; one != nullptr; one = one->next) {
    if (one->weak._unsafe_get_target() != variable) {
      return false;
    }
  }
  return true;
}

bool TorchRecord::may_hold(const SavedVariableSlot& slot) const noexcept {
  bool may = false;
  backend_.residency().under_link_lock([&] { may = may_hold_locked(slot); });
  return may;
}

bool TorchRecord::hold(const SavedVariableSlot& slot, const at::Tensor& tensor) noexcept {
  bool holds = false;
  backend_.residency().under_link_lock([&] {
    if (!held_.defined() && may_hold_locked(slot)) {
      held_ = tensor;
      held_for_ = slot.weak._unsafe_get_target();
    }
    holds = held_.is_same(tensor);
  });
  return holds;
}

at::Tensor TorchRecord::held_for(const SavedVariableSlot& slot) const noexcept {
  at::Tensor held;
  backend_.residency().under_link_lock([&] {
    if (held_for_ == slot.weak._unsafe_get_target()) {
      held = held_;
    }
  });
  return held;
}

void TorchRecord::raise(const bridge::Decision& lossy) noexcept {
  backend_.residency().under_link_lock([&] { add_save(lossy); });
}

void TorchRecord::settle(const bridge::Decision& lossy, bool doubted) noexcept {
  raise(lossy);
  if (doubted) {
    doubted_.store(true, std::memory_order_relaxed);
  }
  undecided_.fetch_sub(1);
}

void TorchRecord::refuse(Exactness why, ProofBook::Function* function) noexcept {
  backend_.residency().under_link_lock([&] {
    if (decision_.when || exact_.load()) return;
    function_ = function;
    change(decision_.exact(why));
  });
}

allocator::Record::Decision TorchRecord::decide(allocator::Start start) noexcept {
  backend_.residency().under_link_lock([&] {
    const bridge::Decision* const of_argument =
        argument.record != nullptr ? &static_cast<TorchRecord*>(argument.record)->decision_
        : planned_argument_        ? &*planned_argument_
                                   : nullptr;
    decision_.whole = ranges.is_all_of(bytes);
    change(decision_.released(start, undecided_.load() == 0, of_argument));
  });
  // No other thread changes it before the encode is over.
  if (Runtime* const runtime = Runtime::get(); runtime != nullptr) {
    runtime->exactness.add(decision_.exactness, bytes);
    runtime->check.add_exactness(decision_.exactness, place_, bytes);
    if (tracing()) [[unlikely]]
      trace_decided(*this, backend_.heap().device().value, decision_);
  }
  if (function_ != nullptr) {
    (decision_.exactness == Exactness::kFunction ? function_->saved_bytes : function_->behind_bytes)
        .fetch_add(bytes, std::memory_order_relaxed);
  }
  return {decision_.stored().pack(), decision_.may_be_recomputed, decision_.tier};
}

std::optional<bridge::Decision> TorchRecord::decided() {
  const bool on_device = backend_.heap().device().value != allocator::HeapTable::kHost;
  std::optional<compress::block::BlockForm> form_of_values;
  {
    allocator::Residency::RecordGuard guard(backend_.residency(), *this);
    const auto* const own =
        std::get_if<allocator::Payload>(&backend_.residency().stored_locked(guard, *this));
    if (own != nullptr && !on_device) {
      form_of_values = compress::block::BlockForm::unpack(own->form.words);
    } else if (own != nullptr) {
      const std::vector<CodedSpan> spans = backend_.coded_spans(
          {nullptr, own->bytes, own->form, own->ranges->data(), own->ranges->size()});
      if (!spans.empty()) form_of_values = spans.front().form;
    }
  }
  std::optional<bridge::Decision> decided;
  bool is_news = false;
  backend_.residency().under_link_lock([&] {
    if (!decision_.when) return;
    const std::size_t steps = decision_.trail().size();
    if (form_of_values) decision_ = decision_.encoded(form_of_values->bits, on_device);
    is_news = decision_.trail().size() != steps;
    decided = decision_;
  });
  if (is_news && tracing()) [[unlikely]]
    trace_decided(*this, backend_.heap().device().value, *decided);
  return decided;
}

allocator::Hold TorchRecord::waits_for() const noexcept {
  const Runtime* const runtime = Runtime::get();
  if (runtime != nullptr && runtime->waits_for_forward_end.load(std::memory_order_relaxed)) {
    return allocator::Hold::kForwardEnd;
  }
  return awaits_proof() ? allocator::Hold::kProof : allocator::Hold::kNone;
}

void TorchRecord::note_planned_argument(TorchRecord& argument) noexcept {
  if (argument.bytes != bytes) return;
  allocator::Residency& residency = backend_.residency();
  {
    allocator::Residency::RecordGuard guard(residency, argument);
    const auto* const raw = std::get_if<allocator::Raw>(&argument.stored);
    if (raw == nullptr || raw->planned_bytes == 0) return;
  }
  residency.under_link_lock([&] {
    if (!planned_argument_) planned_argument_ = argument.decision_;
  });
}

}  // namespace pleat::bridge
