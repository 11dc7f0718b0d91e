// The record of a storage of torch's: whether it lives, what it was last restored into.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>

#include "allocator/residency/record.h"
#include "torch_bridge/core/codec_adapter.h"
#include "torch_bridge/core/lesson_book.h"
#include "torch_bridge/core/release_policy.h"
#include "torch_bridge/memory/device_backend.h"

namespace pleat::bridge {

using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;

// A saved variable, held weakly by the hook that saved it. Once its .data was swapped, strongly:
// stock holds the variable and reads the new data in backward. `weak` is constant while a record
// knows of it, the rest is guarded by Residency's link lock.
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

  // Of a hook that saved the variable itself and not an output of its own node. Under the link
  // lock.
  void add_variable(SavedVariableSlot& slot) noexcept;
  void remove_variable(SavedVariableSlot& slot) noexcept;

  // The storage with the bytes that were saved, and the version counter of all tensors on it: one
  // that an earlier call restored if it lives and nobody wrote to it, else a new one. Any thread;
  // waits for a running encode. Throws torch's errors: out of memory, or written to and not to be
  // had again. `slice`: it is wanted for a small part of its bytes, so that it is worth keeping
  // while many hooks remain, each of which may want another part. The bytes are complete for the
  // current stream of the backend's device.
  struct Restored {
    c10::Storage storage;
    c10::VariableVersion version;
  };
  [[nodiscard]] Restored restore(bool slice);
  static constexpr std::uint32_t kManyHooks = 4;
  // The same bytes in a storage that nobody else is given, for who may keep it or write to it
  // unseen. `last`: the graph is not kept, so that nobody will ask again if no other hook has the
  // record.
  [[nodiscard]] Restored restore_apart(bool last);

  // The last storage restored is this one, untouched since.
  [[nodiscard]] bool is_restored_into(const c10::StorageImpl* storage) const noexcept;

  // A hook has saved a tensor on it, after so many gradient edges of its thread. Under the link
  // lock. A function sets the edges of its outputs and then saves, so that between two of them
  // there is one. True if the same node has saved it twice as its argument, as that of h * h does.
  bool note_saved_after(std::uint64_t edges, bool is_output) noexcept;
  // One node may have saved several tensors of this storage. Any thread.
  [[nodiscard]] bool several_of_one_node() const noexcept {
    return several_of_one_node_.load(std::memory_order_relaxed);
  }

  // A hook has saved it after somebody had written to it: it is nobody's result any more. Under the
  // link lock.
  void note_written() noexcept { written_ = true; }

  // What may be taught of it after it was saved: before_pole.h. Under the link lock.
  void add_lesson(const LessonBook::Known& lesson) noexcept;
  Decision decide(allocator::Start start) noexcept override;

  const c10::StorageImpl* const
      identity;  // compare only; `weak` keeps the address from being reused
  WeakStorage weak;

 private:
  [[nodiscard]] ReleasedStorage released() const noexcept;
  void check_not_lost() const;
  bool restored_may_live() const;
  c10::Storage restore_locked(allocator::Residency::RecordGuard& guard, allocator::StreamId stream);
  // Wraps a block; throws what `status` says if there is none.
  StoragePtr storage_of(allocator::Block* block, allocator::Residency::RestoreStatus status) const;

  DeviceBackend& backend_;
  std::uint64_t saved_after_ = UINT64_MAX;
  bool saved_as_output_ = false;
  bool written_ = false;
  std::array<const LessonBook::Known*, 2> lessons_{};
  std::atomic<bool> several_of_one_node_{false};
  StoragePtr kept_;
  SavedVariableSlot* variables_ = nullptr;
  // The restored storage while it lives, and the version counter all tensors on it share: a
  // consumer that writes to it is seen there. Guarded by mutex.
  std::optional<WeakStorage> restored_storage_;
  std::optional<c10::VariableVersion> restored_version_;
  std::uint32_t decodes_ = 0;
};

// Lets go of the restored storages kept for further hooks of their records.
void drop_kept_storages() noexcept;

}  // namespace pleat::bridge
