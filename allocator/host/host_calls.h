// The system calls that the host device makes on memory, as a table. A test puts its own functions
// there to see what becomes of a segment when the kernel refuses.
#pragma once

#include <sys/mman.h>
#include <sys/types.h>
#include <time.h>

#include <cstddef>

namespace pleat::allocator {

// Each entry takes and returns what the function of its name does, errno included.
struct HostCalls {
  void* (*mmap)(void*, std::size_t, int, int, int, ::off_t) noexcept = ::mmap;
  int (*munmap)(void*, std::size_t) noexcept = ::munmap;
  int (*mprotect)(void*, std::size_t, int) noexcept = ::mprotect;
  int (*madvise)(void*, std::size_t, int) noexcept = ::madvise;
  int (*mlock2)(const void*, std::size_t, unsigned) noexcept = ::mlock2;
  int (*munlock)(const void*, std::size_t) noexcept = ::munlock;
  int (*mincore)(void*, std::size_t, unsigned char*) noexcept = ::mincore;
  int (*clock_gettime)(clockid_t, timespec*) noexcept = ::clock_gettime;  // around first touches
  void* (*mremap)(void* from, std::size_t, std::size_t, int, void* to) noexcept =
      [](void* from, std::size_t had, std::size_t wanted, int flags, void* to) noexcept {
        return ::mremap(from, had, wanted, flags, to);
      };
};

}  // namespace pleat::allocator
