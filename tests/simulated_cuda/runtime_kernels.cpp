// Entry points of the runtime: kernels as nvcc registers and launches them.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <vector>

#include "tests/simulated_cuda/context.h"
#include "tests/simulated_cuda/copies.h"
#include "tests/simulated_cuda/kernels.h"
#include "tests/simulated_cuda/memory.h"
#include "tests/simulated_cuda/simulation.h"

using namespace pleat::simulated;

namespace {

struct Variable {
  void* address = nullptr;
  std::size_t bytes = 0;
};
std::unordered_map<const void*, Variable>& variables() {
  static auto* const all = new std::unordered_map<const void*, Variable>;
  return *all;
}

// The image that a library registers its kernels with. Never deleted: kernels outlive their library
// here.
struct Image {
  bool torchs;
};

// Configuration of the launch that the code after <<<...>>> is about to make.
struct Configuration {
  dim3 grid, block;
  std::size_t shared_bytes;
  cudaStream_t stream;
};
std::vector<Configuration>& configurations() {
  thread_local std::vector<Configuration> all;
  return all;
}

cudaError_t done(int error) { return static_cast<cudaError_t>(remember(error)); }
cudaError_t launch_here(Kernel* kernel, dim3 grid, dim3 block, void** parameters,
                        cudaStream_t stream) {
  need_context();
  return done(
      launch(kernel, {{grid.x, grid.y, grid.z}, {block.x, block.y, block.z}}, parameters, stream));
}

}  // namespace

// Registration happens while a library is loaded, before any other initialization.
SIMULATED_EXPORT void** __cudaRegisterFatBinary(void*) {
  const std::lock_guard guard(lock());
  return reinterpret_cast<void**>(new Image{caller_of(__builtin_return_address(0)) == kTorch});
}
SIMULATED_EXPORT void __cudaRegisterFatBinaryEnd(void**) {}
SIMULATED_EXPORT void __cudaUnregisterFatBinary(void**) {}
SIMULATED_EXPORT char __cudaInitModule(void**) { return 1; }
SIMULATED_EXPORT void __cudaRegisterFunction(void** image, const char* host_function, char*,
                                             const char* name, int, uint3*, uint3*, dim3*, dim3*,
                                             int*) {
  const std::lock_guard guard(lock());
  register_kernel(host_function, name, reinterpret_cast<const Image*>(image)->torchs);
}
SIMULATED_EXPORT void __cudaRegisterVar(void**, char* host_variable, char*, const char*, int,
                                        size_t bytes, int, int) {
  const std::lock_guard guard(lock());
  variables()[host_variable] = {nullptr, bytes};
}
SIMULATED_EXPORT void __cudaRegisterManagedVar(void**, void**, char*, const char*, int, size_t, int,
                                               int) {}
SIMULATED_EXPORT cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host_function) {
  const std::lock_guard guard(lock());
  *kernel = reinterpret_cast<cudaKernel_t>(kernel_of(host_function));
  return *kernel == nullptr ? cudaErrorInvalidDeviceFunction : cudaSuccess;
}
SIMULATED_EXPORT unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes,
                                                      cudaStream_t stream) {
  configurations().push_back({grid, block, shared_bytes, stream});
  return 0;
}
SIMULATED_EXPORT cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block,
                                                        size_t* shared_bytes, void* stream) {
  if (configurations().empty()) return cudaErrorMissingConfiguration;
  const Configuration last = configurations().back();
  configurations().pop_back();
  *grid = last.grid;
  *block = last.block;
  *shared_bytes = last.shared_bytes;
  *static_cast<cudaStream_t*>(stream) = last.stream;
  return cudaSuccess;
}

SIMULATED_EXPORT cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block,
                                                void** parameters, size_t, cudaStream_t stream) {
  RUNTIME_ENTRY();
  return launch_here(reinterpret_cast<Kernel*>(kernel), grid, block, parameters, stream);
}
SIMULATED_EXPORT cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block,
                                              void** parameters, size_t, cudaStream_t stream) {
  RUNTIME_ENTRY();
  return launch_here(kernel_of(function), grid, block, parameters, stream);
}
SIMULATED_EXPORT cudaError_t cudaLaunchCooperativeKernel(const void* function, dim3 grid,
                                                         dim3 block, void** parameters, size_t,
                                                         cudaStream_t stream) {
  RUNTIME_ENTRY();
  return launch_here(kernel_of(function), grid, block, parameters, stream);
}
SIMULATED_EXPORT cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* how,
                                                 const void* function, void** parameters) {
  RUNTIME_ENTRY();
  Kernel* kernel = kernel_of(function);
  if (kernel == nullptr)
    kernel = static_cast<Kernel*>(const_cast<void*>(function));  // a cudaKernel_t
  return launch_here(kernel, how->gridDim, how->blockDim, parameters, how->stream);
}
SIMULATED_EXPORT cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  RUNTIME_ENTRY();
  std::memset(attributes, 0, sizeof *attributes);
  attributes->maxThreadsPerBlock = 1024;
  attributes->numRegs = 32;
  attributes->binaryVersion = attributes->ptxVersion = 90;
  attributes->maxDynamicSharedSizeBytes = 227 << 10;
  return cudaSuccess;
}
SIMULATED_EXPORT cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) {
  RUNTIME_ENTRY();
  return cudaSuccess;
}
SIMULATED_EXPORT cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*,
                                                                           int threads, size_t) {
  RUNTIME_ENTRY();
  *blocks = threads > 0 ? std::clamp(2048 / threads, 1, 32) : 1;
  return cudaSuccess;
}
SIMULATED_EXPORT cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int* blocks, const void* function, int threads, size_t shared, unsigned) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, shared);
}
SIMULATED_EXPORT cudaError_t cudaGetSymbolAddress(void** address, const void* symbol) {
  RUNTIME_ENTRY();
  need_context();
  Variable& variable = variables()[symbol];
  if (variable.address == nullptr)
    if (const int error =
            allocate(context_device(), std::max<std::size_t>(variable.bytes, 1), &variable.address);
        error != kSuccess)
      return done(error);
  *address = variable.address;
  return cudaSuccess;
}
SIMULATED_EXPORT cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* from, size_t bytes,
                                                size_t offset, cudaMemcpyKind) {
  void* address = nullptr;
  if (const cudaError_t error = cudaGetSymbolAddress(&address, symbol); error != cudaSuccess)
    return error;
  RUNTIME_ENTRY();
  return done(
      copy_and_wait(static_cast<char*>(address) + offset, from, bytes, "cudaMemcpyToSymbol"));
}
