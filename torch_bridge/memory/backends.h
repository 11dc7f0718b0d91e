// The backends of the host and of CUDA devices. A CUDA device gets its backend when its first
// tensor is judged; until then Pleat makes no CUDA call.
#pragma once

#include <string>

#include "torch_bridge/core/runtime.h"
#include "torch_bridge/memory/device_backend.h"

namespace pleat::bridge {

// The backend of the host: blocks of Pleat's pool under the allocator of CPU tensors. Its work is
// complete when a call returns, on its only stream.
class HostBackend final : public DeviceBackend {
 public:
  explicit HostBackend(Runtime& runtime) noexcept
      : DeviceBackend(runtime.host.heap(), c10::DispatchKey::AutocastCPU), pool_(runtime.pool) {}

  allocator::Block* block_of(const c10::StorageImpl& storage) const noexcept override;
  bool is_current_streams_alone(const c10::StorageImpl& /*storage*/) const noexcept override {
    return true;
  }
  allocator::StreamId current_stream() const noexcept override { return {}; }
  bool saving_stream(allocator::StreamId* stream) const noexcept override {
    *stream = {};
    return true;
  }
  StoragePtr wrap(allocator::Block* block, std::size_t bytes) const override;
  c10::Storage copy(const c10::Storage& storage, allocator::ByteRange range,
                    allocator::StreamId stream) const override;
  [[noreturn]] void throw_out_of_memory(std::size_t bytes, const char* purpose) const override;

 private:
  const allocator::Pool& pool_;
};

// If this torch has CUDA, opens the CUDA library next to the bridge, and puts its allocator in
// front of torch's. Once, while Pleat is installed. `why`: one line for a person if CUDA tensors
// are left to stock although torch has CUDA; empty otherwise.
void open_cuda(Runtime& runtime, std::string& why);

}  // namespace pleat::bridge
