#include "torch_bridge/memory/device_backend.h"

#include <atomic>

namespace pleat::bridge {
namespace {

// Constant once the installation has set them.
struct Backends {
  std::atomic<DeviceBackend*> host{nullptr};
  std::atomic<FindCudaBackend> find_cuda{nullptr};
  void* cuda_devices = nullptr;  // set before find_cuda
};
constinit Backends backends;

}  // namespace

DeviceBackend* backend_of(c10::Device device) noexcept {
  if (device.is_cpu()) {
    return backends.host.load(std::memory_order_acquire);
  }
  const auto find = backends.find_cuda.load(std::memory_order_acquire);
  return find != nullptr && device.is_cuda() ? find(backends.cuda_devices, device.index())
                                             : nullptr;
}

void set_cuda_backends(FindCudaBackend find, void* devices) noexcept {
  backends.cuda_devices = devices;
  backends.find_cuda.store(find, std::memory_order_release);
}

void set_host_backend(DeviceBackend& backend) noexcept {
  backends.host.store(&backend, std::memory_order_release);
}

}  // namespace pleat::bridge
