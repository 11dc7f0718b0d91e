// Entry points of the runtime: devices and errors.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstring>

#include "tests/simulated_cuda/capture.h"
#include "tests/simulated_cuda/context.h"
#include "tests/simulated_cuda/device_facts.h"
#include "tests/simulated_cuda/streams.h"

#undef cudaGetDeviceProperties

using namespace pleat::simulated;

namespace {

cudaError_t done(int error) { return static_cast<cudaError_t>(remember(error)); }
bool is_device(int device) { return device >= 0 && device < simulation().settings.devices; }

}  // namespace

SIMULATED_EXPORT cudaError_t cudaGetDeviceCount(int* count) {
  RUNTIME_ENTRY();
  *count = simulation().settings.devices;
  return done(*count != 0 ? kSuccess : kNoDevice);
}
SIMULATED_EXPORT cudaError_t cudaGetDevice(int* device) {
  RUNTIME_ENTRY();
  *device = current_device();
  return cudaSuccess;
}
SIMULATED_EXPORT cudaError_t cudaSetDevice(int device) {
  RUNTIME_ENTRY();
  if (!is_device(device)) return done(kInvalidDevice);
  set_current(primary_context(device));
  need_context();
  return cudaSuccess;
}
SIMULATED_EXPORT cudaError_t cudaDriverGetVersion(int* version) {
  RUNTIME_ENTRY();
  *version = CUDA_VERSION;
  return cudaSuccess;
}
SIMULATED_EXPORT cudaError_t cudaRuntimeGetVersion(int* version) {
  RUNTIME_ENTRY();
  *version = CUDA_VERSION;
  return cudaSuccess;
}
SIMULATED_EXPORT cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  RUNTIME_ENTRY();
  if (!is_device(device)) return done(kInvalidDevice);
  fill_properties(properties, device, simulation().settings.memory_bytes);
  return cudaSuccess;
}
SIMULATED_EXPORT cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute,
                                                    int device) {
  RUNTIME_ENTRY();
  if (!is_device(device)) return done(kInvalidDevice);
  *value = device_attribute(attribute);
  return cudaSuccess;
}
SIMULATED_EXPORT cudaError_t cudaDeviceGetPCIBusId(char* text, int bytes, int device) {
  RUNTIME_ENTRY();
  if (!is_device(device)) return done(kInvalidDevice);
  std::snprintf(text, static_cast<size_t>(bytes), "0000:%02x:00.0", device + 1);
  return cudaSuccess;
}
SIMULATED_EXPORT cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  RUNTIME_ENTRY();
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = -5;
  return cudaSuccess;
}
SIMULATED_EXPORT cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  RUNTIME_ENTRY();
  if (!is_device(device) || !is_device(peer)) return done(kInvalidDevice);
  *can = device != peer;
  return cudaSuccess;
}
SIMULATED_EXPORT cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
  RUNTIME_ENTRY();
  return done(is_device(peer) ? kSuccess : kInvalidDevice);
}
SIMULATED_EXPORT cudaError_t cudaDeviceSynchronize() {
  RUNTIME_ENTRY();
  need_context();
  if (const int error = forbidden_while_capturing(); error != kSuccess) return done(error);
  synchronize_device(current_device());
  return cudaSuccess;
}
SIMULATED_EXPORT cudaError_t cudaProfilerStart() {
  RUNTIME_ENTRY();
  return cudaSuccess;
}
SIMULATED_EXPORT cudaError_t cudaProfilerStop() {
  RUNTIME_ENTRY();
  return cudaSuccess;
}

// Errors can be queried without a driver.
SIMULATED_EXPORT cudaError_t cudaGetLastError() {
  const auto error = static_cast<cudaError_t>(last_error());
  last_error() = simulation().sticky;
  return error;
}
SIMULATED_EXPORT cudaError_t cudaPeekAtLastError() {
  return static_cast<cudaError_t>(last_error());
}
SIMULATED_EXPORT const char* cudaGetErrorString(cudaError_t error) { return error_text(error); }
SIMULATED_EXPORT const char* cudaGetErrorName(cudaError_t error) { return error_name(error); }

SIMULATED_EXPORT cudaError_t
cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned, unsigned long long,
                                 cudaDriverEntryPointQueryResult* result) {
  RUNTIME_ENTRY();
  *function = driver_function(name);
  if (result != nullptr)
    *result =
        *function != nullptr ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}
SIMULATED_EXPORT cudaError_t cudaGetDriverEntryPoint(const char* name, void** function,
                                                     unsigned long long flags,
                                                     cudaDriverEntryPointQueryResult* result) {
  return cudaGetDriverEntryPointByVersion(name, function, CUDA_VERSION, flags, result);
}
