// Launches kernels over the CUDA driver API, which is found at run time. This code neither links
// nor includes CUDA.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "compress/kernel_launcher.h"

namespace pleat::compress::cuda {

// The driver functions that a launch needs, by their ABI: CUresult is an int, handles are pointers.
struct DriverFunctions {
  int (*context_current)(void** context) = nullptr;                          // cuCtxGetCurrent
  int (*context_id)(void* context, unsigned long long* id) = nullptr;        // cuCtxGetId
  int (*context_device)(int* device) = nullptr;                              // cuCtxGetDevice
  int (*device_attribute)(int* value, int attribute, int device) = nullptr;  // cuDeviceGetAttribute
  int (*module_load)(void** module, const void* image) = nullptr;            // cuModuleLoadData
  int (*module_function)(void** function, void* module, const char* name) = nullptr;
  // cuOccupancyMaxActiveBlocksPerMultiprocessor
  int (*active_blocks)(int* blocks, void* function, int threads, std::size_t shared) = nullptr;
  int (*launch)(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                unsigned block_y, unsigned block_z, unsigned shared_bytes, void* stream,
                void** parameters, void** extra) = nullptr;  // cuLaunchKernel

  // Finds the functions in a driver library, given by its file name. False unless all but
  // context_id (CUDA 12) are there. The library is never closed, as a driver cannot be. Makes no
  // CUDA call.
  [[nodiscard]] bool find(const char* library) noexcept;
};

// Loads a module once per context and never unloads it: a module dies with its context. The id
// tells a context from an earlier one at the same address.
class DriverLauncher final : public KernelLauncher {
 public:
  explicit DriverLauncher(const char* library = "libcuda.so.1") noexcept;
  explicit DriverLauncher(const DriverFunctions& functions) noexcept;

  [[nodiscard]] LaunchStatus prepare(const DeviceImage& image) noexcept override;
  [[nodiscard]] LaunchStatus launch(const DeviceImage& image, const char* kernel,
                                    unsigned most_blocks, unsigned threads, const void* parameter,
                                    StreamHandle stream) noexcept override;
  [[nodiscard]] int driver_error() const noexcept override;

 private:
  struct Function {
    const char* name;
    unsigned threads;
    void* handle;
    unsigned blocks_at_once;
  };
  struct Module {
    void* context;
    unsigned long long context_id;
    const void* image;
    void* handle;
    unsigned multiprocessors;
    std::vector<Function> functions;
  };

  LaunchStatus current(void** context, unsigned long long* id) noexcept;
  // Called with mutex_ held. nullptr on failure; *status says why.
  Module* find_module(const DeviceImage& image, LaunchStatus* status) noexcept;
  Function find_function(Module& module, const char* name, unsigned threads,
                         LaunchStatus* status) noexcept;

  DriverFunctions driver_;
  bool usable_ = false;
  std::mutex mutex_;
  std::vector<Module> modules_;
};

}  // namespace pleat::compress::cuda
