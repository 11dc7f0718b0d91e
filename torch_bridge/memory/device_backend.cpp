#include "torch_bridge/memory/device_backend.h"

#include <atomic>

namespace pleat::bridge {
namespace {

std::atomic<DeviceBackend*> host_backend{nullptr};

}  // namespace

DeviceBackend* backend_of(c10::Device device) noexcept {
  return device.is_cpu() ? host_backend.load(std::memory_order_acquire) : nullptr;
}

void set_host_backend(DeviceBackend& backend) noexcept {
  host_backend.store(&backend, std::memory_order_release);
}

}  // namespace pleat::bridge
