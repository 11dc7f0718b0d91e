#include "tests/compress/fake_cuda.h"

#define FAKE_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using pleat::compress::test::FakeCuda;
using pleat::compress::test::FakeLaunch;

FakeCuda& state() {
  static auto* const fake = new FakeCuda;
  return *fake;
}
// With the mutex held.
int answer(const char* function) { return state().failing == function ? state().failure : 0; }

}  // namespace

FAKE_EXPORT FakeCuda* fake_cuda_state() { return &state(); }

FAKE_EXPORT int cuCtxGetCurrent(void** context) {
  const std::lock_guard lock(state().mutex);
  *context = state().context;
  return answer("cuCtxGetCurrent");
}
FAKE_EXPORT int cuCtxGetId(void* context, unsigned long long* id) {
  const std::lock_guard lock(state().mutex);
  if (context != state().context) return 201;
  *id = state().context_id;
  return answer("cuCtxGetId");
}
FAKE_EXPORT int cuCtxGetDevice(int* device) {
  const std::lock_guard lock(state().mutex);
  *device = 3;
  return answer("cuCtxGetDevice");
}
FAKE_EXPORT int cuDeviceGetAttribute(int* value, int attribute, int device) {
  const std::lock_guard lock(state().mutex);
  if (device != 3 || attribute != 16) return 1;
  *value = state().multiprocessors;
  return answer("cuDeviceGetAttribute");
}
FAKE_EXPORT int cuModuleLoadData(void** module, const void* image) {
  const std::lock_guard lock(state().mutex);
  if (const int code = answer("cuModuleLoadData"); code != 0) return code;
  state().images.push_back(image);
  *module = reinterpret_cast<void*>(0x1000 + state().images.size());
  return 0;
}
FAKE_EXPORT int cuModuleGetFunction(void** function, void* module, const char* name) {
  const std::lock_guard lock(state().mutex);
  if (const int code = answer("cuModuleGetFunction"); code != 0) return code;
  if (reinterpret_cast<std::uintptr_t>(module) != 0x1000 + state().images.size()) return 400;
  state().functions.emplace_back(name);
  *function = reinterpret_cast<void*>(0x2000 + state().functions.size());
  return 0;
}
FAKE_EXPORT int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void* function,
                                                            int threads, std::size_t shared) {
  const std::lock_guard lock(state().mutex);
  const std::uintptr_t number = reinterpret_cast<std::uintptr_t>(function) - 0x2001;
  if (number >= state().functions.size() || threads < 1 || shared != 0) return 1;
  state().block_sizes.push_back(threads);
  *blocks = state().active_blocks;
  return answer("cuOccupancyMaxActiveBlocksPerMultiprocessor");
}
FAKE_EXPORT int cuLaunchKernel(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                               unsigned block_x, unsigned block_y, unsigned block_z,
                               unsigned shared_bytes, void* stream, void** parameters,
                               void** extra) {
  const std::lock_guard lock(state().mutex);
  if (const int code = answer("cuLaunchKernel"); code != 0) return code;
  const std::uintptr_t number = reinterpret_cast<std::uintptr_t>(function) - 0x2001;
  if (number >= state().functions.size()) return 400;
  const auto* const bytes = static_cast<const unsigned char*>(parameters[0]);
  state().launches.push_back({state().functions[number],
                              {grid_x, grid_y, grid_z},
                              {block_x, block_y, block_z},
                              shared_bytes,
                              stream,
                              state().context,
                              {bytes, bytes + state().parameter_bytes},
                              extra != nullptr});
  return 0;
}
