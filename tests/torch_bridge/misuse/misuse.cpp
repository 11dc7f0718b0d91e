// Hands the CPU allocator what is not its own. `free` is watched: it is where stock's deleter ends.
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {
void* watched = nullptr;
int frees = 0;
}  // namespace

extern "C" void free(void* pointer) {
  using Free = void (*)(void*);
  static const auto real = reinterpret_cast<Free>(dlsym(RTLD_NEXT, "free"));
  if (pointer != nullptr && pointer == watched) {
    ++frees;
    return;  // kept, so that nothing is given away twice in this process
  }
  real(pointer);
}

int main(int argc, char** argv) {
  constexpr std::size_t kBytes = 1 << 20;
  c10::Allocator* const allocator = c10::GetCPUAllocator();
  void* pointer = nullptr;
  if (argc > 1 && std::strcmp(argv[1], "foreign") == 0) {
    if (posix_memalign(&pointer, 64, kBytes) != 0) {
      return 1;
    }
    watched = pointer;
  } else {
    pointer = allocator->raw_allocate(kBytes);
    std::memset(pointer, 1, kBytes);
    watched = pointer;
    allocator->raw_deallocate(pointer);  // its owner takes it back: the pool, or free() in stock
    std::printf("%d ", frees);
  }
  allocator->raw_deallocate(pointer);
  void* const next = allocator->raw_allocate(kBytes);  // the allocator is still in order
  std::memset(next, 2, kBytes);
  std::printf("%d\n", frees);
}
