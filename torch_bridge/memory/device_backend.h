// DeviceBackend is the bridge's interface to the device of a tensor. Hooks and policy do not depend
// on the device: they call backend_of(), and leave a tensor alone if its device has no backend. A
// record keeps its backend, because its tensor can be read while another device is the current one.
//
// Threads: any thread can call every function, and none calls back.
// Streams: a StreamId names a queue of the backend's own device. Work is queued on the given
// stream; no function waits for it on the host. A block or storage is returned for work on one
// stream. If another stream uses it too, residency orders the streams.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/DispatchKey.h>
#include <c10/core/Storage.h>
#include <c10/core/StorageImpl.h>

#include <cstddef>
#include <span>
#include <vector>

#include "allocator/blocks/block.h"
#include "allocator/heap.h"
#include "allocator/ids.h"
#include "allocator/lifecycle/residency.h"
#include "allocator/store/byte_ranges.h"
#include "compress/cuda/device_sketch.h"
#include "torch_bridge/core/device_facts.h"

namespace pleat::bridge {

using StoragePtr = c10::intrusive_ptr<c10::StorageImpl>;

class DeviceBackend {
 public:
  // `heap` outlives the backend. `autocast`: autocast's dispatch key for tensors of the device.
  DeviceBackend(allocator::Heap& heap, c10::DispatchKey autocast) noexcept
      : heap_(heap), autocast_(autocast) {}
  virtual ~DeviceBackend() = default;
  DeviceBackend(const DeviceBackend&) = delete;
  DeviceBackend& operator=(const DeviceBackend&) = delete;

  // The source of the device's blocks, and the residency of its records.
  [[nodiscard]] allocator::Heap& heap() const noexcept { return heap_; }
  [[nodiscard]] allocator::Residency& residency() const noexcept { return heap_.residency(); }
  [[nodiscard]] c10::DispatchKey autocast_key() const noexcept { return autocast_; }

  // The block of heap() with the storage's bytes. Null if another allocator owns the memory, or if
  // the bytes must not move: memory of a graph that is being captured, of a private pool, shared
  // with other processes. The caller keeps the storage alive.
  [[nodiscard]] virtual allocator::Block* block_of(
      const c10::StorageImpl& storage) const noexcept = 0;

  // The stream that operators of this thread use on this device now, whatever the thread's current
  // device is.
  [[nodiscard]] virtual allocator::StreamId current_stream() const noexcept = 0;

  // The stream that later codes saves of the current one. It lives as long as the process, and
  // comes after all work queued on the current one so far. False: no tensor may be saved now.
  [[nodiscard]] virtual bool saving_stream(allocator::StreamId* stream) const noexcept = 0;

  // Whether work of the current stream can write over the storage, which has no other reference: no
  // other stream uses it.
  [[nodiscard]] virtual bool is_current_streams_alone(
      const c10::StorageImpl& storage) const noexcept = 0;

  // A storage of `bytes` over a block that residency restored or copied. The storage owns the block
  // and frees it through Residency::release(). Throws std::bad_alloc and frees the block then.
  [[nodiscard]] virtual StoragePtr wrap(allocator::Block* block, std::size_t bytes) const = 0;

  // The bytes of `storage` in `range`, in a storage of their own for work on `stream`, where the
  // copy is queued. `storage` is on this device, its bytes are complete for `stream`, and it can be
  // freed at once. Throws the device's out-of-memory error.
  [[nodiscard]] virtual c10::Storage copy(const c10::Storage& storage, allocator::ByteRange range,
                                          allocator::StreamId stream) const = 0;

  // The positions of the codes of lossy floats in a payload on this device; empty if the host reads
  // payloads directly. Throws std::bad_alloc.
  [[nodiscard]] virtual std::vector<CodedSpan> coded_spans(
      const allocator::PayloadView& /*payload*/) const {
    return {};
  }

  // True if work of the current stream enters a graph under capture: no thread may wait for it.
  [[nodiscard]] virtual bool is_captured() const noexcept { return false; }

  // Queues sketches of vectors in this device's memory on `stream`. False: not possible (now).
  [[nodiscard]] virtual bool sketch(std::span<const compress::cuda::SketchTask> /*tasks*/,
                                    allocator::StreamId /*stream*/) const noexcept {
    return false;
  }

  // Raises the error that the device's own allocator would raise for `bytes`. `purpose` is appended
  // to its text.
  [[noreturn]] virtual void throw_out_of_memory(std::size_t bytes, const char* purpose) const = 0;

 private:
  allocator::Heap& heap_;
  const c10::DispatchKey autocast_;
};

// The backend of a device, the host's or a CUDA device's; null: tensors there are left alone.
[[nodiscard]] DeviceBackend* backend_of(c10::Device device) noexcept;

// Sets the function that finds the backends of CUDA devices, from any thread. Once.
using FindCudaBackend = DeviceBackend* (*)(void* devices, c10::DeviceIndex device) noexcept;
void set_cuda_backends(FindCudaBackend find, void* devices) noexcept;

// Gives the host its backend, which lives as long as the process. Once, before a tensor is judged.
void set_host_backend(DeviceBackend& backend) noexcept;

}  // namespace pleat::bridge
