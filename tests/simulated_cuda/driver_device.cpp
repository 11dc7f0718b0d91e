// Entry points of the driver: devices, contexts, modules and launches.
#include <cuda.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <set>

#include "tests/simulated_cuda/capture.h"
#include "tests/simulated_cuda/context.h"
#include "tests/simulated_cuda/device_facts.h"
#include "tests/simulated_cuda/kernels.h"
#include "tests/simulated_cuda/memory.h"

using namespace pleat::simulated;

namespace {

CUresult done(int error) { return static_cast<CUresult>(error); }
bool is_device(int device) { return device >= 0 && device < simulation().settings.devices; }
Context* of(CUcontext context) { return reinterpret_cast<Context*>(context); }
CUcontext handle(Context* context) { return reinterpret_cast<CUcontext>(context); }

struct Module {
  Context* context;
};
std::set<CUmodule>& modules() {
  static auto* const all = new std::set<CUmodule>;
  return *all;
}

int load_module(CUmodule* module) {
  if (current_context() == nullptr) return kInvalidContext;
  if (const int error = forbidden_while_capturing(); error != kSuccess) return error;
  need_context();
  *module = reinterpret_cast<CUmodule>(new Module{current_context()});
  modules().insert(*module);
  return kSuccess;
}

}  // namespace

SIMULATED_EXPORT CUresult cuInit(unsigned) {
  DRIVER_ENTRY();
  return done(simulation().settings.devices != 0 ? kSuccess : kNoDevice);
}
SIMULATED_EXPORT CUresult cuDriverGetVersion(int* version) {
  DRIVER_ENTRY();
  *version = CUDA_VERSION;
  return CUDA_SUCCESS;
}
SIMULATED_EXPORT CUresult cuGetErrorString(CUresult error, const char** text) {
  *text = error_text(error);
  return CUDA_SUCCESS;
}
SIMULATED_EXPORT CUresult cuGetErrorName(CUresult error, const char** name) {
  *name = error_name(error);
  return CUDA_SUCCESS;
}
SIMULATED_EXPORT CUresult cuGetProcAddress(const char* name, void** function, int, cuuint64_t,
                                           CUdriverProcAddressQueryResult* result) {
  DRIVER_ENTRY();
  *function = driver_function(name);
  if (result != nullptr)
    *result =
        *function != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return done(*function != nullptr ? kSuccess : kNotFound);
}
// The driver's log: always empty.
SIMULATED_EXPORT CUresult cuLogsRegisterCallback(CUlogsCallback, void*,
                                                 CUlogsCallbackHandle* handle) {
  DRIVER_ENTRY();
  if (handle != nullptr) *handle = nullptr;
  return CUDA_SUCCESS;
}
SIMULATED_EXPORT CUresult cuLogsUnregisterCallback(CUlogsCallbackHandle) {
  DRIVER_ENTRY();
  return CUDA_SUCCESS;
}
SIMULATED_EXPORT CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  DRIVER_ENTRY();
  *device = ordinal;
  return done(is_device(ordinal) ? kSuccess : kInvalidDevice);
}
SIMULATED_EXPORT CUresult cuDeviceGetCount(int* count) {
  DRIVER_ENTRY();
  *count = simulation().settings.devices;
  return CUDA_SUCCESS;
}
SIMULATED_EXPORT CUresult cuDeviceGetName(char* name, int bytes, CUdevice device) {
  DRIVER_ENTRY();
  std::snprintf(name, static_cast<size_t>(bytes), "SIMULATED CUDA %d", device);
  return CUDA_SUCCESS;
}
SIMULATED_EXPORT CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  DRIVER_ENTRY();
  for (int i = 0; i < 16; ++i) uuid->bytes[i] = static_cast<char>(i + device);
  return CUDA_SUCCESS;
}
SIMULATED_EXPORT CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute,
                                               CUdevice device) {
  DRIVER_ENTRY();
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  *value = device_attribute(attribute);
  return CUDA_SUCCESS;
}
SIMULATED_EXPORT CUresult cuDeviceTotalMem(size_t* bytes, CUdevice) {
  DRIVER_ENTRY();
  *bytes = simulation().settings.memory_bytes;
  return CUDA_SUCCESS;
}
SIMULATED_EXPORT CUresult cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
  DRIVER_ENTRY();
  *can = device != peer;
  return CUDA_SUCCESS;
}

SIMULATED_EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags,
                                                     int* active) {
  DRIVER_ENTRY();
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  *flags = 0;
  *active = primary_context(device)->active;
  return CUDA_SUCCESS;
}
SIMULATED_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  DRIVER_ENTRY();
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  start();
  ++primary_context(device)->holders;
  primary_context(device)->active = true;
  *context = handle(primary_context(device));
  return CUDA_SUCCESS;
}
SIMULATED_EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  DRIVER_ENTRY();
  if (!is_device(device) || primary_context(device)->holders == 0)
    return CUDA_ERROR_INVALID_CONTEXT;
  --primary_context(device)->holders;
  return CUDA_SUCCESS;
}
SIMULATED_EXPORT CUresult cuCtxGetCurrent(CUcontext* context) {
  DRIVER_ENTRY();
  *context = handle(current_context());
  return CUDA_SUCCESS;
}
SIMULATED_EXPORT CUresult cuCtxSetCurrent(CUcontext context) {
  DRIVER_ENTRY();
  set_current(of(context));
  return CUDA_SUCCESS;
}
SIMULATED_EXPORT CUresult cuCtxPushCurrent(CUcontext context) {
  DRIVER_ENTRY();
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  push_context(of(context));
  return CUDA_SUCCESS;
}
SIMULATED_EXPORT CUresult cuCtxPopCurrent(CUcontext* context) {
  DRIVER_ENTRY();
  Context* const popped = pop_context();
  if (context != nullptr) *context = handle(popped);
  return done(popped != nullptr ? kSuccess : kInvalidContext);
}
SIMULATED_EXPORT CUresult cuCtxGetDevice(CUdevice* device) {
  DRIVER_ENTRY();
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *device = current_context()->device;
  return CUDA_SUCCESS;
}
SIMULATED_EXPORT CUresult cuCtxGetId(CUcontext context, unsigned long long* id) {
  DRIVER_ENTRY();
  const Context* const asked = context == nullptr ? current_context() : of(context);
  if (asked == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *id = asked->id;
  return CUDA_SUCCESS;
}
SIMULATED_EXPORT CUresult cuCtxGetLimit(size_t* value, CUlimit) {
  DRIVER_ENTRY();
  *value = 0;
  return CUDA_SUCCESS;
}
SIMULATED_EXPORT CUresult cuCtxSetLimit(CUlimit, size_t) {
  DRIVER_ENTRY();
  return CUDA_SUCCESS;
}
SIMULATED_EXPORT CUresult cuCtxSynchronize() {
  DRIVER_ENTRY();
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (const int error = forbidden_while_capturing(); error != kSuccess) return done(error);
  synchronize_device(current_device());
  return CUDA_SUCCESS;
}

SIMULATED_EXPORT CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  DRIVER_ENTRY();
  if (image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return done(load_module(module));
}
SIMULATED_EXPORT CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned,
                                             CUjit_option*, void**) {
  DRIVER_ENTRY();
  if (image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return done(load_module(module));
}
SIMULATED_EXPORT CUresult cuModuleUnload(CUmodule module) {
  DRIVER_ENTRY();
  return done(modules().erase(module) != 0 ? kSuccess : kInvalidHandle);
}
SIMULATED_EXPORT CUresult cuModuleGetFunction(CUfunction* function, CUmodule module,
                                              const char* name) {
  DRIVER_ENTRY();
  if (!modules().contains(module)) return CUDA_ERROR_INVALID_HANDLE;
  Kernel* const kernel = kernel_by_name(name, caller_of(__builtin_return_address(0)) == kTorch);
  *function = reinterpret_cast<CUfunction>(kernel);
  return done(kernel != nullptr ? kSuccess : kNotFound);
}
SIMULATED_EXPORT CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute,
                                             CUfunction) {
  DRIVER_ENTRY();
  *value = attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024
           : attribute == CU_FUNC_ATTRIBUTE_NUM_REGS            ? 32
                                                                : 0;
  return CUDA_SUCCESS;
}
SIMULATED_EXPORT CUresult cuFuncSetAttribute(CUfunction, CUfunction_attribute, int) {
  DRIVER_ENTRY();
  return CUDA_SUCCESS;
}
SIMULATED_EXPORT CUresult cuFuncSetCacheConfig(CUfunction, CUfunc_cache) {
  DRIVER_ENTRY();
  return CUDA_SUCCESS;
}
SIMULATED_EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks,
                                                                      CUfunction function,
                                                                      int threads, size_t) {
  DRIVER_ENTRY();
  if (function == nullptr || threads <= 0) return CUDA_ERROR_INVALID_VALUE;
  *blocks = std::clamp(2048 / threads, 1, 32);
  return CUDA_SUCCESS;
}
SIMULATED_EXPORT CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y,
                                         unsigned grid_z, unsigned block_x, unsigned block_y,
                                         unsigned block_z, unsigned, CUstream stream,
                                         void** parameters, void**) {
  DRIVER_ENTRY();
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return done(launch(reinterpret_cast<Kernel*>(function),
                     {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}}, parameters, stream));
}
SIMULATED_EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig* how, CUfunction function,
                                           void** parameters, void**) {
  DRIVER_ENTRY();
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return done(launch(reinterpret_cast<Kernel*>(function),
                     {{how->gridDimX, how->gridDimY, how->gridDimZ},
                      {how->blockDimX, how->blockDimY, how->blockDimZ}},
                     parameters, how->hStream));
}
