// Entry points of the runtime: memory and copies.
#include <cuda_runtime_api.h>

#include <cstring>

#include "tests/simulated_cuda/capture.h"
#include "tests/simulated_cuda/context.h"
#include "tests/simulated_cuda/copies.h"
#include "tests/simulated_cuda/memory.h"
#include "tests/simulated_cuda/streams.h"

using namespace pleat::simulated;

namespace {

cudaError_t done(int error) { return static_cast<cudaError_t>(remember(error)); }

template <class Handle>
int fill_handle(Handle* handle, const void* what) {
  std::memset(handle, 0, sizeof *handle);
  std::memcpy(handle, &what, sizeof what);
  return kSuccess;
}

}  // namespace

SIMULATED_EXPORT cudaError_t cudaMalloc(void** address, size_t bytes) {
  RUNTIME_ENTRY();
  need_context();
  if (const int error = forbidden_while_capturing(); error != kSuccess) return done(error);
  return done(allocate(current_device(), bytes, address));
}
SIMULATED_EXPORT cudaError_t cudaFree(void* address) {
  RUNTIME_ENTRY();
  need_context();
  return done(free_and_wait(address, "cudaFree"));
}
SIMULATED_EXPORT cudaError_t cudaMallocAsync(void** address, size_t bytes, cudaStream_t stream) {
  RUNTIME_ENTRY();
  need_context();
  return done(allocate_on(stream, bytes, address));
}
SIMULATED_EXPORT cudaError_t cudaMallocFromPoolAsync(void** address, size_t bytes, cudaMemPool_t,
                                                     cudaStream_t stream) {
  RUNTIME_ENTRY();
  need_context();
  return done(allocate_on(stream, bytes, address));
}
SIMULATED_EXPORT cudaError_t cudaFreeAsync(void* address, cudaStream_t stream) {
  RUNTIME_ENTRY();
  need_context();
  return done(free_on(stream, address, "cudaFreeAsync"));
}
SIMULATED_EXPORT cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total) {
  RUNTIME_ENTRY();
  need_context();
  *total = simulation().settings.memory_bytes;
  *free_bytes = *total - memory_use(current_device()).now;
  return cudaSuccess;
}
SIMULATED_EXPORT cudaError_t cudaHostAlloc(void** address, size_t bytes, unsigned) {
  RUNTIME_ENTRY();
  need_context();
  if (const int error = forbidden_while_capturing(); error != kSuccess) return done(error);
  return done(allocate_pinned(bytes, address));
}
SIMULATED_EXPORT cudaError_t cudaMallocHost(void** address, size_t bytes) {
  return cudaHostAlloc(address, bytes, 0);
}
SIMULATED_EXPORT cudaError_t cudaFreeHost(void* address) {
  RUNTIME_ENTRY();
  need_context();
  return done(address == nullptr ? kSuccess : free_pinned(address));
}
SIMULATED_EXPORT cudaError_t cudaHostRegister(void* address, size_t bytes, unsigned) {
  RUNTIME_ENTRY();
  need_context();
  return done(register_pinned(address, bytes));
}
SIMULATED_EXPORT cudaError_t cudaHostUnregister(void* address) {
  RUNTIME_ENTRY();
  return done(unregister_pinned(address));
}
SIMULATED_EXPORT cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned) {
  RUNTIME_ENTRY();
  *device = host;
  return done(is_pinned(host) ? kSuccess : kInvalidValue);
}
SIMULATED_EXPORT cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes,
                                                      const void* address) {
  RUNTIME_ENTRY();
  std::memset(attributes, 0, sizeof *attributes);
  attributes->device = -1;
  attributes->hostPointer = const_cast<void*>(address);
  if (const Range* const range = range_of(address)) {
    attributes->type = cudaMemoryTypeDevice;
    attributes->device = range->device;
    attributes->devicePointer = const_cast<void*>(address);
    attributes->hostPointer = nullptr;
  } else if (is_pinned(address)) {
    attributes->type = cudaMemoryTypeHost;
    attributes->device = 0;
    attributes->devicePointer = const_cast<void*>(address);
  }
  return cudaSuccess;
}

SIMULATED_EXPORT cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  RUNTIME_ENTRY();
  need_context();
  return done(copy_and_wait(to, from, bytes, "cudaMemcpy"));
}
SIMULATED_EXPORT cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes,
                                             cudaMemcpyKind, cudaStream_t stream) {
  RUNTIME_ENTRY();
  need_context();
  return done(copy(stream, to, from, {bytes, 1, 0, 0}, "cudaMemcpyAsync"));
}
SIMULATED_EXPORT cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t bytes,
                                                 cudaStream_t stream) {
  RUNTIME_ENTRY();
  need_context();
  return done(copy(stream, to, from, {bytes, 1, 0, 0}, "cudaMemcpyPeerAsync"));
}
SIMULATED_EXPORT cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from,
                                               size_t from_pitch, size_t width, size_t height,
                                               cudaMemcpyKind, cudaStream_t stream) {
  RUNTIME_ENTRY();
  need_context();
  return done(copy(stream, to, from, {width, height, to_pitch, from_pitch}, "cudaMemcpy2DAsync"));
}
SIMULATED_EXPORT cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  RUNTIME_ENTRY();
  need_context();
  return done(fill(nullptr, to, static_cast<unsigned>(value), 1, bytes, "cudaMemset"));
}
SIMULATED_EXPORT cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes,
                                             cudaStream_t stream) {
  RUNTIME_ENTRY();
  need_context();
  return done(fill(stream, to, static_cast<unsigned>(value), 1, bytes, "cudaMemsetAsync"));
}

// ---- handles for other processes: a process cannot open its own, and no other is simulated ----

SIMULATED_EXPORT cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* address) {
  RUNTIME_ENTRY();
  const Range* const range = range_of(address);
  if (range == nullptr || range->mapped_by_hand) return done(kInvalidValue);
  return done(fill_handle(handle, range->begin));
}
SIMULATED_EXPORT cudaError_t cudaIpcOpenMemHandle(void**, cudaIpcMemHandle_t, unsigned) {
  RUNTIME_ENTRY();
  return done(kInvalidContext);
}
SIMULATED_EXPORT cudaError_t cudaIpcCloseMemHandle(void*) {
  RUNTIME_ENTRY();
  return done(kInvalidValue);  // none is open
}
SIMULATED_EXPORT cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t* handle,
                                                   cudaEvent_t event) {
  RUNTIME_ENTRY();
  if (!is_event(event) || (event->flags & cudaEventInterprocess) == 0) return done(kInvalidHandle);
  return done(fill_handle(handle, event));
}
SIMULATED_EXPORT cudaError_t cudaIpcOpenEventHandle(cudaEvent_t*, cudaIpcEventHandle_t) {
  RUNTIME_ENTRY();
  return done(kInvalidContext);
}

// ---- pools of the driver: one per device, with the device's number ----

SIMULATED_EXPORT cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  RUNTIME_ENTRY();
  *pool = reinterpret_cast<cudaMemPool_t>(primary_context(device));
  return cudaSuccess;
}
// Graphs' allocations are freed when their graph is destroyed.
SIMULATED_EXPORT cudaError_t cudaDeviceGetGraphMemAttribute(int, cudaGraphMemAttributeType,
                                                            void* value) {
  RUNTIME_ENTRY();
  *static_cast<std::uint64_t*>(value) = 0;
  return cudaSuccess;
}
SIMULATED_EXPORT cudaError_t cudaDeviceSetGraphMemAttribute(int, cudaGraphMemAttributeType, void*) {
  RUNTIME_ENTRY();
  return cudaSuccess;
}
SIMULATED_EXPORT cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute,
                                                     void* value) {
  RUNTIME_ENTRY();
  const MemoryUse use = memory_use(reinterpret_cast<Context*>(pool)->device);
  const bool high =
      attribute == cudaMemPoolAttrUsedMemHigh || attribute == cudaMemPoolAttrReservedMemHigh;
  *static_cast<std::uint64_t*>(value) = high ? use.peak : use.now;
  return cudaSuccess;
}
SIMULATED_EXPORT cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) {
  RUNTIME_ENTRY();
  return cudaSuccess;
}
SIMULATED_EXPORT cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t) {
  RUNTIME_ENTRY();
  return cudaSuccess;
}
SIMULATED_EXPORT cudaError_t cudaMemPoolSetAccess(cudaMemPool_t, const cudaMemAccessDesc*, size_t) {
  RUNTIME_ENTRY();
  return cudaSuccess;
}
