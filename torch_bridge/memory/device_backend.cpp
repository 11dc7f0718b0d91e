#include "torch_bridge/memory/device_backend.h"

#include <atomic>

#include "torch_bridge/memory/cuda_backend.h"

namespace pleat::bridge {
namespace {

std::atomic<DeviceBackend*> host_backend{nullptr};

}  // namespace

DeviceBackend* backend_of(c10::Device device) noexcept {
  if (device.is_cpu()) {
    return host_backend.load(std::memory_order_acquire);
  }
  return device.is_cuda() ? cuda_backend(device.index()) : nullptr;
}

void set_host_backend(DeviceBackend& backend) noexcept {
  host_backend.store(&backend, std::memory_order_release);
}

}  // namespace pleat::bridge
