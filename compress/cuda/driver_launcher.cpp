#include "compress/cuda/driver_launcher.h"

#include <dlfcn.h>

#include <cstring>
#include <new>

namespace pleat::compress::cuda {
namespace {

constexpr int kSuccess = 0;
constexpr int kErrorOutOfMemory = 2;
constexpr int kErrorInvalidContext = 201;
constexpr int kErrorNoBinaryForGpu = 209;
constexpr int kErrorInvalidPtx = 218;
constexpr int kErrorUnsupportedPtx = 222;
constexpr int kAttributeMultiprocessors = 16;

thread_local int last_error = kSuccess;

template <class F>
bool find_symbol(void* library, const char* name, F* function) noexcept {
  void* const address = dlsym(library, name);
  static_assert(sizeof address == sizeof *function);
  std::memcpy(function, &address, sizeof address);
  return address != nullptr;
}

LaunchStatus failed(int code) noexcept {
  last_error = code;
  switch (code) {
    case kErrorInvalidContext:
      return LaunchStatus::kNoContext;
    case kErrorNoBinaryForGpu:
    case kErrorInvalidPtx:
    case kErrorUnsupportedPtx:
      return LaunchStatus::kNoImage;
    default:
      return LaunchStatus::kFailed;
  }
}

}  // namespace

bool DriverFunctions::find(const char* library) noexcept {
  void* const driver = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) return false;
  (void)find_symbol(driver, "cuCtxGetId", &context_id);
  return find_symbol(driver, "cuCtxGetCurrent", &context_current) &&
         find_symbol(driver, "cuCtxGetDevice", &context_device) &&
         find_symbol(driver, "cuDeviceGetAttribute", &device_attribute) &&
         find_symbol(driver, "cuModuleLoadData", &module_load) &&
         find_symbol(driver, "cuModuleGetFunction", &module_function) &&
         find_symbol(driver, "cuOccupancyMaxActiveBlocksPerMultiprocessor", &active_blocks) &&
         find_symbol(driver, "cuLaunchKernel", &launch);
}

DriverLauncher::DriverLauncher(const char* library) noexcept { usable_ = driver_.find(library); }

DriverLauncher::DriverLauncher(const DriverFunctions& functions) noexcept
    : driver_(functions), usable_(true) {}

LaunchStatus DriverLauncher::current(void** context, unsigned long long* id) noexcept {
  if (!usable_) return LaunchStatus::kNoDriver;
  *context = nullptr;
  *id = 0;
  const int code = driver_.context_current(context);
  if (code != kSuccess) return failed(code);
  if (*context == nullptr) return failed(kErrorInvalidContext);
  if (driver_.context_id != nullptr) {
    const int id_code = driver_.context_id(*context, id);
    if (id_code != kSuccess) return failed(id_code);
  }
  return LaunchStatus::kOk;
}

DriverLauncher::Module* DriverLauncher::find_module(const DeviceImage& image,
                                                    LaunchStatus* status) noexcept {
  void* context = nullptr;
  unsigned long long id = 0;
  *status = current(&context, &id);
  if (*status != LaunchStatus::kOk) return nullptr;
  if (image.bytes == 0) {
    *status = LaunchStatus::kNoImage;
    last_error = kSuccess;
    return nullptr;
  }
  for (Module& module : modules_)
    if (module.context == context && module.context_id == id && module.image == image.data)
      return &module;
  Module module{context, id, image.data, nullptr, 0, {}};
  int device = 0, count = 0;
  int code = driver_.context_device(&device);
  if (code == kSuccess) code = driver_.device_attribute(&count, kAttributeMultiprocessors, device);
  if (code == kSuccess) code = driver_.module_load(&module.handle, image.data);
  if (code != kSuccess) {
    *status = failed(code);
    return nullptr;
  }
  module.multiprocessors = static_cast<unsigned>(count);
  try {
    modules_.push_back(module);
  } catch (const std::bad_alloc&) {  // the module stays with its context; the next call loads one
    *status = failed(kErrorOutOfMemory);
    return nullptr;
  }
  return &modules_.back();
}

DriverLauncher::Function DriverLauncher::find_function(Module& module, const char* name,
                                                       unsigned threads,
                                                       LaunchStatus* status) noexcept {
  for (const Function& function : module.functions)
    if (function.threads == threads && std::strcmp(function.name, name) == 0) return function;
  Function function{name, threads, nullptr, 0};
  int blocks = 0;
  int code = driver_.module_function(&function.handle, module.handle, name);
  if (code == kSuccess)
    code = driver_.active_blocks(&blocks, function.handle, static_cast<int>(threads), 0);
  if (code != kSuccess) {
    *status = failed(code);
    return function;
  }
  function.blocks_at_once = static_cast<unsigned>(blocks) * module.multiprocessors;
  try {
    module.functions.push_back(function);
  } catch (const std::bad_alloc&) {  // looked up again the next time
  }
  return function;
}

LaunchStatus DriverLauncher::prepare(const DeviceImage& image) noexcept {
  const std::lock_guard lock(mutex_);
  LaunchStatus status = LaunchStatus::kOk;
  (void)find_module(image, &status);
  return status;
}

LaunchStatus DriverLauncher::launch(const DeviceImage& image, const char* kernel,
                                    unsigned most_blocks, unsigned threads, const void* parameter,
                                    StreamHandle stream) noexcept {
  Function function{};
  {
    const std::lock_guard lock(mutex_);
    LaunchStatus status = LaunchStatus::kOk;
    Module* const module = find_module(image, &status);
    if (module == nullptr) return status;
    function = find_function(*module, kernel, threads, &status);
    if (status != LaunchStatus::kOk) return status;
  }
  const unsigned blocks =
      function.blocks_at_once < most_blocks ? function.blocks_at_once : most_blocks;
  void* parameters[] = {const_cast<void*>(parameter)};
  const int code = driver_.launch(function.handle, blocks, 1, 1, threads, 1, 1, 0,
                                  reinterpret_cast<void*>(stream.value), parameters, nullptr);
  return code == kSuccess ? LaunchStatus::kOk : failed(code);
}

int DriverLauncher::driver_error() const noexcept { return last_error; }

}  // namespace pleat::compress::cuda
