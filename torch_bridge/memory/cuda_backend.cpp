#include "torch_bridge/memory/backends.h"

#include <dlfcn.h>
#include <torch/version.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "allocator/cuda/driver.h"
#include "allocator/cuda/memory_in_front.h"
#include "allocator/cuda/stream_events.h"
#include "torch_bridge/core/code_pages.h"
#include "torch_bridge/cuda/access.h"
#include "torch_bridge/memory/torch_record.h"
#include "torch_bridge/torch_access/no_stack.h"
#include "torch_bridge/trace/out_of_memory_report.h"
#include "torch_bridge/trace/trace.h"

namespace pleat::bridge {
namespace {

using allocator::cuda::BlockTable;
using allocator::cuda::MemoryInFront;

class CudaDevices;

class CudaBackend final : public DeviceBackend {
 public:
  // Around fork(): residency's locks, then that of its events. A child only frees.
  void lock_for_fork() noexcept {
    parts_->heap.residency().lock_for_fork();
    parts_->order.lock_for_fork();
    parts_->codec->lock_for_fork();
  }
  void unlock_after_fork(allocator::ForkSide side) noexcept {
    parts_->codec->unlock_after_fork();
    parts_->order.unlock_after_fork();
    parts_->heap.residency().unlock_after_fork(side);
  }

  CudaBackend(cuda::CudaAccess& access, BlockTable& blocks, const allocator::cuda::Driver& driver,
              allocator::cuda::DriverLife& life, c10::DeviceIndex device,
              const allocator::ResidencyOptions& options)
      : CudaBackend(access, device,
                    std::make_unique<Parts>(access, blocks, driver, life, device, options)) {}

  [[nodiscard]] cuda::DeviceCodec& codec() const noexcept { return *parts_->codec; }

  allocator::Block* block_of(const c10::StorageImpl& storage) const noexcept override {
    const at::DataPtr& data = storage.data_ptr();
    const std::optional<cuda::CudaAccess::Heard> heard = access_.heard(data);
    if (!heard.has_value()) return nullptr;
    if (is_captured()) return nullptr;
    return parts_->memory.adopt(data.get(), storage.nbytes(), heard->stream);
  }

  bool is_current_streams_alone(const c10::StorageImpl& storage) const noexcept override {
    const at::DataPtr& data = storage.data_ptr();
    const std::optional<cuda::CudaAccess::Heard> heard = access_.heard(data);
    if (!heard.has_value() || heard->used_elsewhere) return false;
    const allocator::Block* const block = parts_->memory.find(data.get());  // a restored storage
    return (block != nullptr ? block->stream : heard->stream) == current_stream();
  }

  allocator::StreamId current_stream() const noexcept override {
    const cuda::CurrentStream current = access_.current_stream(device_);
    if (current.foreign) [[unlikely]]
      (void)parts_->order.note_foreign(current.stream);
    return current.stream;
  }

  bool saving_stream(allocator::StreamId* stream) const noexcept override {
    const cuda::CurrentStream current = access_.current_stream(device_);
    *stream = current.stream;
    return !current.foreign || (parts_->order.note_foreign(current.stream) &&
                                parts_->order.stand_in_for(current.stream, stream));
  }

  StoragePtr wrap(allocator::Block* block, std::size_t bytes) const override {
    return c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                                 access_.over(block->begin, device_),
                                                 access_.allocator(), /*resizable=*/true);
  }

  c10::Storage copy(const c10::Storage& storage, allocator::ByteRange range,
                    allocator::StreamId stream) const override {
    const std::size_t bytes = range.end - range.begin;
    c10::Storage copy(c10::Storage::use_byte_size_t(), bytes,
                      access_.allocate_storage(bytes, device_), access_.allocator(),
                      /*resizable=*/true);
    parts_->memory.copy(copy.mutable_data(), static_cast<const char*>(storage.data()) + range.begin,
                        bytes, stream);
    return copy;
  }

  std::vector<CodedSpan> coded_spans(const allocator::PayloadView& payload) const override {
    return parts_->codec->coded_spans(payload);
  }

  bool is_captured() const noexcept override {
    return access_.may_capture() && parts_->order.is_captured(current_stream());
  }

  bool sketch(std::span<const compress::cuda::SketchTask> tasks,
              allocator::StreamId stream) const noexcept override {
    return parts_->codec->sketch(tasks, stream);
  }

  void throw_out_of_memory(std::size_t bytes, const char* purpose) const override {
    report_out_of_memory(bytes, device_);
    access_.raise_out_of_memory(bytes, device_);
    TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory. Tried to allocate ", bytes,
                     " bytes (Pleat: ", purpose, ")");
  }

 private:
  struct Parts {
    Parts(cuda::CudaAccess& access, BlockTable& blocks, const allocator::cuda::Driver& driver,
          allocator::cuda::DriverLife& life, c10::DeviceIndex device,
          const allocator::ResidencyOptions& options)
        : memory(allocator::DeviceIndex{device}, access, blocks, driver, life),
          order(driver, life, device),
          codec(access.make_codec(driver, life, device)),
          heap(memory, order, *codec, options, kArena) {}
    // Among chunks of 2, 8 and 32 MiB, those of 8 left the fewest bytes of torch's pool unused.
    static constexpr allocator::PayloadArena::Options kArena{
        .chunk_bytes = std::size_t{128} << 10, .most_chunk_bytes = std::size_t{8} << 20};
    MemoryInFront memory;
    allocator::cuda::StreamEvents order;
    const std::unique_ptr<cuda::DeviceCodec> codec;
    allocator::Heap heap;
  };
  CudaBackend(cuda::CudaAccess& access, c10::DeviceIndex device, std::unique_ptr<Parts> parts)
      : DeviceBackend(parts->heap, c10::DispatchKey::AutocastCUDA),
        access_(access),
        device_(device),
        parts_(std::move(parts)) {}

  cuda::CudaAccess& access_;
  const c10::DeviceIndex device_;
  const std::unique_ptr<Parts> parts_;
};

// Leaked: storages are freed until the very end of the process.
class CudaDevices final : public cuda::FreeListener {
 public:
  explicit CudaDevices(Runtime& runtime) noexcept : runtime_(runtime) {}

  // Around fork(), while no backend can be made, so that no other thread holds their locks.
  void lock_for_fork() noexcept {
    for_each_backend([](CudaBackend& backend) { backend.lock_for_fork(); });
    blocks_.lock_for_fork();
    if (access_ != nullptr) access_->lock_for_fork();
  }
  void unlock_after_fork(allocator::ForkSide side) noexcept {
    if (access_ != nullptr) access_->unlock_after_fork();
    blocks_.unlock_after_fork();
    for_each_backend([side](CudaBackend& backend) { backend.unlock_after_fork(side); });
    if (side == allocator::ForkSide::kChild) {
      life_.end();  // a child has no device
    }
  }

  [[nodiscard]] allocator::cuda::Driver& driver() noexcept { return driver_; }
  void set_access(cuda::CudaAccess* access) noexcept { access_ = access; }

  bool keep(void* pointer) noexcept override {
    const BlockTable::Found found = blocks_.find(pointer);
    if (found.block == nullptr) [[likely]]
      return false;
    allocator::Heap* const heap = heap_of(found.memory->events().device().value);
    if (heap == nullptr) return false;
    heap->release(found.block);
    return true;
  }

  void allocating(std::int32_t device, std::size_t /*bytes*/) noexcept override {
    if (allocator::Heap* const heap = heap_of(device)) heap->residency().advance();
  }

  bool make_room(std::int32_t device, std::size_t bytes) noexcept override {
    allocator::Heap* const heap = heap_of(device);
    return heap != nullptr && heap->make_room(bytes);
  }

  void refused(std::size_t bytes, std::int32_t device) noexcept override {
    report_out_of_memory(bytes, device);
  }

  std::shared_ptr<c10::GatheredContext> no_stack() override { return bridge::no_stack(); }

  DeviceBackend* backend(c10::DeviceIndex device) noexcept {
    if (device < 0 || static_cast<std::size_t>(device) >= backends_.size()) return nullptr;
    std::atomic<CudaBackend*>& slot = backends_[static_cast<std::size_t>(device)];
    DeviceBackend* const present = slot.load(std::memory_order_acquire);
    return present != nullptr ? present : make(device, slot);
  }

 private:
  [[nodiscard]] allocator::Heap* heap_of(std::int32_t device) const noexcept {
    return runtime_.heaps.at(allocator::DeviceIndex{device});
  }

  template <class Visit>
  void for_each_backend(Visit&& visit) noexcept {
    const std::size_t most = most_.load(std::memory_order_relaxed);
    for (std::size_t i = 0; i < most; ++i) {
      if (CudaBackend* const backend = backends_[i].load(std::memory_order_acquire))
        visit(*backend);
    }
  }

  DeviceBackend* make(c10::DeviceIndex device, std::atomic<CudaBackend*>& slot) noexcept {
    const std::lock_guard<std::mutex> guard(mutex_);
    if (DeviceBackend* const present = slot.load(std::memory_order_acquire)) return present;
    const auto at = static_cast<std::size_t>(device);
    if (access_ == nullptr || !life_.may_call() || left_alone_[at]) return nullptr;
    const allocator::ResidencyOptions options = runtime_.residency_options();
    // The set-up of a device is not allowed while a graph is being captured.
    const bool codes = options.form != allocator::StoreForm::kRaw;
    if (codes && access_->may_capture()) return nullptr;
    left_alone_[at] = true;
    try {
      auto backend =
          std::make_unique<CudaBackend>(*access_, blocks_, driver_, life_, device, options);
      std::string why;
      using Opened = cuda::DeviceCodec::Opened;
      const Opened opened =
          codes ? backend->codec().open(backend->current_stream(), why) : Opened::kYes;
      left_alone_[at] = opened != Opened::kNotYet;
      if (opened == Opened::kNever) {
        std::fprintf(stderr, "pleat: tensors on cuda:%d are left to stock: %s\n",
                     static_cast<int>(device), why.c_str());
      }
      if (opened != Opened::kYes) return nullptr;
      auto facts = std::make_unique<DeviceFacts>("cuda:" + std::to_string(device), backend->heap(),
                                                 backend->codec().counts());
      backend->heap().set_caches(&drop_kept_storages_of);
      if (!runtime_.heaps.add(backend->heap())) return nullptr;
      trace_heap(backend->heap());
      runtime_.devices.add(*facts.release());  // leaked, like the backend
      slot.store(backend.get(), std::memory_order_release);
      most_.store(std::max(most_.load(std::memory_order_relaxed), at + 1));
      return backend.release();
    } catch (const std::exception&) {
      return nullptr;
    }
  }

  Runtime& runtime_;
  allocator::cuda::Driver driver_;
  allocator::cuda::DriverLife life_;
  BlockTable blocks_;
  cuda::CudaAccess* access_ = nullptr;  // constant after open_cuda()
  std::mutex mutex_;                    // backends are made one at a time
  std::array<bool, allocator::HeapTable::kMostDevices> left_alone_{};  // or being tried
  std::array<std::atomic<CudaBackend*>, allocator::HeapTable::kMostDevices> backends_{};
  std::atomic<std::size_t> most_{0};  // all backends are among the first `most_`
  ForkLock making_{ForkPlace::kHeap, mutex_};
  ForkLock fork_lock_{ForkPlace::kHeap, *this};
};

// The name for "libpleat_bridge_torch2.11.so" is "libpleat_cuda_torch2.11.so" in the same folder.
std::string library_beside_the_bridge() {
  std::string path = path_of_this_library();
  constexpr std::string_view kBridge = "pleat_bridge_";
  const std::size_t at = path.rfind(kBridge);
  return at == std::string::npos ? std::string() : path.replace(at, kBridge.size(), "pleat_cuda_");
}

}  // namespace

void open_cuda(Runtime& runtime, std::string& why) {
  if (::dlopen("libc10_cuda.so", RTLD_LAZY | RTLD_NOLOAD) == nullptr) {
    return;  // this torch has no CUDA, or has not loaded it
  }
  const std::string path = library_beside_the_bridge();
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    why = "CUDA tensors are left to stock: " + std::string(::dlerror());
    return;
  }
  const auto open = reinterpret_cast<cuda::OpenAccess>(::dlsym(library, "pleat_cuda_access"));
  auto* const found = new CudaDevices(runtime);
  std::string missing;
  if (!found->driver().find("libcuda.so.1", missing)) {
    if (missing != "libcuda.so.1") {  // else there is no driver, and no CUDA tensor
      why = "CUDA tensors are left to stock: the driver has no " + missing;
    }
    delete found;
    return;
  }
  cuda::CudaAccess* const access =
      open != nullptr ? open(cuda::kAccessVersion, TORCH_VERSION, found) : nullptr;
  if (access == nullptr) {
    why = "CUDA tensors are left to stock: " + path + " is of another build";
    delete found;
    return;
  }
  found->set_access(access);
  const FindCudaBackend find = [](void* devices, c10::DeviceIndex device) noexcept {
    return static_cast<CudaDevices*>(devices)->backend(device);
  };
  set_cuda_backends(find, found);
}

}  // namespace pleat::bridge
