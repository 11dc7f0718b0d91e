// A GPU through the driver API, found at run time as the library does, without the rest of CUDA.
// For programs that check kernels: a failure ends them.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <type_traits>

#include "compress/cuda/device_codec.h"
#include "compress/cuda/driver_launcher.h"

namespace pleat::compress::test {

using Address = unsigned long long;

// The part of the driver that a test needs beyond launching.
struct Driver {
  int (*init)(unsigned);
  int (*device_count)(int*);
  int (*device_get)(int*, int);
  int (*device_name)(char*, int, int);
  int (*driver_version)(int*);
  int (*attribute)(int*, int, int);
  int (*retain)(void**, int);
  int (*set_current)(void*);
  int (*allocate)(Address*, std::size_t);
  int (*release)(Address);
  int (*to_device)(Address, const void*, std::size_t);
  int (*to_host)(void*, Address, std::size_t);
  int (*copy)(Address, Address, std::size_t, void*);
  int (*fill)(Address, unsigned char, std::size_t, void*);
  int (*stream_create)(void**, unsigned);
  int (*stream_synchronize)(void*);
  int (*event_create)(void**, unsigned);
  int (*event_record)(void*, void*);
  int (*event_elapsed)(float*, void*, void*);
  int (*error_string)(int, const char**);

  bool find() {
    void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return false;
    const auto get = [&](const char* name, auto* function) {
      *function =
          reinterpret_cast<std::remove_reference_t<decltype(*function)>>(dlsym(library, name));
      return *function != nullptr;
    };
    return get("cuInit", &init) && get("cuDeviceGetCount", &device_count) &&
           get("cuDeviceGet", &device_get) && get("cuDeviceGetName", &device_name) &&
           get("cuDriverGetVersion", &driver_version) && get("cuDeviceGetAttribute", &attribute) &&
           get("cuDevicePrimaryCtxRetain", &retain) && get("cuCtxSetCurrent", &set_current) &&
           get("cuMemAlloc_v2", &allocate) && get("cuMemFree_v2", &release) &&
           get("cuMemcpyHtoD_v2", &to_device) && get("cuMemcpyDtoH_v2", &to_host) &&
           get("cuMemcpyDtoDAsync_v2", &copy) && get("cuMemsetD8Async", &fill) &&
           get("cuStreamCreate", &stream_create) &&
           get("cuStreamSynchronize", &stream_synchronize) && get("cuEventCreate", &event_create) &&
           get("cuEventRecord", &event_record) && get("cuEventElapsedTime", &event_elapsed) &&
           get("cuGetErrorString", &error_string);
  }
};
inline Driver driver;

[[noreturn]] inline void no_gpu(const char* why) {
  std::printf("{\"gpu\": null, \"reason\": \"%s\"}\n", why);
  std::fprintf(stderr, "no GPU: %s\n", why);
  std::exit(77);
}
inline void check(int code, const char* what) {
  if (code == 0) return;
  const char* text = "?";
  (void)driver.error_string(code, &text);
  std::fprintf(stderr, "GPU: %s: %s (%d)\n", what, text, code);
  std::exit(1);
}
inline void check(LaunchStatus status, const KernelLauncher& launcher) {
  if (status == LaunchStatus::kOk) return;
  std::fprintf(stderr, "GPU: launch failed: status %d, driver error %d\n", static_cast<int>(status),
               launcher.driver_error());
  std::exit(1);
}

class DeviceMemory {
 public:
  explicit DeviceMemory(std::size_t bytes) : bytes_(bytes) {
    check(driver.allocate(&address_, bytes), "cuMemAlloc");
  }
  ~DeviceMemory() { (void)driver.release(address_); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  [[nodiscard]] Address address(std::size_t offset = 0) const { return address_ + offset; }
  template <class T = void>
  [[nodiscard]] T* as(std::size_t offset = 0) const {
    return reinterpret_cast<T*>(address_ + offset);
  }
  void fill(unsigned char value, void* stream) const {
    check(driver.fill(address_, value, bytes_, stream), "fill");
  }
  void write(const void* from, std::size_t bytes, std::size_t offset = 0) const {
    check(driver.to_device(address_ + offset, from, bytes), "copy to device");
  }
  void read(void* to, std::size_t bytes, std::size_t offset = 0) const {
    check(driver.to_host(to, address_ + offset, bytes), "copy from device");
  }

 private:
  Address address_ = 0;
  std::size_t bytes_;
};

// The first device, its context current, a stream of its own.
struct Gpu {
  int device = 0;
  void* stream = nullptr;
  cuda::DriverLauncher launcher;

  // Exits 77 where there is none.
  Gpu() {
    int count = 0;
    void* context = nullptr;
    if (cuda::device_image().bytes == 0) no_gpu("built without nvcc");
    if (!driver.find()) no_gpu("no libcuda.so.1");
    if (driver.init(0) != 0 || driver.device_count(&count) != 0 || count == 0) no_gpu("no device");
    check(driver.device_get(&device, 0), "device");
    check(driver.retain(&context, device), "context");
    check(driver.set_current(context), "context");
    // Not one that runs beside the default stream: that one does the copies of DeviceMemory.
    check(driver.stream_create(&stream, 0), "stream");
    check(launcher.prepare(cuda::device_image()), launcher);
  }
};

}  // namespace pleat::compress::test
