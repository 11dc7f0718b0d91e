#include "torch_bridge/cuda/access.h"

#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/version.h>

#include <cstring>
#include <exception>

#include "torch_bridge/cuda/allocator_in_front.h"

namespace pleat::bridge::cuda {
namespace {

class AccessOverTorch final : public CudaAccess {
 public:
  explicit AccessOverTorch(AllocatorInFront& in_front) noexcept : in_front_(in_front) {}

  void* allocate(allocator::DeviceIndex device, std::size_t bytes,
                 allocator::StreamId stream) noexcept override {
    try {
      const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(device.value));
      return in_front_.behind().raw_alloc_with_stream(bytes,
                                                      reinterpret_cast<cudaStream_t>(stream.value));
    } catch (const std::exception&) {  // no memory, or a device that has failed
      return nullptr;
    }
  }

  void free(void* pointer) noexcept override { in_front_.free_behind(pointer); }

  void note_use(allocator::DeviceIndex device, void* pointer,
                allocator::StreamId stream) noexcept override {
    try {
      const auto index = static_cast<c10::DeviceIndex>(device.value);
      in_front_.behind().recordStream(
          in_front_.over_lent(pointer, c10::Device(c10::kCUDA, index)).data,
          c10::cuda::getStreamFromExternal(reinterpret_cast<cudaStream_t>(stream.value), index));
    } catch (const std::exception&) {  // a device that has failed: the job will find out
    }
  }

  allocator::StreamId current_stream(c10::DeviceIndex device) const noexcept override {
    return {reinterpret_cast<std::uint64_t>(c10::cuda::getCurrentCUDAStream(device).stream())};
  }

  bool hears(const c10::DataPtr& data) const noexcept override {
    return AllocatorInFront::hears(data);
  }

  c10::DataPtr over(void* pointer, c10::DeviceIndex device) const override {
    return in_front_.over(pointer, c10::Device(c10::kCUDA, device));
  }

  c10::Allocator* allocator() const noexcept override {
    return c10::cuda::CUDACachingAllocator::get();
  }

  c10::DataPtr allocate_storage(std::size_t bytes, c10::DeviceIndex device) const override {
    const c10::cuda::CUDAGuard guard(device);
    return c10::cuda::CUDACachingAllocator::get()->allocate(bytes);
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
