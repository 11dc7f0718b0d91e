// Entry points of the driver: memory, mapping and copies.
#include <cuda.h>

#include <cstring>
#include <vector>

#include "tests/simulated_cuda/capture.h"
#include "tests/simulated_cuda/context.h"
#include "tests/simulated_cuda/copies.h"
#include "tests/simulated_cuda/memory.h"

using namespace pleat::simulated;

// For functions that use the current context.
#define CONTEXT_ENTRY() \
  DRIVER_ENTRY();       \
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT

namespace {

CUresult done(int error) { return static_cast<CUresult>(error); }
void* address_of(CUdeviceptr pointer) { return reinterpret_cast<void*>(pointer); }
Physical* of(CUmemGenericAllocationHandle handle) { return reinterpret_cast<Physical*>(handle); }

}  // namespace

SIMULATED_EXPORT CUresult cuMemAlloc(CUdeviceptr* pointer, size_t bytes) {
  CONTEXT_ENTRY();
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (const int error = forbidden_while_capturing(); error != kSuccess) return done(error);
  return done(allocate(current_device(), bytes, reinterpret_cast<void**>(pointer)));
}
SIMULATED_EXPORT CUresult cuMemFree(CUdeviceptr pointer) {
  CONTEXT_ENTRY();
  return done(free_and_wait(address_of(pointer), "cuMemFree"));
}
SIMULATED_EXPORT CUresult cuMemAllocAsync(CUdeviceptr* pointer, size_t bytes, CUstream stream) {
  CONTEXT_ENTRY();
  return done(allocate_on(stream, bytes, reinterpret_cast<void**>(pointer)));
}
SIMULATED_EXPORT CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream) {
  CONTEXT_ENTRY();
  return done(free_on(stream, address_of(pointer), "cuMemFreeAsync"));
}
SIMULATED_EXPORT CUresult cuMemGetInfo(size_t* free_bytes, size_t* total) {
  CONTEXT_ENTRY();
  *total = simulation().settings.memory_bytes;
  *free_bytes = *total - memory_use(current_device()).now;
  return CUDA_SUCCESS;
}
SIMULATED_EXPORT CUresult cuMemHostAlloc(void** address, size_t bytes, unsigned) {
  CONTEXT_ENTRY();
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (const int error = forbidden_while_capturing(); error != kSuccess) return done(error);
  return done(allocate_pinned(bytes, address));
}
SIMULATED_EXPORT CUresult cuMemAllocHost(void** address, size_t bytes) {
  CONTEXT_ENTRY();
  return done(allocate_pinned(bytes, address));
}
SIMULATED_EXPORT CUresult cuMemFreeHost(void* address) {
  CONTEXT_ENTRY();
  return done(free_pinned(address));
}
SIMULATED_EXPORT CUresult cuMemHostRegister(void* address, size_t bytes, unsigned) {
  CONTEXT_ENTRY();
  return done(register_pinned(address, bytes));
}
SIMULATED_EXPORT CUresult cuMemHostUnregister(void* address) {
  CONTEXT_ENTRY();
  return done(unregister_pinned(address));
}
SIMULATED_EXPORT CUresult cuMemHostGetDevicePointer(CUdeviceptr* pointer, void* address, unsigned) {
  CONTEXT_ENTRY();
  *pointer = reinterpret_cast<CUdeviceptr>(address);
  return done(is_pinned(address) ? kSuccess : kInvalidValue);
}
SIMULATED_EXPORT CUresult cuMemGetAddressRange(CUdeviceptr* base, size_t* bytes,
                                               CUdeviceptr pointer) {
  DRIVER_ENTRY();
  const Range* const range = range_of(address_of(pointer));
  if (range == nullptr) return CUDA_ERROR_NOT_FOUND;
  if (base != nullptr) *base = reinterpret_cast<CUdeviceptr>(range->begin);
  if (bytes != nullptr) *bytes = range->bytes;
  return CUDA_SUCCESS;
}
SIMULATED_EXPORT CUresult cuPointerGetAttribute(void* value, CUpointer_attribute attribute,
                                                CUdeviceptr pointer) {
  DRIVER_ENTRY();
  const Range* const range = range_of(address_of(pointer));
  const bool pinned = is_pinned(address_of(pointer));
  if (range == nullptr && !pinned) return CUDA_ERROR_INVALID_VALUE;
  const int device = range != nullptr ? range->device : 0;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *static_cast<int*>(value) = device;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      *static_cast<CUcontext*>(value) = reinterpret_cast<CUcontext>(primary_context(device));
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *static_cast<unsigned*>(value) = range != nullptr ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      *static_cast<CUdeviceptr*>(value) = pointer;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      if (range == nullptr) return CUDA_ERROR_INVALID_VALUE;
      *static_cast<CUdeviceptr*>(value) = reinterpret_cast<CUdeviceptr>(range->begin);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      if (range == nullptr) return CUDA_ERROR_INVALID_VALUE;
      *static_cast<size_t*>(value) = range->bytes;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

// ---- mapping by hand ----

SIMULATED_EXPORT CUresult cuMemGetAllocationGranularity(size_t* granularity,
                                                        const CUmemAllocationProp*,
                                                        CUmemAllocationGranularity_flags) {
  DRIVER_ENTRY();
  *granularity = kGranule;
  return CUDA_SUCCESS;
}
SIMULATED_EXPORT CUresult cuMemAddressReserve(CUdeviceptr* pointer, size_t bytes, size_t,
                                              CUdeviceptr, unsigned long long) {
  DRIVER_ENTRY();
  start();
  return done(reserve_range(bytes, reinterpret_cast<void**>(pointer)));
}
SIMULATED_EXPORT CUresult cuMemAddressFree(CUdeviceptr pointer, size_t bytes) {
  DRIVER_ENTRY();
  return done(unreserve_range(address_of(pointer), bytes));
}
SIMULATED_EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes,
                                      const CUmemAllocationProp* properties, unsigned long long) {
  DRIVER_ENTRY();
  start();
  if (bytes == 0 || bytes % kGranule != 0) return CUDA_ERROR_INVALID_VALUE;
  Physical* const physical = create_physical(properties->location.id, bytes);
  *handle = reinterpret_cast<CUmemGenericAllocationHandle>(physical);
  return done(physical != nullptr ? kSuccess : kOutOfMemory);
}
SIMULATED_EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  DRIVER_ENTRY();
  return done(release_physical(of(handle)) ? kSuccess : kInvalidValue);
}
SIMULATED_EXPORT CUresult cuMemMap(CUdeviceptr pointer, size_t bytes, size_t offset,
                                   CUmemGenericAllocationHandle handle, unsigned long long) {
  DRIVER_ENTRY();
  return done(map(address_of(pointer), bytes, offset, of(handle)));
}
SIMULATED_EXPORT CUresult cuMemUnmap(CUdeviceptr pointer, size_t bytes) {
  DRIVER_ENTRY();
  std::vector<Range> gone;
  const int error = unmap(address_of(pointer), bytes, &gone);
  // Unlike a free, unmapping waits for no stream.
  for (const Range& range : gone)
    simulation().ledger.vanish(simulation().host, "cuMemUnmap", range.begin, range.bytes);
  return done(error);
}
SIMULATED_EXPORT CUresult cuMemSetAccess(CUdeviceptr pointer, size_t bytes, const CUmemAccessDesc*,
                                         size_t) {
  DRIVER_ENTRY();
  return done(reachable(address_of(pointer), bytes) ? kSuccess : kInvalidValue);
}
SIMULATED_EXPORT CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle,
                                                      void* address) {
  DRIVER_ENTRY();
  const Range* const range = range_of(address);
  if (range == nullptr || !range->mapped_by_hand || !retain_physical(range->physical))
    return CUDA_ERROR_INVALID_VALUE;
  *handle = reinterpret_cast<CUmemGenericAllocationHandle>(range->physical);
  return CUDA_SUCCESS;
}
SIMULATED_EXPORT CUresult cuMemGetAllocationPropertiesFromHandle(
    CUmemAllocationProp* properties, CUmemGenericAllocationHandle handle) {
  DRIVER_ENTRY();
  std::memset(properties, 0, sizeof *properties);
  properties->type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties->location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties->location.id = device_of(of(handle));
  return CUDA_SUCCESS;
}
SIMULATED_EXPORT CUresult cuMemExportToShareableHandle(void*, CUmemGenericAllocationHandle,
                                                       CUmemAllocationHandleType,
                                                       unsigned long long) {
  DRIVER_ENTRY();
  return CUDA_ERROR_NOT_SUPPORTED;
}
SIMULATED_EXPORT CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle*, void*,
                                                         CUmemAllocationHandleType) {
  DRIVER_ENTRY();
  return CUDA_ERROR_NOT_SUPPORTED;
}

// ---- copies and fills ----

SIMULATED_EXPORT CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes,
                                        CUstream stream) {
  CONTEXT_ENTRY();
  return done(copy(stream, address_of(to), address_of(from), {bytes, 1, 0, 0}, "cuMemcpyAsync"));
}
SIMULATED_EXPORT CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes,
                                            CUstream stream) {
  CONTEXT_ENTRY();
  return done(
      copy(stream, address_of(to), address_of(from), {bytes, 1, 0, 0}, "cuMemcpyDtoDAsync"));
}
SIMULATED_EXPORT CUresult cuMemcpyDtoHAsync(void* to, CUdeviceptr from, size_t bytes,
                                            CUstream stream) {
  CONTEXT_ENTRY();
  return done(copy(stream, to, address_of(from), {bytes, 1, 0, 0}, "cuMemcpyDtoHAsync"));
}
SIMULATED_EXPORT CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, size_t bytes,
                                            CUstream stream) {
  CONTEXT_ENTRY();
  return done(copy(stream, address_of(to), from, {bytes, 1, 0, 0}, "cuMemcpyHtoDAsync"));
}
SIMULATED_EXPORT CUresult cuMemcpyDtoH(void* to, CUdeviceptr from, size_t bytes) {
  CONTEXT_ENTRY();
  return done(copy_and_wait(to, address_of(from), bytes, "cuMemcpyDtoH"));
}
SIMULATED_EXPORT CUresult cuMemcpyHtoD(CUdeviceptr to, const void* from, size_t bytes) {
  CONTEXT_ENTRY();
  return done(copy_and_wait(address_of(to), from, bytes, "cuMemcpyHtoD"));
}
SIMULATED_EXPORT CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr to, cuuint32_t value,
                                               unsigned flags) {
  CONTEXT_ENTRY();
  if (flags != CU_STREAM_WRITE_VALUE_DEFAULT) return CUDA_ERROR_NOT_SUPPORTED;
  return done(fill(stream, address_of(to), value, 4, 1, "cuStreamWriteValue32"));
}
SIMULATED_EXPORT CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count,
                                          CUstream stream) {
  CONTEXT_ENTRY();
  return done(fill(stream, address_of(to), value, 1, count, "cuMemsetD8Async"));
}
SIMULATED_EXPORT CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count,
                                           CUstream stream) {
  CONTEXT_ENTRY();
  return done(fill(stream, address_of(to), value, 4, count, "cuMemsetD32Async"));
}
SIMULATED_EXPORT CUresult cuMemsetD8(CUdeviceptr to, unsigned char value, size_t count) {
  CONTEXT_ENTRY();
  return done(fill(nullptr, address_of(to), value, 1, count, "cuMemsetD8"));
}
