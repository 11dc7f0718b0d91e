// Driver holds pointers to the CUDA driver's functions, looked up at run time. allocator/ neither
// includes nor links CUDA. The functions are declared by their ABI: a CUresult is an int, handles
// are pointers, a CUdeviceptr is 64 bits wide.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace pleat::allocator::cuda {

// Results that mean more than a plain failure.
inline constexpr int kSuccess = 0;
inline constexpr int kDeinitialized = 4;  // the process ends: the driver is gone
inline constexpr int kNotReady = 600;     // an event is not complete yet

// For host_allocate: CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP.
inline constexpr unsigned kSeenByDevices = 1 | 2;

// Each row: member, symbol, parameters. cuda.h's plain names expand to the _v2 symbols.
#define PLEAT_DRIVER_FUNCTIONS(ROW)                                                            \
  ROW(device_get, cuDeviceGet, (int* device, int ordinal))                                     \
  ROW(device_attribute, cuDeviceGetAttribute, (int* value, int attribute, int device))         \
  ROW(primary_state, cuDevicePrimaryCtxGetState, (int device, unsigned* flags, int* active))   \
  ROW(primary_retain, cuDevicePrimaryCtxRetain, (void** context, int device))                  \
  ROW(primary_release, cuDevicePrimaryCtxRelease_v2, (int device))                             \
  ROW(context_current, cuCtxGetCurrent, (void** context))                                      \
  ROW(context_id, cuCtxGetId, (void* context, unsigned long long* id))                         \
  ROW(context_device, cuCtxGetDevice, (int* device))                                           \
  ROW(context_push, cuCtxPushCurrent_v2, (void* context))                                      \
  ROW(context_pop, cuCtxPopCurrent_v2, (void** context))                                       \
  ROW(module_load, cuModuleLoadData, (void** module, const void* image))                       \
  ROW(module_function, cuModuleGetFunction, (void** function, void* module, const char* name)) \
  ROW(active_blocks, cuOccupancyMaxActiveBlocksPerMultiprocessor,                              \
      (int* blocks, void* function, int threads, std::size_t shared))                          \
  ROW(launch, cuLaunchKernel,                                                                  \
      (void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,    \
       unsigned block_y, unsigned block_z, unsigned shared, void* stream, void** parameters,   \
       void** extra))                                                                          \
  ROW(event_create, cuEventCreate, (void** event, unsigned flags))                             \
  ROW(event_record, cuEventRecord, (void* event, void* stream))                                \
  ROW(event_query, cuEventQuery, (void* event))                                                \
  ROW(event_synchronize, cuEventSynchronize, (void* event))                                    \
  ROW(event_destroy, cuEventDestroy_v2, (void* event))                                         \
  ROW(stream_create, cuStreamCreate, (void** stream, unsigned flags))                          \
  ROW(stream_wait, cuStreamWaitEvent, (void* stream, void* event, unsigned flags))             \
  ROW(stream_synchronize, cuStreamSynchronize, (void* stream))                                 \
  ROW(stream_query, cuStreamQuery, (void* stream))                                             \
  ROW(stream_capturing, cuStreamIsCapturing, (void* stream, int* status))                      \
  ROW(copy, cuMemcpyAsync,                                                                     \
      (std::uint64_t to, std::uint64_t from, std::size_t bytes, void* stream))                 \
  ROW(set_bytes, cuMemsetD8Async,                                                              \
      (std::uint64_t to, unsigned char value, std::size_t bytes, void* stream))                \
  ROW(write_word, cuStreamWriteValue32_v2,                                                     \
      (void* stream, std::uint64_t to, std::uint32_t value, unsigned flags))                   \
  ROW(memory_allocate, cuMemAlloc_v2, (std::uint64_t * device, std::size_t bytes))             \
  ROW(host_allocate, cuMemHostAlloc, (void** host, std::size_t bytes, unsigned flags))         \
  ROW(host_address, cuMemHostGetDevicePointer_v2,                                              \
      (std::uint64_t * device, void* host, unsigned flags))

struct Driver {
#define PLEAT_DRIVER_MEMBER(member, symbol, parameters) int(*member) parameters = nullptr;
  PLEAT_DRIVER_FUNCTIONS(PLEAT_DRIVER_MEMBER)
#undef PLEAT_DRIVER_MEMBER

  // Looks up all functions in a driver library, by its SONAME; the process has loaded it or can
  // load it. Makes no CUDA call. On false, `missing` names the library or the first missing
  // function. The library is never closed, because a driver cannot be unloaded.
  [[nodiscard]] bool find(const char* library, std::string& missing);
};

// Whether the driver can still be called. The process has one. The answer becomes no in a forked
// child, and after the driver has reported its own shutdown.
class DriverLife {
 public:
  [[nodiscard]] bool may_call() const noexcept { return !over_.load(std::memory_order_relaxed); }
  void end() noexcept { over_.store(true, std::memory_order_relaxed); }
  // Returns `result` and records a shutdown of the driver.
  int note(int result) noexcept {
    if (result == kDeinitialized) [[unlikely]]
      end();
    return result;
  }

 private:
  std::atomic<bool> over_{false};
};

// Makes the primary context of a device current in the calling thread while this object lives.
// Frees need it, because they come from any thread. It never creates a context: if the job has none
// on the device, the object is false.
class DeviceContext {
 public:
  DeviceContext(const Driver& driver, DriverLife& life, int device) noexcept;
  ~DeviceContext();
  DeviceContext(const DeviceContext&) = delete;
  DeviceContext& operator=(const DeviceContext&) = delete;
  [[nodiscard]] explicit operator bool() const noexcept { return current_; }

 private:
  const Driver& driver_;
  DriverLife& life_;
  bool current_ = false;
  bool pushed_ = false;
};

}  // namespace pleat::allocator::cuda
