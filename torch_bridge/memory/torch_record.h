// The record of a torch storage. Knows whether the storage lives, and what it was last restored
// into.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>

#include "allocator/residency/record.h"
#include "torch_bridge/core/codec_adapter.h"
#include "torch_bridge/core/proof_book.h"
#include "torch_bridge/core/reasons.h"
#include "torch_bridge/core/release_policy.h"
#include "torch_bridge/memory/device_backend.h"
#include "torch_bridge/torch_access/pass_state.h"

namespace pleat::bridge {

using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;

// A saved variable, held weakly by the hook that saved it. It is held strongly once its .data was
// swapped: stock holds the variable and reads the new data in backward. `weak` is constant while a
// record knows the slot. The rest is guarded by Residency's link lock.
struct SavedVariableSlot {
  c10::weak_intrusive_ptr<c10::TensorImpl> weak{c10::intrusive_ptr<c10::TensorImpl>()};
  c10::intrusive_ptr<c10::TensorImpl> kept;
  SavedVariableSlot* next = nullptr;
  SavedVariableSlot** link = nullptr;  // what points to it; null: no record knows of it
};

class TorchRecord final : public allocator::Record {
 public:
  // Of a storage on the device of `backend`.
  TorchRecord(DeviceBackend& backend, c10::StorageImpl* storage);
  ~TorchRecord() override;

  [[nodiscard]] DeviceBackend& backend() const noexcept { return backend_; }

  bool keep_storage() noexcept override;
  std::uint32_t hooks_without_block() noexcept override;

  // Adds and removes the slot of a hook that saved the variable itself, not an output of its own
  // node. Under the link lock.
  void add_variable(SavedVariableSlot& slot) noexcept;
  void remove_variable(SavedVariableSlot& slot) noexcept;

  // Returns the storage with the bytes that were saved, and the version counter that all tensors on
  // it share. The storage is that of an earlier call if it lives and nobody wrote to it, else a new
  // one. Its bytes are complete for the current stream of the backend's device. Any thread; waits
  // for a running encode. Throws torch's errors: out of memory, or that the bytes were written to
  // and exist nowhere else. `slice`: a small part of the bytes is wanted, so the storage is worth
  // keeping while many hooks remain, each of which may want another part.
  struct Restored {
    c10::Storage storage;
    c10::VariableVersion version;
  };
  [[nodiscard]] Restored restore(bool slice);
  static constexpr std::uint32_t kManyHooks = 4;
  // Returns the same bytes in a storage that nobody else is given, for a caller that may keep it or
  // write to it unseen. Streams, threads and errors as for restore(). `last`: the graph is not
  // kept, so nobody asks again unless another hook has the record.
  [[nodiscard]] Restored restore_apart(bool last);

  // True if `storage` is the one that was restored last, and nobody wrote to it since.
  [[nodiscard]] bool is_restored_into(const c10::StorageImpl* storage) const noexcept;

  // Records a save. `edges` counts set_gradient_edge calls of this thread; equal counts mean that
  // one node saved both, because a function sets the edges of its outputs before it saves. Under
  // the link lock.
  void note_saved_after(std::uint64_t edges) noexcept {
    if (std::exchange(saved_after_, edges) == edges) {
      several_of_one_node_.store(true, std::memory_order_relaxed);
    }
  }
  // One node may have saved several tensors of this storage. Any thread.
  [[nodiscard]] bool several_of_one_node() const noexcept {
    return several_of_one_node_.load(std::memory_order_relaxed);
  }

  // Says that somebody had written to the storage before a hook saved it: its bytes are no
  // operator's result any more. Under the link lock.
  void note_written() noexcept { written_ = true; }

  // ---- what noise it may bear: policy/proofs.h ----
  // A save of which it is not decided yet. Before the storage is released.
  void add_undecided() noexcept { undecided_.fetch_add(1, std::memory_order_relaxed); }
  // One of these may have the noise of `lossy`. `doubted`: Treatment::beyond_doubt is not said of
  // it. Takes the link lock; any thread.
  void settle(const CodecChoice& lossy, bool doubted) noexcept;
  // More care for one that was settled. The same.
  void raise(const CodecChoice& lossy) noexcept;
  // No noise at all. `function`: the one that is the reason, where its cost is counted. Any thread.
  void refuse(Exactness why, ProofBook::Function* function = nullptr) noexcept;
  // Its bytes are on their way to a payload, or there.
  [[nodiscard]] bool is_encoded() const noexcept {
    const allocator::RecordState now = state.load(std::memory_order_relaxed);
    return now == allocator::RecordState::kEncoding || now == allocator::RecordState::kPacked ||
           now == allocator::RecordState::kRestored;
  }
  [[nodiscard]] bool awaits_proof() const noexcept override {
    return exactness_.load() == Exactness::kMayBearNoise && undecided_.load() != 0;
  }
  // Its key is to be exact, whatever noise it might bear. Before the storage is released.
  void assign_exact() noexcept { assigned_exact_ = true; }
  Decision decide(allocator::Start start) noexcept override;

  // ---- where nothing is coded: what would be, for a trace ----
  void note_plan(std::size_t payload_bytes) noexcept override;
  // Its bytes are a function of those of `argument`, whose payload would do for both. Before the
  // storage is released.
  void note_planned_argument(TorchRecord& argument) noexcept;

  // ---- what noise does to the gradient: measure/probe.h ----
  // What was decided when the storage was released; nothing before that.
  struct Decided {
    Exactness exactness;
    CodecChoice choice;  // the payload's, or what it would be but for kAssigned

    // Noise may be added to it: its values are kept, and may bear that.
    [[nodiscard]] bool may_be_noisy() const noexcept {
      return (exactness == Exactness::kMayBearNoise || exactness == Exactness::kAssigned) &&
             choice.kept == compress::block::Kept::kValues && choice.bits != 0;
    }
  };
  [[nodiscard]] const std::optional<Decided>& decided() const noexcept { return decided_; }
  // From now on extra passes read it with this noise; null: without. While no pass runs.
  void set_disturbance(const allocator::DisturbanceWords* how) noexcept { disturbance_ = how; }
  [[nodiscard]] const allocator::DisturbanceWords* disturbance() const noexcept override {
    return disturbance_ != nullptr && in_extra_pass() ? disturbance_ : nullptr;
  }
  [[nodiscard]] bool reads_original() const noexcept override;

  // Who has saved it first, as Runtime::check numbers places; 0: not noted. Under the link lock,
  // before the storage is released.
  void note_place(std::uint32_t place) noexcept { place_ = place; }

  const c10::StorageImpl* const
      identity;  // compare only; `weak` keeps the address from being reused
  WeakStorage weak;

 private:
  void check_not_lost() const;
  bool restored_may_live() const;
  struct SpareBlock;
  c10::Storage restore_locked(allocator::Residency::RecordGuard& guard, allocator::StreamId stream,
                              SpareBlock& spare);
  // Wraps a block; throws what `status` says if there is none.
  StoragePtr storage_of(allocator::Block* block, allocator::Residency::RestoreStatus status) const;

  DeviceBackend& backend_;
  std::uint64_t saved_after_ = UINT64_MAX;
  bool written_ = false;
  std::atomic<std::uint32_t> undecided_{0};
  std::atomic<Exactness> exactness_{Exactness::kMayBearNoise};
  std::atomic<bool> doubted_{false};
  std::atomic<ProofBook::Function*> function_{nullptr};
  std::atomic<bool> several_of_one_node_{false};
  bool assigned_exact_ = false;
  std::optional<Decided> decided_;
  std::atomic<bool> would_be_coded_{false};
  std::optional<ReleasedStorage> planned_argument_;  // guarded by the link lock
  bool would_be_recomputed_ = false;
  const allocator::DisturbanceWords* disturbance_ = nullptr;
  std::uint32_t place_ = 0;
  StoragePtr kept_;
  SavedVariableSlot* variables_ = nullptr;
  // The restored storage while it lives, and the version counter that all tensors on it share. A
  // consumer's write shows in the counter. Guarded by mutex.
  std::optional<WeakStorage> restored_storage_;
  std::optional<c10::VariableVersion> restored_version_;
  PassFacts restored_for_;  // of the pass for which it was restored
  std::uint32_t decodes_ = 0;
};

// Lets go of the restored storages kept for further hooks of their records.
void drop_kept_storages() noexcept;

}  // namespace pleat::bridge
