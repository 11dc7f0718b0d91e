#include "torch_bridge/cuda/allocator_in_front.h"

#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <dlfcn.h>

namespace pleat::bridge::cuda {
namespace {

using namespace c10::cuda::CUDACachingAllocator;

std::atomic<AllocatorInFront*> in_front{nullptr};  // leaked: storages are freed until the very end

std::atomic<CreateContextFn> recorder{nullptr};
thread_local int without_context = 0;
// Whether asking for a stack may make the calling thread wait for the interpreter.
bool may_wait_for_interpreter() noexcept {
  static const auto holds_it =
      reinterpret_cast<int (*)()>(::dlsym(RTLD_DEFAULT, "PyGILState_Check"));
  return holds_it != nullptr && holds_it() == 0;
}
std::shared_ptr<c10::GatheredContext> record_context() {
  if (without_context == 0 || !may_wait_for_interpreter()) return recorder.load()();
  FreeListener* const listener = in_front.load()->listener();
  return listener != nullptr ? listener->no_stack() : nullptr;
}

// Functions that torch has added since 2.11 are passed on too: a function that the base class has
// with a default would else be answered by the default, and not by the allocator behind.
template <class Allocator>
constexpr bool kHasCaptureMarks = requires(Allocator& a) {
  a.markCaptureBegin(0);
};
static_assert(kHasCaptureMarks<CUDAAllocator> == PLEAT_CUDA_HAS_CAPTURE_MARKS,
              "torch_bridge/cuda/CMakeLists.txt looks for it in CUDACachingAllocator.h");
template <class Allocator>
constexpr bool kHasOomRejection = requires(Allocator& a) {
  a.allocateWithAddress(0, nullptr);
};
static_assert(kHasOomRejection<CUDAAllocator> == PLEAT_CUDA_HAS_OOM_REJECTION,
              "torch_bridge/cuda/CMakeLists.txt looks for it in CUDACachingAllocator.h");

}  // namespace

AllocatorInFront::WithoutContext::WithoutContext() noexcept { ++without_context; }
AllocatorInFront::WithoutContext::~WithoutContext() { --without_context; }

AllocatorInFront* AllocatorInFront::put_in_force(FreeListener* listener) {
  CUDAAllocator* const behind = c10::cuda::CUDACachingAllocator::allocator.load();
  if (behind == nullptr) {
    return nullptr;
  }
  auto* const ours = new AllocatorInFront(*behind, listener);
  AllocatorInFront* none = nullptr;
  if (!in_front.compare_exchange_strong(none, ours, std::memory_order_release)) {
    delete ours;
    return nullptr;
  }
  c10::cuda::CUDACachingAllocator::allocator.store(ours);
  c10::SetAllocator(c10::DeviceType::CUDA, ours, 255);
  return ours;
}

AllocatorInFront* AllocatorInFront::get() noexcept {
  return in_front.load(std::memory_order_acquire);
}

bool AllocatorInFront::in_force() const noexcept {
  return c10::cuda::CUDACachingAllocator::allocator.load(std::memory_order_relaxed) == this;
}

void AllocatorInFront::free_storage(void* pointer) {
  AllocatorInFront& self = *in_front.load(std::memory_order_acquire);
  self.notes_.freed(pointer);
  if (pointer == nullptr || self.listener_ == nullptr || !self.listener_->keep(pointer)) {
    self.behind_.raw_deleter()(pointer);
  }
}

void AllocatorInFront::free_behind(void* pointer) noexcept { behind_.raw_deleter()(pointer); }

// Memory with a deleter of its own (uncached, imported) is freed by that, unheard.
c10::DataPtr AllocatorInFront::heard(c10::DataPtr data) {
  const c10::DeviceIndex device = data.device().index();
  if (data.get() != nullptr && data.get() == data.get_context() && device >= 0 &&
      data.compare_exchange_deleter(behind_.raw_deleter(), &free_storage)) {
    notes_.allocated(
        data.get(), static_cast<std::size_t>(device),
        {reinterpret_cast<std::uint64_t>(c10::cuda::getCurrentCUDAStream(device).stream())},
        private_pools_.load(std::memory_order_relaxed) != 0);
  }
  return data;
}

// ---- c10::Allocator -----------------------------------------------------------------------------

c10::DataPtr AllocatorInFront::allocate(std::size_t bytes) {
  if (listener_ == nullptr) return heard(behind_.allocate(bytes));
  const c10::DeviceIndex device = c10::cuda::current_device();
  listener_->allocating(device, bytes);
  for (;;) {
    try {
      return heard(behind_.allocate(bytes));
    } catch (const c10::OutOfMemoryError&) {
      if (listener_->make_room(device, bytes)) continue;
      listener_->refused(bytes, device);
      throw;
    }
  }
}

void AllocatorInFront::copy_data(void* to, const void* from, std::size_t bytes) const {
  behind_.copy_data(to, from, bytes);
}

bool AllocatorInFront::is_simple_data_ptr(const c10::DataPtr& data) const {
  return data.get() == data.get_context();
}

// ---- c10::DeviceAllocator -----------------------------------------------------------------------

bool AllocatorInFront::initialized() { return behind_.initialized(); }

void AllocatorInFront::emptyCache(c10::MempoolId_t pool) { behind_.emptyCache(pool); }

// The allocator behind knows its memory by the deleter.
void AllocatorInFront::recordStream(const c10::DataPtr& data, c10::Stream stream) {
  recordStream(data, c10::cuda::CUDAStream(stream));
}

void AllocatorInFront::recordStream(const c10::DataPtr& data, c10::cuda::CUDAStream stream) {
  if (data.get_deleter() != &free_storage) {
    behind_.recordStream(data, stream);
    return;
  }
  notes_.used(data.get(), static_cast<std::size_t>(data.device().index()));
  behind_.recordStream(over_lent(data.get_context(), data.device()).data, stream);
}

c10::CachingDeviceAllocator::DeviceStats AllocatorInFront::getDeviceStats(c10::DeviceIndex device) {
  return behind_.getDeviceStats(device);
}

void AllocatorInFront::resetAccumulatedStats(c10::DeviceIndex device) {
  behind_.resetAccumulatedStats(device);
}

void AllocatorInFront::resetPeakStats(c10::DeviceIndex device) { behind_.resetPeakStats(device); }

std::pair<std::size_t, std::size_t> AllocatorInFront::getMemoryInfo(c10::DeviceIndex device) {
  return behind_.getMemoryInfo(device);
}

// ---- CUDAAllocator ------------------------------------------------------------------------------

void* AllocatorInFront::raw_alloc(std::size_t bytes) { return behind_.raw_alloc(bytes); }

void* AllocatorInFront::raw_alloc_with_stream(std::size_t bytes, cudaStream_t stream) {
  return behind_.raw_alloc_with_stream(bytes, stream);
}

// Of a pointer of ours, too: a storage's memory may be freed through its allocator.
void AllocatorInFront::raw_delete(void* pointer) {
  notes_.freed(pointer);
  if (pointer == nullptr || listener_ == nullptr || !listener_->keep(pointer)) {
    behind_.raw_delete(pointer);
  }
}

void AllocatorInFront::init(int device_count) { behind_.init(device_count); }

double AllocatorInFront::getMemoryFraction(c10::DeviceIndex device) {
  return behind_.getMemoryFraction(device);
}

void AllocatorInFront::setMemoryFraction(double fraction, c10::DeviceIndex device) {
  behind_.setMemoryFraction(fraction, device);
}

std::vector<StreamSegmentSize> AllocatorInFront::getExpandableSegmentSizes(
    c10::DeviceIndex device) {
  return behind_.getExpandableSegmentSizes(device);
}

void AllocatorInFront::enable(bool value) { behind_.enable(value); }

bool AllocatorInFront::isEnabled() const { return behind_.isEnabled(); }

void AllocatorInFront::cacheInfo(c10::DeviceIndex device, std::size_t* largest_block) {
  behind_.cacheInfo(device, largest_block);
}

void* AllocatorInFront::getBaseAllocation(void* pointer, std::size_t* bytes) {
  return behind_.getBaseAllocation(pointer, bytes);
}

SnapshotInfo AllocatorInFront::snapshot(c10::MempoolId_t pool, bool include_traces) {
  return behind_.snapshot(pool, include_traces);
}

void AllocatorInFront::beginAllocateToPool(c10::DeviceIndex device, c10::MempoolId_t pool,
                                           std::function<bool(cudaStream_t)> filter) {
  {
    const std::lock_guard<std::mutex> guard(routed_mutex_);
    routed_.push_back({device, pool, filter});
  }
  private_pools_.fetch_add(1, std::memory_order_relaxed);
  try {
    behind_.beginAllocateToPool(device, pool, std::move(filter));
  } catch (...) {
    end_routing(device, pool);
    throw;
  }
}

void AllocatorInFront::end_routing(c10::DeviceIndex device, c10::MempoolId_t pool) noexcept {
  private_pools_.fetch_sub(1, std::memory_order_relaxed);
  const std::lock_guard<std::mutex> guard(routed_mutex_);
  for (auto at = routed_.rbegin(); at != routed_.rend(); ++at) {
    if (at->device == device && at->pool == pool) {
      routed_.erase(std::next(at).base());
      return;
    }
  }
}

bool AllocatorInFront::is_private(c10::DeviceIndex device, cudaStream_t stream) noexcept {
  const std::lock_guard<std::mutex> guard(routed_mutex_);
  try {
    for (const Routed& routed : routed_) {
      if (routed.device == device && routed.filter(stream)) return true;
    }
  } catch (...) {  // an error of the device's
    return true;
  }
  return false;
}

void AllocatorInFront::endAllocateToPool(c10::DeviceIndex device, c10::MempoolId_t pool) {
  behind_.endAllocateToPool(device, pool);
  end_routing(device, pool);
}

void AllocatorInFront::releasePool(c10::DeviceIndex device, c10::MempoolId_t pool) {
  behind_.releasePool(device, pool);
}

int AllocatorInFront::getPoolUseCount(c10::DeviceIndex device, c10::MempoolId_t pool) {
  return behind_.getPoolUseCount(device, pool);
}

// A pool may have an allocator of its own, which is not ours to stand in front of.
void AllocatorInFront::createOrIncrefPool(c10::DeviceIndex device, c10::MempoolId_t pool,
                                          std::shared_ptr<CUDAAllocator> allocator) {
  behind_.createOrIncrefPool(device, pool, std::move(allocator));
}

void AllocatorInFront::setUseOnOOM(c10::DeviceIndex device, c10::MempoolId_t pool,
                                   bool use_on_oom) {
  behind_.setUseOnOOM(device, pool, use_on_oom);
}

void AllocatorInFront::setNoSplit(c10::DeviceIndex device, c10::MempoolId_t pool) {
  behind_.setNoSplit(device, pool);
}

bool AllocatorInFront::checkPoolLiveAllocations(c10::DeviceIndex device, c10::MempoolId_t pool,
                                                const std::unordered_set<void*>& expected) {
  return behind_.checkPoolLiveAllocations(device, pool, expected);
}

ShareableHandle AllocatorInFront::shareIpcHandle(void* pointer) {
  return behind_.shareIpcHandle(pointer);
}

std::shared_ptr<void> AllocatorInFront::getIpcDevPtr(std::string handle) {
  return behind_.getIpcDevPtr(std::move(handle));
}

bool AllocatorInFront::isHistoryEnabled() { return behind_.isHistoryEnabled(); }

void AllocatorInFront::recordHistory(bool enabled, CreateContextFn context_recorder,
                                     std::size_t most_entries, RecordContext when, bool clear,
                                     const std::vector<std::string>& skip_actions) {
  recorder.store(context_recorder);
  behind_.recordHistory(enabled, context_recorder != nullptr ? &record_context : nullptr,
                        most_entries, when, clear, skip_actions);
}

void AllocatorInFront::recordAnnotation(
    const std::vector<std::pair<std::string, std::string>>& annotation) {
  behind_.recordAnnotation(annotation);
}

void AllocatorInFront::pushCompileContext(std::string& context) {
  behind_.pushCompileContext(context);
}

void AllocatorInFront::popCompileContext() { behind_.popCompileContext(); }

void AllocatorInFront::setUserMetadata(const std::string& metadata) {
  behind_.setUserMetadata(metadata);
}

std::string AllocatorInFront::getUserMetadata() { return behind_.getUserMetadata(); }

void AllocatorInFront::attachOutOfMemoryObserver(OutOfMemoryObserver observer) {
  behind_.attachOutOfMemoryObserver(std::move(observer));
}

void AllocatorInFront::attachAllocatorTraceTracker(AllocatorTraceTracker tracker) {
  behind_.attachAllocatorTraceTracker(std::move(tracker));
}

void AllocatorInFront::enablePeerAccess(c10::DeviceIndex device, c10::DeviceIndex peer) {
  behind_.enablePeerAccess(device, peer);
}

cudaError_t AllocatorInFront::memcpyAsync(void* to, int to_device, const void* from,
                                          int from_device, std::size_t bytes, cudaStream_t stream,
                                          bool peer_to_peer) {
  return behind_.memcpyAsync(to, to_device, from, from_device, bytes, stream, peer_to_peer);
}

std::shared_ptr<AllocatorState> AllocatorInFront::getCheckpointState(c10::DeviceIndex device,
                                                                     c10::MempoolId_t pool) {
  return behind_.getCheckpointState(device, pool);
}

// The blocks that it frees and hands out belong to a private pool.
CheckpointDelta AllocatorInFront::setCheckpointPoolState(c10::DeviceIndex device,
                                                         std::shared_ptr<AllocatorState> state) {
  CheckpointDelta delta = behind_.setCheckpointPoolState(device, std::move(state));
  for (const void* const freed : delta.ptrs_freed) notes_.freed(freed);
  for (c10::DataPtr& data : delta.dataptrs_allocd) {
    if (data.compare_exchange_deleter(behind_.raw_deleter(), &free_storage)) {
      notes_.allocated(data.get(), static_cast<std::size_t>(device), {}, true);
    }
  }
  return delta;
}

std::string AllocatorInFront::name() { return behind_.name(); }

#if PLEAT_CUDA_HAS_CAPTURE_MARKS
void AllocatorInFront::markCaptureBegin(c10::DeviceIndex device) {
  behind_.markCaptureBegin(device);
}

void AllocatorInFront::markCaptureEnd(c10::DeviceIndex device) { behind_.markCaptureEnd(device); }
#endif

#if PLEAT_CUDA_HAS_OOM_REJECTION
std::shared_ptr<c10::GatheredContext> AllocatorInFront::getContextForPointer(const void* pointer) {
  return behind_.getContextForPointer(pointer);
}

bool AllocatorInFront::supportsUserMetadata() { return behind_.supportsUserMetadata(); }

void AllocatorInFront::annotateMemory(const void* pointer, const std::string& metadata) {
  behind_.annotateMemory(pointer, metadata);
}

void AllocatorInFront::attachOomRejectionObserver(OomRejectionObserver observer) {
  behind_.attachOomRejectionObserver(std::move(observer));
}

c10::DataPtr AllocatorInFront::allocateWithAddress(std::size_t bytes, void* address) {
  return heard(behind_.allocateWithAddress(bytes, address));
}
#endif

}  // namespace pleat::bridge::cuda
