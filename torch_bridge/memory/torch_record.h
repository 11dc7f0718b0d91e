// TorchRecord is the record of a torch storage. It tracks whether the storage lives, and the
// storage of its last restore.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>

#include "allocator/lifecycle/record.h"
#include "torch_bridge/core/decision.h"
#include "torch_bridge/core/proof_book.h"
#include "torch_bridge/memory/device_backend.h"
#include "torch_bridge/torch_access/pass_state.h"

namespace pleat::bridge {

using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;

// A saved variable, held weakly by the hook that saved it. Once its .data was swapped, it is held
// strongly: stock holds the variable and reads the new data in backward. `weak` is constant while a
// record lists the slot. Residency's link lock guards the other members.
struct SavedVariableSlot {
  c10::weak_intrusive_ptr<c10::TensorImpl> weak{c10::intrusive_ptr<c10::TensorImpl>()};
  c10::intrusive_ptr<c10::TensorImpl> kept;
  SavedVariableSlot* next = nullptr;
  SavedVariableSlot** link = nullptr;  // the pointer to this slot; null: no record lists it
};

class TorchRecord final : public allocator::Record {
 public:
  // The storage is on the device of `backend`. `save`: its first one's.
  TorchRecord(DeviceBackend& backend, c10::StorageImpl* storage, const bridge::Decision& save);
  ~TorchRecord() override;

  [[nodiscard]] DeviceBackend& backend() const noexcept { return backend_; }

  bool keep_storage() noexcept override;
  std::uint32_t hooks_without_block() noexcept override;

  // Adds and removes the slot of a hook that saved the variable itself, not an output of its own
  // node. Under the link lock.
  void add_variable(SavedVariableSlot& slot) noexcept;
  // Returns the tensor of hold() if no slot is listed now, to be destroyed without the lock.
  [[nodiscard]] at::Tensor remove_variable(SavedVariableSlot& slot) noexcept;

  // True if the listed slots, `slot` among them, have one variable. Stock's saved variables are
  // references to it. Slots of several variables are different: one can belong to the node that
  // made the variable of another, and to hold that would be a cycle. Takes the link lock; any
  // thread.
  [[nodiscard]] bool may_hold(const SavedVariableSlot& slot) const noexcept;
  // Holds the tensor that a reader got in place of that variable until no slot is listed. False,
  // without effect, unless may_hold(). Takes the link lock; any thread.
  [[nodiscard]] bool hold(const SavedVariableSlot& slot, const at::Tensor& tensor) noexcept;
  // The tensor held for the variable of `slot`, or undefined. Takes the link lock; any thread.
  [[nodiscard]] at::Tensor held_for(const SavedVariableSlot& slot) const noexcept;

  // Returns the storage with the saved bytes, and the version counter that all tensors on it share.
  // The storage is that of an earlier call if it lives and was not written to, else a new one. Its
  // bytes are complete for the current stream of the backend's device. Any thread; waits for a
  // running encode. Throws torch's errors: out of memory, or that the only copy of the bytes was
  // written to. `slice`: the caller needs a small part of the bytes, so the storage is worth
  // keeping while many hooks remain, each of which can need another part.
  struct Restored {
    c10::Storage storage;
    c10::VariableVersion version;
  };
  [[nodiscard]] Restored restore(bool slice);
  static constexpr std::uint32_t kManyHooks = 4;
  // Returns the same bytes in a storage that no other reader gets, for a caller that can keep it or
  // write to it unobserved. Streams, threads and errors as for restore(). `last`: the graph is not
  // kept, so there is no later read unless another hook has the record.
  [[nodiscard]] Restored restore_apart(bool last);
  // True if restore() copies nothing: the released block itself has the bytes. Waits for a running
  // encode; any thread.
  [[nodiscard]] bool is_raw() noexcept;

  // True if `storage` is the last restored one, and was not written to since.
  [[nodiscard]] bool is_restored_into(const c10::StorageImpl* storage) const noexcept;

  // Records a save. `edges` counts set_gradient_edge calls of this thread. Equal counts mean one
  // node, because a function sets the edges of its outputs before it saves. Under the link lock.
  void note_saved_after(std::uint64_t edges) noexcept {
    if (std::exchange(saved_after_, edges) == edges) {
      several_of_one_node_.store(true, std::memory_order_relaxed);
    }
  }
  // True if one node can have saved several tensors of this storage. Any thread.
  [[nodiscard]] bool several_of_one_node() const noexcept {
    return several_of_one_node_.load(std::memory_order_relaxed);
  }

  // ---- the noise it can bear: policy/proofs.h ----
  // Adds another save. Under the link lock.
  void add_save(const bridge::Decision& save) noexcept { change(decision_.merged(save)); }
  // Adds an undecided save. Before the storage is released.
  void add_undecided() noexcept { undecided_.fetch_add(1, std::memory_order_relaxed); }
  // Decides one undecided save: it can have the noise of `lossy`. `doubted`: without
  // Treatment::beyond_doubt. Takes the link lock; any thread.
  void settle(const bridge::Decision& lossy, bool doubted) noexcept;
  // Raises the care for a settled save. Takes the link lock; any thread.
  void raise(const bridge::Decision& lossy) noexcept;
  // Makes the record exact. `function`: the reason, which counts the cost. Takes the link lock; any
  // thread.
  void refuse(Exactness why, ProofBook::Function* function = nullptr) noexcept;
  // True if its bytes are being written to a payload, or are there.
  [[nodiscard]] bool is_encoded() const noexcept {
    const allocator::RecordState now = state.load(std::memory_order_relaxed);
    return now == allocator::RecordState::kStoring || now == allocator::RecordState::kPacked ||
           now == allocator::RecordState::kRestored;
  }
  [[nodiscard]] bool awaits_proof() const noexcept {
    return !exact_.load() && undecided_.load() != 0;
  }
  [[nodiscard]] allocator::Hold waits_for() const noexcept override;
  allocator::Record::Decision decide(allocator::Start start) noexcept override;

  // For a trace without coding: its bytes are a function of those of `argument`, whose planned
  // payload would serve both. Before the storage is released.
  void note_planned_argument(TorchRecord& argument) noexcept;

  // ---- the effect of noise on the gradient: measure/probe.h ----
  // The decision, which does not change any more, with the width that its payload turned out to
  // have; empty before an encode began. Waits for a running encode. Throws std::bad_alloc.
  [[nodiscard]] std::optional<bridge::Decision> decided();
  // Sets the noise with which extra passes read it from now on; null: none. While no pass runs.
  void set_disturbance(const allocator::DisturbanceWords* how) noexcept { disturbance_ = how; }
  [[nodiscard]] const allocator::DisturbanceWords* disturbance() const noexcept {
    return disturbance_ != nullptr && in_extra_pass() ? disturbance_ : nullptr;
  }

  // Sets the place of its first save, numbered by Runtime::check; 0: unknown. Under the link lock,
  // before the storage is released.
  void note_place(std::uint32_t place) noexcept { place_ = place; }

  const c10::StorageImpl* const
      identity;  // compare only; `weak` keeps the address from being reused
  WeakStorage weak;

 private:
  [[nodiscard]] bool may_hold_locked(const SavedVariableSlot& slot) const noexcept;
  // True if a restore must return the saved bytes, if both are kept.
  [[nodiscard]] bool reads_original() const noexcept;
  // The bytes that a restore by this thread's pass returns. Under the record's mutex.
  [[nodiscard]] allocator::Reading reading() const noexcept;
  void check_not_lost() const;
  bool restored_may_live() const;
  // Not once an encode began. Under the link lock.
  void change(const bridge::Decision& decision) noexcept {
    if (decision_.when) return;
    decision_ = decision;
    exact_.store(decision.exactness != Exactness::kMayBearNoise);
  }
  struct SpareBlock;
  void note_restored(const c10::Storage& restored);
  c10::Storage restore_locked(allocator::Residency::RecordGuard& guard, allocator::StreamId stream,
                              SpareBlock& spare);
  // Wraps a block; throws the error of `status` if there is none.
  StoragePtr storage_of(allocator::Block* block, allocator::Residency::RestoreStatus status) const;

  DeviceBackend& backend_;
  std::uint64_t saved_after_ = UINT64_MAX;
  bridge::Decision decision_;  // guarded by the link lock
  std::atomic<std::uint32_t> undecided_{0};
  std::atomic<bool> exact_{decision_.exactness != Exactness::kMayBearNoise};
  ProofBook::Function* function_ = nullptr;  // that made it exact; guarded by the link lock
  std::atomic<bool> doubted_{false};
  std::atomic<bool> several_of_one_node_{false};
  std::optional<bridge::Decision> planned_argument_;  // guarded by the link lock
  const allocator::DisturbanceWords* disturbance_ = nullptr;
  std::uint32_t place_ = 0;
  StoragePtr kept_;
  SavedVariableSlot* variables_ = nullptr;
  // Guarded by the link lock, with the saved variable that it stands for (compare only).
  at::Tensor held_;
  const c10::TensorImpl* held_for_ = nullptr;
  // The restored storage while it lives, and the version counter that all tensors on it share. A
  // consumer's write raises the counter. Guarded by mutex.
  std::optional<WeakStorage> restored_storage_;
  std::optional<c10::VariableVersion> restored_version_;
  PassFacts restored_for_;  // of the pass for which it was restored
  std::uint32_t decodes_ = 0;
};

// Drops the restored storages kept for further hooks of their records.
void drop_kept_storages() noexcept;
// Those of one device. False if there was none.
bool drop_kept_storages_of(allocator::DeviceIndex device) noexcept;

}  // namespace pleat::bridge
