// The record of a storage of torch's: whether it lives, what it was last restored into.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/SmallVector.h>

#include <cstddef>
#include <optional>
#include <utility>

#include "allocator/record.h"
#include "torch_bridge/runtime.h"

namespace pleat::bridge {

using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;
using StoragePtr = c10::intrusive_ptr<c10::StorageImpl>;

class TorchRecord final : public allocator::Record {
 public:
  explicit TorchRecord(c10::StorageImpl* storage);
  ~TorchRecord() override;

  bool storage_alive() const noexcept override { return !weak.expired(); }
  // Also where a saved variable outlives the storage because its .data was swapped: stock holds the
  // variable and reads the new data in backward, so from now on we hold it too.
  bool keep_storage() noexcept override;

  // The variable itself is saved, not an output of its own node. Only inside Residency::with_linked().
  void add_variable(c10::weak_intrusive_ptr<c10::TensorImpl> variable) {
    variables_.push_back({std::move(variable), {}});
  }

  // The storage with the bytes that were saved, and the version counter of all tensors on it: one
  // that an earlier call restored if it lives and nobody wrote to it, else a new one. Any thread;
  // waits for a running encode. Throws torch's errors: out of memory, or written to and not to be
  // had again.
  struct Restored {
    c10::Storage storage;
    c10::VariableVersion version;
  };
  [[nodiscard]] Restored restore(Runtime& runtime);
  // The same bytes in a storage that nobody else is given, for who may keep it or write to it unseen.
  // `last`: this is the record's last use, if no other hook has it.
  [[nodiscard]] Restored restore_apart(Runtime& runtime, bool last);

  // The last storage restored is this one, untouched since.
  [[nodiscard]] bool is_restored_into(const c10::StorageImpl* storage) const noexcept;

  const c10::StorageImpl* const identity;  // compare only; `weak` keeps the address from being reused
  WeakStorage weak;

 private:
  void check_not_lost() const;
  StoragePtr restored_alive();
  c10::Storage restore_locked(Runtime& runtime);
  // Wraps a block; throws what `status` says if there is none.
  StoragePtr storage_of(allocator::Block* block, allocator::Residency::RestoreStatus status) const;

  struct Variable {
    c10::weak_intrusive_ptr<c10::TensorImpl> weak;
    c10::intrusive_ptr<c10::TensorImpl> kept;
  };

  StoragePtr kept_;
  c10::SmallVector<Variable, 1> variables_;  // constant once released, like `ranges`
  // The restored storage while it lives, and the version counter all tensors on it share: a consumer
  // that writes to it is seen there. Guarded by mutex.
  std::optional<WeakStorage> restored_storage_;
  std::optional<c10::VariableVersion> restored_version_;
};

// Adds the byte ranges of a storage of `storage_bytes` that a view on it touches: exact while they
// are few, else the one range from its first to its last byte.
void add_ranges(const c10::TensorImpl& view, std::size_t storage_bytes,
                allocator::ByteRanges& ranges);

// Lets go of the restored storage kept for further hooks of its record.
void drop_recent_storage() noexcept;
void lock_recent_storage_for_fork() noexcept;
void unlock_recent_storage_after_fork() noexcept;

}  // namespace pleat::bridge
