// How the bytes of a saved storage come back: TorchRecord's restores, and the storages that are
// kept for further hooks.
#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <utility>

#include "torch_bridge/core/fork_locks.h"
#include "torch_bridge/core/kept_storages.h"
#include "torch_bridge/core/runtime.h"
#include "torch_bridge/memory/torch_record.h"
#include "torch_bridge/trace/state.h"

namespace pleat::bridge {
namespace {

// Kept storages of each device, separately: threads of two devices run concurrently, and a restore
// on one makes no room on the other.
struct Kept {
  KeptStorages<c10::Storage>& of(allocator::DeviceIndex device) noexcept {
    return storages[static_cast<std::size_t>(device.value - allocator::HeapTable::kHost)];
  }
  void lock_for_fork() noexcept {
    for (auto& of_device : storages) of_device.lock_for_fork();
  }
  void unlock_after_fork() noexcept {
    for (auto& of_device : storages) of_device.unlock_after_fork();
  }
  std::array<KeptStorages<c10::Storage>, allocator::HeapTable::kMostDevices + 1> storages;
  ForkLock fork_lock{ForkPlace::kKeptStorages, *this};
};
// Leaked: used until the process ends. Made when the library is loaded, because the first use can
// be in a forked child.
Kept& kept = *new Kept;

KeptStorages<c10::Storage>& kept_storages(const DeviceBackend& backend) noexcept {
  return kept.of(backend.heap().device());
}

at::ScalarType scalar_type(compress::ElementType type) noexcept {
  switch (type) {
    case compress::ElementType::kBFloat16:
      return at::kBFloat16;
    case compress::ElementType::kFloat16:
      return at::kHalf;
    default:
      return at::kFloat;
  }
}

}  // namespace

// Storages kept for further hooks of the record have no user left.
TorchRecord::~TorchRecord() { kept_storages(backend_).forget(this); }

allocator::Reading TorchRecord::reading() const noexcept {
  const bool recomputed = std::holds_alternative<allocator::Recomputed>(stored);
  const auto& holder = recomputed ? static_cast<const TorchRecord&>(*argument.record) : *this;
  return {holder.disturbance(), reads_original()};
}

bool TorchRecord::reads_original() const noexcept {
  const PassValues values = pass_values();
  return values == PassValues::kOriginal ||
         (values == PassValues::kYardstick && doubted_.load(std::memory_order_relaxed));
}

// A block for a restore, allocated without any lock: if memory is short, waiting records are
// encoded first. Freed if it was not needed.
struct TorchRecord::SpareBlock {
  explicit SpareBlock(DeviceBackend& the_backend) noexcept : backend(the_backend) {}
  ~SpareBlock() {
    if (block != nullptr) backend.heap().release(block);
  }
  SpareBlock(const SpareBlock&) = delete;
  SpareBlock& operator=(const SpareBlock&) = delete;
  // True if the restore is tried again after find(): without a block, or without memory to bring
  // the payload back.
  bool is_needed(allocator::Residency::RestoreStatus status) noexcept {
    needs_room = status == allocator::Residency::RestoreStatus::kOutOfMemory;
    return needs_room || status == allocator::Residency::RestoreStatus::kNeedsBlock;
  }
  void find(std::size_t bytes, allocator::StreamId stream) {
    const bool has_room = !needs_room || backend.heap().make_room(bytes);
    if (block == nullptr && has_room) block = backend.heap().allocate(bytes, stream);
    if (block == nullptr) backend.throw_out_of_memory(bytes, "restoring a saved tensor");
  }

  DeviceBackend& backend;
  allocator::Block* block = nullptr;
  bool needs_room = false;
};

TorchRecord::Restored TorchRecord::restore(bool slice) {
  if (disturbance() != nullptr && is_raw()) {
    return restore_apart(/*last=*/false);  // raw bytes are the record's own
  }
  allocator::Residency& residency = backend_.residency();
  const allocator::StreamId stream = backend_.current_stream();
  Restored restored;
  Runtime::note_thread_computes();
  std::uint32_t decodes = 0;
  bool is_new = false;
  SpareBlock spare(backend_);
  for (bool has_room = false; !restored.storage;) {
    std::optional<WeakStorage> present;
    bool needs_block = false;
    {
      allocator::Residency::RecordGuard guard(residency, *this);  // waits for an encode
      if (restored_may_live() && residency.may_share_restored_locked(guard, *this, stream)) {
        present = *restored_storage_;
        restored.version = *restored_version_;
        residency.share_restored_locked(guard, *this, stream);
      } else if (has_room || state == allocator::RecordState::kHeld ||
                 state == allocator::RecordState::kWaiting) {
        restored.storage = restore_locked(guard, stream, spare);
        needs_block = !restored.storage;
        if (restored.storage) {
          restored.version = *restored_version_;
          ++decodes_;
          is_new = true;
        }
      }
      decodes = decodes_;
    }
    // Locking it can take the interpreter's lock, whose owner can be waiting for the record's.
    if (present) {
      restored.storage = c10::Storage(present->lock());  // null if it was freed just now
    } else if (!restored.storage) {
      if (!has_room) kept_storages(backend_).make_room(this, bytes);
      has_room = true;
    }
    if (needs_block) spare.find(bytes, stream);
  }
  if (is_new) {
    note_restored(restored.storage);
  }
  const std::uint32_t hooks = residency.hooks(*this);
  std::size_t worth = 0;
  if (slice && hooks >= kManyHooks) {
    // When a loop reads several in turn, each would be dropped before it is read again. So each
    // repeated restore doubles a storage's worth.
    constexpr std::uint32_t kMostDoublings = 10;
    worth = bytes << std::min(decodes, kMostDoublings);
  }
  const allocator::StatValues requested =
      backend_.heap().statistics().read(allocator::StatKind::kRequested);
  kept_storages(backend_).keep(
      this, hooks > 1 ? restored.storage : c10::Storage(), bytes, worth,
      {static_cast<std::size_t>(requested.current), static_cast<std::size_t>(requested.peak)});
  return restored;
}

TorchRecord::Restored TorchRecord::restore_apart(bool last) {
  allocator::Residency& residency = backend_.residency();
  const allocator::StreamId stream = backend_.current_stream();
  Restored restored;
  Runtime::note_thread_computes();
  kept_storages(backend_).make_room(this, bytes);
  for (SpareBlock spare(backend_); !restored.storage;) {
    {
      allocator::Residency::RecordGuard guard(residency, *this);
      check_not_lost();
      if (last && state == allocator::RecordState::kHeld && !residency.shared(*this)) {
        restored.storage = restore_locked(guard, stream, spare);  // the raw block itself
        if (restored.storage) restored.version = *restored_version_;
      } else {
        allocator::Residency::RestoreStatus status{};
        allocator::Block* const block =
            residency.copy_locked(guard, *this, stream, reading(), &status, &spare.block);
        if (!spare.is_needed(status)) {
          restored.storage = c10::Storage(storage_of(block, status));
          restored.version = c10::VariableVersion(0);
        }
      }
    }
    if (!restored.storage) spare.find(bytes, stream);
  }
  note_restored(restored.storage);
  return restored;
}

bool TorchRecord::is_raw() noexcept {
  allocator::Residency& residency = backend_.residency();
  allocator::Residency::RecordGuard guard(residency, *this);
  return payload_of(residency.stored_locked(guard, *this)) == nullptr;
}

bool TorchRecord::is_restored_into(const c10::StorageImpl* storage) const noexcept {
  return restored_storage_ && !restored_storage_->expired() &&
         restored_storage_->_unsafe_get_target() == storage && restored_version_ &&
         restored_version_->current_version() == 0;
}

// The only copy of the bytes is a restored storage, and it was written to.
void TorchRecord::check_not_lost() const {
  TORCH_CHECK(payload_of(stored) != nullptr || !restored_version_ ||
                  restored_version_->current_version() == 0,
              "one of the variables needed for gradient computation has been modified by an "
              "inplace operation: a saved tensor was written to after an earlier backward pass "
              "had unpacked it, and is needed again");
}

// True if there is a live restored storage that was not written to.
bool TorchRecord::restored_may_live() const {
  if (!restored_storage_) {
    return false;
  }
  check_not_lost();
  return restored_version_->current_version() == 0 && !restored_storage_->expired() &&
         restored_for_.extra == pass_facts().extra &&
         (block_beside(stored) == nullptr || restored_for_.values == pass_values());
}

// Shows a trace the width of the payload. For the yardstick of a check: takes away the noise that
// larger values in the same group add. No value stays farther from the saved one than half a step
// of a group of its 16 neighbours alone, nor than the noise, in the mean, of a group of Gaussian
// values of its own size: as their range is 5.6 deviations, that is 5.6 / sqrt(12) of the size in
// place of half a range.
void TorchRecord::note_restored(const c10::Storage& restored) {
  if (tracing()) [[unlikely]]
    (void)decided();
  if (pass_values() != PassValues::kYardstick || reads_original() ||
      block_beside(stored) == nullptr) [[likely]] {
    return;
  }
  const std::optional<bridge::Decision> decision = decided();
  if (!decision || !decision->may_be_noisy()) return;
  constexpr double kOfSize = 1.62;
  constexpr std::int64_t kNeighbours = 16, kPiece = 1 << 20;
  const at::NoGradGuard no_grad;
  PassFacts facts = pass_facts();
  facts.values = PassValues::kOriginal;
  const PassFactsScope reads_saved(facts);
  const Restored saved = restore_apart(/*last=*/false);
  const at::ScalarType type = scalar_type(decision->choice.type);
  const auto elements = static_cast<std::int64_t>(bytes / c10::elementSize(type));
  const auto values_of = [&](const c10::Storage& storage) {
    return at::from_blob(storage.mutable_data(), {elements},
                         at::TensorOptions().dtype(type).device(storage.device()));
  };
  const at::Tensor all_noisy = values_of(restored), all_saved = values_of(saved.storage);
  const double steps = (1u << decision->choice.bits) - 1;
  for (std::int64_t begin = 0; begin < elements; begin += kPiece) {
    const std::int64_t size = std::min(kPiece, elements - begin);
    const at::Tensor values = all_noisy.narrow(0, begin, size), noisy = values.to(at::kFloat);
    const at::Tensor exact = all_saved.narrow(0, begin, size).to(at::kFloat);
    const at::Tensor most = exact.abs().mul_(kOfSize / steps);
    if (const std::int64_t groups = size / kNeighbours; groups != 0) {
      const auto by_group = [&](const at::Tensor& all) {
        return all.narrow(0, 0, groups * kNeighbours).view({groups, kNeighbours});
      };
      const auto [low, high] = at::aminmax(by_group(exact), 1, /*keepdim=*/true);
      by_group(most).clamp_max_((high - low).div_(2 * steps));
    }
    const at::Tensor error = noisy - exact;
    values.copy_(at::where(error.abs() > most, exact + error.sgn() * most, noisy));
  }
}

// Null if a spare block is needed.
c10::Storage TorchRecord::restore_locked(allocator::Residency::RecordGuard& guard,
                                         allocator::StreamId stream, SpareBlock& spare) {
  allocator::Residency::RestoreStatus status{};
  allocator::Block* const block =
      backend_.residency().restore_locked(guard, *this, stream, reading(), &status, &spare.block);
  if (spare.is_needed(status)) return {};
  StoragePtr impl = storage_of(block, status);
  restored_storage_ = WeakStorage(impl);
  restored_version_ = c10::VariableVersion(0);
  restored_for_ = pass_facts();
  return c10::Storage(std::move(impl));
}

StoragePtr TorchRecord::storage_of(allocator::Block* block,
                                   allocator::Residency::RestoreStatus status) const {
  if (block == nullptr) {
    TORCH_CHECK(false, "Pleat: a saved tensor of ", bytes, " bytes cannot be restored (record is ",
                allocator::record_state_name(state), ", status ", static_cast<int>(status),
                "); please report this as a bug of Pleat");
  }
  return backend_.wrap(block, bytes);
}

void drop_kept_storages() noexcept {
  for (auto& of_device : kept.storages) of_device.forget_all();
}

bool drop_kept_storages_of(allocator::DeviceIndex device) noexcept {
  return kept.of(device).forget_all();
}

}  // namespace pleat::bridge
