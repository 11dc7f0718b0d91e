#include "torch_bridge/memory/device_backend.h"

#include <atomic>

namespace pleat::bridge {
namespace {

std::atomic<DeviceBackend*> host_backend{nullptr};
std::atomic<FindCudaBackend> of_cuda{nullptr};

}  // namespace

DeviceBackend* backend_of(c10::Device device) noexcept {
  if (device.is_cpu()) {
    return host_backend.load(std::memory_order_acquire);
  }
  const auto find = of_cuda.load(std::memory_order_acquire);
  return find != nullptr && device.is_cuda() ? find(device.index()) : nullptr;
}

void set_cuda_backends(FindCudaBackend find) noexcept {
  of_cuda.store(find, std::memory_order_release);
}

void set_host_backend(DeviceBackend& backend) noexcept {
  host_backend.store(&backend, std::memory_order_release);
}

}  // namespace pleat::bridge
