// An allocator of CUDA tensors that stands in front of the one in force. It passes everything on,
// and hears when the memory of a storage is freed: that memory it may keep for a while. So
// statistics, snapshots, graphs, pools, IPC and errors are those of the allocator behind it,
// whichever that is.
//
// Threads: any. Called without a lock of the allocator behind it.
#pragma once

#include <c10/cuda/CUDACachingAllocator.h>

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "torch_bridge/cuda/access.h"
#include "torch_bridge/cuda/storage_notes.h"

namespace pleat::bridge::cuda {

using c10::cuda::CUDACachingAllocator::CUDAAllocator;

class AllocatorInFront final : public CUDAAllocator {
 public:
  // Puts an allocator in front of the one in force, for good. Before any CUDA tensor is made, or
  // later: memory that was allocated before has another deleter, and is freed as ever. `listener`
  // may be null. The process has one; nullptr if it has been put there already.
  static AllocatorInFront* put_in_force(FreeListener* listener);
  // The one that stands in front; nullptr: none.
  [[nodiscard]] static AllocatorInFront* get() noexcept;
  // Whether torch still allocates through it: somebody may have put another in force since.
  [[nodiscard]] bool in_force() const noexcept;

  // True of the memory of a storage whose free is heard of. That of private pools (MemPool, a graph
  // that is captured) is among it: torch knows its memory by this deleter.
  [[nodiscard]] static bool hears(const c10::DataPtr& data) noexcept {
    return data.get_deleter() == &free_storage && data.get() == data.get_context();
  }
  // Of memory of which hears() is true.
  [[nodiscard]] StorageNotes::Note note_of(const c10::DataPtr& data) const noexcept {
    return notes_.find(data.get(), static_cast<std::size_t>(data.device().index()));
  }
  // Memory of the allocator behind, for a storage whose free is heard of.
  [[nodiscard]] c10::DataPtr over(void* pointer, c10::Device device) const {
    return {pointer, pointer, &free_storage, device};
  }
  void free_behind(void* pointer) noexcept;
  // Around fork(): the lock of what is known of storages.
  void lock_for_fork() noexcept { notes_.lock_for_fork(); }
  void unlock_after_fork() noexcept { notes_.unlock_after_fork(); }
  // The same memory as the allocator behind knows it, lent for a call: gives nothing up.
  struct Lent {
    c10::DataPtr data;
    ~Lent() { (void)data.release_context(); }
  };
  [[nodiscard]] Lent over_lent(void* pointer, c10::Device device) const {
    return {{pointer, pointer, behind_.raw_deleter(), device}};
  }
  [[nodiscard]] CUDAAllocator& behind() const noexcept { return behind_; }
  [[nodiscard]] FreeListener* listener() const noexcept { return listener_; }
  [[nodiscard]] bool has_private_pool() const noexcept {
    return private_pools_.load(std::memory_order_relaxed) != 0;
  }

  // While the history of memory is recorded, the allocator behind asks for the calling thread's
  // stack, and so may wait for the interpreter. While this lives, a thread that would wait says
  // that it has none, as a thread of autograd's has none in Python: it may hold a lock of ours that
  // the interpreter's owner waits for.
  class WithoutContext {
   public:
    WithoutContext() noexcept;
    ~WithoutContext();
    WithoutContext(const WithoutContext&) = delete;
    WithoutContext& operator=(const WithoutContext&) = delete;
  };

  // ---- c10::Allocator ----
  c10::DataPtr allocate(std::size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override { return &free_storage; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override;
  bool is_simple_data_ptr(const c10::DataPtr& data) const override;

  // ---- c10::DeviceAllocator ----
  bool initialized() override;
  void emptyCache(c10::MempoolId_t pool) override;
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override;
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override;
  void resetAccumulatedStats(c10::DeviceIndex device) override;
  void resetPeakStats(c10::DeviceIndex device) override;
  std::pair<std::size_t, std::size_t> getMemoryInfo(c10::DeviceIndex device) override;

  // ---- CUDAAllocator ----
  void* raw_alloc(std::size_t bytes) override;
  void* raw_alloc_with_stream(std::size_t bytes, cudaStream_t stream) override;
  void raw_delete(void* pointer) override;
  void init(int device_count) override;
  double getMemoryFraction(c10::DeviceIndex device) override;
  void setMemoryFraction(double fraction, c10::DeviceIndex device) override;
  std::vector<c10::cuda::CUDACachingAllocator::StreamSegmentSize> getExpandableSegmentSizes(
      c10::DeviceIndex device) override;
  void enable(bool value) override;
  bool isEnabled() const override;
  void cacheInfo(c10::DeviceIndex device, std::size_t* largest_block) override;
  void* getBaseAllocation(void* pointer, std::size_t* bytes) override;
  void recordStream(const c10::DataPtr& data, c10::cuda::CUDAStream stream) override;
  c10::cuda::CUDACachingAllocator::SnapshotInfo snapshot(c10::MempoolId_t pool,
                                                         bool include_traces) override;
  void beginAllocateToPool(c10::DeviceIndex device, c10::MempoolId_t pool,
                           std::function<bool(cudaStream_t)> filter) override;
  void endAllocateToPool(c10::DeviceIndex device, c10::MempoolId_t pool) override;
  void releasePool(c10::DeviceIndex device, c10::MempoolId_t pool) override;
  int getPoolUseCount(c10::DeviceIndex device, c10::MempoolId_t pool) override;
  void createOrIncrefPool(c10::DeviceIndex device, c10::MempoolId_t pool,
                          std::shared_ptr<CUDAAllocator> allocator) override;
  void setUseOnOOM(c10::DeviceIndex device, c10::MempoolId_t pool, bool use_on_oom) override;
  void setNoSplit(c10::DeviceIndex device, c10::MempoolId_t pool) override;
  bool checkPoolLiveAllocations(c10::DeviceIndex device, c10::MempoolId_t pool,
                                const std::unordered_set<void*>& expected) override;
  c10::cuda::CUDACachingAllocator::ShareableHandle shareIpcHandle(void* pointer) override;
  std::shared_ptr<void> getIpcDevPtr(std::string handle) override;
  bool isHistoryEnabled() override;
  void recordHistory(bool enabled,
                     c10::cuda::CUDACachingAllocator::CreateContextFn context_recorder,
                     std::size_t most_entries, c10::cuda::CUDACachingAllocator::RecordContext when,
                     bool clear, const std::vector<std::string>& skip_actions) override;
  void recordAnnotation(
      const std::vector<std::pair<std::string, std::string>>& annotation) override;
  void pushCompileContext(std::string& context) override;
  void popCompileContext() override;
  void setUserMetadata(const std::string& metadata) override;
  std::string getUserMetadata() override;
  void attachOutOfMemoryObserver(
      c10::cuda::CUDACachingAllocator::OutOfMemoryObserver observer) override;
  void attachAllocatorTraceTracker(
      c10::cuda::CUDACachingAllocator::AllocatorTraceTracker tracker) override;
  void enablePeerAccess(c10::DeviceIndex device, c10::DeviceIndex peer) override;
  cudaError_t memcpyAsync(void* to, int to_device, const void* from, int from_device,
                          std::size_t bytes, cudaStream_t stream, bool peer_to_peer) override;
  std::shared_ptr<c10::cuda::CUDACachingAllocator::AllocatorState> getCheckpointState(
      c10::DeviceIndex device, c10::MempoolId_t pool) override;
  c10::cuda::CUDACachingAllocator::CheckpointDelta setCheckpointPoolState(
      c10::DeviceIndex device,
      std::shared_ptr<c10::cuda::CUDACachingAllocator::AllocatorState> state) override;
  std::string name() override;
#if PLEAT_CUDA_HAS_CAPTURE_MARKS
  void markCaptureBegin(c10::DeviceIndex device) override;
  void markCaptureEnd(c10::DeviceIndex device) override;
#endif
#if PLEAT_CUDA_HAS_OOM_REJECTION
  std::shared_ptr<c10::GatheredContext> getContextForPointer(const void* pointer) override;
  bool supportsUserMetadata() override;
  void annotateMemory(const void* pointer, const std::string& metadata) override;
  void attachOomRejectionObserver(
      c10::cuda::CUDACachingAllocator::OomRejectionObserver observer) override;
  c10::DataPtr allocateWithAddress(std::size_t bytes, void* address) override;
#endif

 private:
  AllocatorInFront(CUDAAllocator& behind, FreeListener* listener) noexcept
      : behind_(behind), listener_(listener) {}

  static void free_storage(void* pointer);
  [[nodiscard]] c10::DataPtr heard(c10::DataPtr data);

  CUDAAllocator& behind_;
  FreeListener* const listener_;
  std::atomic<int> private_pools_{0};  // to which memory of some device goes now

  StorageNotes notes_;
};

}  // namespace pleat::bridge::cuda
