// What the bridge asks of the device that a tensor lies on. Hooks and policy know no device: they
// find the backend of a tensor's device with backend_of(), and leave a tensor alone whose device
// has none. A record keeps the backend that it was made with, since its tensor may be read while
// another device is the current one.
//
// Threads: every function may be called from any thread, and none calls back.
// Streams: a StreamId names a queue of the backend's own device. Work is queued on the stream that
// the caller names; no function waits for it on the host. A block or storage is handed out for work
// on one stream. Where another stream uses it too, residency sees to the order.
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
#include "allocator/residency/byte_ranges.h"
#include "allocator/residency/residency.h"
#include "compress/cuda/device_sketch.h"
#include "torch_bridge/core/coded_span.h"

namespace pleat::bridge {

using StoragePtr = c10::intrusive_ptr<c10::StorageImpl>;

class DeviceBackend {
 public:
  // `heap` outlives the backend. `autocast`: the dispatch key that autocast gives every tensor of
  // the device.
  DeviceBackend(allocator::Heap& heap, c10::DispatchKey autocast) noexcept
      : heap_(heap), autocast_(autocast) {}
  virtual ~DeviceBackend() = default;
  DeviceBackend(const DeviceBackend&) = delete;
  DeviceBackend& operator=(const DeviceBackend&) = delete;

  // Where the device's blocks come from, and the residency of its records.
  [[nodiscard]] allocator::Heap& heap() const noexcept { return heap_; }
  [[nodiscard]] allocator::Residency& residency() const noexcept { return heap_.residency(); }
  [[nodiscard]] c10::DispatchKey autocast_key() const noexcept { return autocast_; }

  // The block of heap() whose bytes are the storage's. Null if the memory is somebody else's, or if
  // its bytes have to stay where they are: of a graph that is being captured, of a private pool,
  // seen by other processes. The caller keeps the storage alive.
  [[nodiscard]] virtual allocator::Block* block_of(
      const c10::StorageImpl& storage) const noexcept = 0;

  // The stream that operators of this thread use on this device now, whatever device is the
  // thread's current one.
  [[nodiscard]] virtual allocator::StreamId current_stream() const noexcept = 0;

  // The stream that stands for the current one later, when what was saved under it is coded: it
  // lives as long as the process, and comes after all that the current one was given so far. False:
  // nothing may be saved now.
  [[nodiscard]] virtual bool saving_stream(allocator::StreamId* stream) const noexcept = 0;

  // Whether work of the current stream may write over the storage, which nobody else refers to: no
  // other stream uses it.
  [[nodiscard]] virtual bool is_current_streams_alone(
      const c10::StorageImpl& storage) const noexcept = 0;

  // A storage of `bytes` over a block that residency restored or copied out. The storage owns the
  // block, and frees it through Residency::release(). Throws std::bad_alloc, and frees the block
  // then too.
  [[nodiscard]] virtual StoragePtr wrap(allocator::Block* block, std::size_t bytes) const = 0;

  // The bytes of `storage` in `range`, in a storage of their own for work on `stream`, where the
  // copy is queued. `storage` lies on this device, its bytes are complete for `stream`, and it may
  // die at once. Throws the device's error of memory that is not to be had.
  [[nodiscard]] virtual c10::Storage copy(const c10::Storage& storage, allocator::ByteRange range,
                                          allocator::StreamId stream) const = 0;

  // Where the codes of lossy floats stand in a payload on this device; none where the host reads
  // payloads as they are. Throws std::bad_alloc.
  [[nodiscard]] virtual std::vector<CodedSpan> coded_spans(
      const allocator::PayloadView& /*payload*/) const {
    return {};
  }

  // Work of the current stream goes into a graph that is being captured: nobody may wait for it.
  [[nodiscard]] virtual bool is_captured() const noexcept { return false; }

  // Queues sketches of vectors in this device's memory on `stream`. False: the device does not make
  // any, or will not now.
  [[nodiscard]] virtual bool sketch(std::span<const compress::cuda::SketchTask> /*tasks*/,
                                    allocator::StreamId /*stream*/) const noexcept {
    return false;
  }

  // Raises the error that the device's own allocator would raise for `bytes`. `purpose` says behind
  // its text what the bytes were for.
  [[noreturn]] virtual void throw_out_of_memory(std::size_t bytes, const char* purpose) const = 0;

 private:
  allocator::Heap& heap_;
  const c10::DispatchKey autocast_;
};

// The backend of a device, the host's or a CUDA device's; null: tensors there are left alone.
[[nodiscard]] DeviceBackend* backend_of(c10::Device device) noexcept;

// Who finds the backends of CUDA devices; it answers any thread. Once.
using FindCudaBackend = DeviceBackend* (*)(c10::DeviceIndex device) noexcept;
void set_cuda_backends(FindCudaBackend find) noexcept;

// Gives the host its backend, which lives as long as the process. Once, before a tensor is judged.
void set_host_backend(DeviceBackend& backend) noexcept;

}  // namespace pleat::bridge
