#include "torch_bridge/cuda/access.h"

#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/Exception.h>
#include <torch/version.h>

#include <cstring>
#include <exception>

#include "compress/cuda/driver_launcher.h"
#include "torch_bridge/cuda/allocator_in_front.h"
#include "torch_bridge/cuda/device_block_codec.h"

namespace pleat::bridge::cuda {
namespace {

// The driver functions that compress/ launches kernels with. allocator/ does not depend on
// compress/, so the two meet here.
compress::cuda::DriverFunctions functions_of(const allocator::cuda::Driver& driver) noexcept {
  compress::cuda::DriverFunctions functions;
  functions.context_current = driver.context_current;
  functions.context_id = driver.context_id;
  functions.context_device = driver.context_device;
  functions.device_attribute = driver.device_attribute;
  functions.module_load = driver.module_load;
  functions.module_function = driver.module_function;
  functions.active_blocks = driver.active_blocks;
  functions.launch = driver.launch;
  return functions;
}

class AccessOverTorch final : public CudaAccess {
 public:
  explicit AccessOverTorch(AllocatorInFront& in_front) noexcept : in_front_(in_front) {}

  void* allocate(allocator::DeviceIndex device, std::size_t bytes,
                 allocator::StreamId stream) noexcept override {
    const AllocatorInFront::WithoutContext quietly;
    try {
      const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(device.value));
      return in_front_.behind().raw_alloc_with_stream(bytes,
                                                      reinterpret_cast<cudaStream_t>(stream.value));
    } catch (const std::exception&) {  // no memory, or a device that has failed
      return nullptr;
    }
  }

  bool is_private(allocator::DeviceIndex device, allocator::StreamId stream) noexcept override {
    return in_front_.has_private_pool() &&
           in_front_.is_private(static_cast<c10::DeviceIndex>(device.value),
                                reinterpret_cast<cudaStream_t>(stream.value));
  }

  void free(void* pointer) noexcept override {
    const AllocatorInFront::WithoutContext quietly;
    in_front_.free_behind(pointer);
  }

  void note_use(allocator::DeviceIndex device, void* pointer,
                allocator::StreamId stream) noexcept override {
    class Silent final : public c10::WarningHandler {
      void process(const c10::Warning&) override {}
    } silent;  // of a stream that turns out to be the memory's own
    const c10::WarningUtils::WarningHandlerGuard quiet(&silent);
    try {
      const auto index = static_cast<c10::DeviceIndex>(device.value);
      in_front_.behind().recordStream(
          in_front_.over_lent(pointer, c10::Device(c10::kCUDA, index)).data,
          c10::cuda::getStreamFromExternal(reinterpret_cast<cudaStream_t>(stream.value), index));
    } catch (const std::exception&) {  // a device that has failed: the job will find out
    }
  }

  CurrentStream current_stream(c10::DeviceIndex device) const noexcept override {
    const c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream(device);
    const auto handle = reinterpret_cast<std::uint64_t>(stream.stream());
    // The id of an external stream is its address; ids of torch's own streams are small and odd.
    return {{handle}, handle != 0 && static_cast<std::uint64_t>(stream.id()) == handle};
  }

  std::optional<Heard> heard(const c10::DataPtr& data) const noexcept override {
    if (!AllocatorInFront::hears(data)) return std::nullopt;
    const StorageNotes::Note note = in_front_.note_of(data);
    if (note.is_private) return std::nullopt;
    return Heard{note.stream, note.used_elsewhere};
  }

  c10::DataPtr over(void* pointer, c10::DeviceIndex device) const override {
    return in_front_.over(pointer, c10::Device(c10::kCUDA, device));
  }

  void lock_for_fork() noexcept override { in_front_.lock_for_fork(); }
  void unlock_after_fork() noexcept override { in_front_.unlock_after_fork(); }

  bool may_capture() const noexcept override { return in_front_.has_private_pool(); }

  std::unique_ptr<DeviceCodec> make_codec(const allocator::cuda::Driver& driver,
                                          allocator::cuda::DriverLife& life,
                                          c10::DeviceIndex device) const override {
    static auto* const launcher =  // leaked: modules live as long as their contexts
        new compress::cuda::DriverLauncher(functions_of(driver));
    return std::make_unique<DeviceBlockCodec>(*launcher, driver, life, device);
  }

  c10::Allocator* allocator() const noexcept override {
    return c10::cuda::CUDACachingAllocator::get();
  }

  c10::DataPtr allocate_storage(std::size_t bytes, c10::DeviceIndex device) const override {
    const c10::cuda::CUDAGuard guard(device);
    return c10::cuda::CUDACachingAllocator::get()->allocate(bytes);
  }

  void raise_out_of_memory(std::size_t bytes, c10::DeviceIndex device) const override {
    const c10::cuda::CUDAGuard guard(device);
    const c10::DataPtr found = in_front_.behind().allocate(bytes);
  }

 private:
  AllocatorInFront& in_front_;
};

}  // namespace
}  // namespace pleat::bridge::cuda

using namespace pleat::bridge::cuda;

extern "C" __attribute__((visibility("default"))) CudaAccess* pleat_cuda_access(
    unsigned version, const char* torch_version, FreeListener* listener) noexcept {
  if (version != kAccessVersion || std::strcmp(torch_version, TORCH_VERSION) != 0) {
    return nullptr;
  }
  try {
    AllocatorInFront* const in_front = AllocatorInFront::put_in_force(listener);
    return in_front != nullptr ? new AccessOverTorch(*in_front) : nullptr;  // leaked, as ours is
  } catch (const std::exception&) {
    return nullptr;
  }
}
