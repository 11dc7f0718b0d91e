#include "allocator/cuda/driver.h"

#include <dlfcn.h>

namespace pleat::allocator::cuda {

bool Driver::find(const char* library, std::string& missing) {
  void* const handle = ::dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    missing = library;
    return false;
  }
#define PLEAT_DRIVER_FIND(member, symbol, parameters)                     \
  member = reinterpret_cast<int(*) parameters>(::dlsym(handle, #symbol)); \
  if (member == nullptr) {                                                \
    missing = #symbol;                                                    \
    return false;                                                         \
  }
  PLEAT_DRIVER_FUNCTIONS(PLEAT_DRIVER_FIND)
#undef PLEAT_DRIVER_FIND
  return true;
}

DeviceContext::DeviceContext(const Driver& driver, DriverLife& life, int device) noexcept
    : driver_(driver), life_(life) {
  if (!life.may_call()) return;
  void* present = nullptr;
  if (life.note(driver.context_current(&present)) != kSuccess) return;
  if (int of = -1;
      present != nullptr && life.note(driver.context_device(&of)) == kSuccess && of == device) {
    current_ = true;  // nearly always
    return;
  }
  unsigned flags = 0;
  int active = 0;
  if (life.note(driver.primary_state(device, &flags, &active)) != kSuccess || active == 0) return;
  // The job holds its own reference. Pleat retains the context only to learn its address.
  void* primary = nullptr;
  if (life.note(driver.primary_retain(&primary, device)) != kSuccess) return;
  life.note(driver.primary_release(device));
  pushed_ = current_ = life.note(driver.context_push(primary)) == kSuccess;
}

DeviceContext::~DeviceContext() {
  if (pushed_ && life_.may_call()) {
    void* ours = nullptr;
    life_.note(driver_.context_pop(&ours));
  }
}

}  // namespace pleat::allocator::cuda
