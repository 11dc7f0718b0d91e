// The library of the machine's management (NVML): torch and its Python part look it up by name.
#include <cuda.h>

#include "answers.h"

enum { kNotSupported = 3 };

int nvmlInit(void) { return 0; }
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned* count) {
  int devices = 0;
  cuDeviceGetCount(&devices);
  *count = (unsigned)devices;
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  (void)index;
  *device = simulated_cuda_handle();
  return 0;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char* place, void** device) {
  (void)place;
  *device = simulated_cuda_handle();
  return 0;
}
int nvmlDeviceGetUUID(void* device, char* text, unsigned bytes) {
  (void)device;
  (void)text;
  (void)bytes;
  return kNotSupported;
}
int nvmlDeviceGetComputeRunningProcesses(void* device, unsigned* count, void* processes) {
  (void)device;
  (void)processes;
  *count = 0;
  return 0;
}
// There is no fabric: leave the caller's values unchanged.
int nvmlDeviceGetGpuFabricInfoV(void* device, void* fabric) {
  (void)device;
  (void)fabric;
  return 0;
}
int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = CUDA_VERSION;
  return 0;
}
