// HostCalls is the table of the system calls that the host device makes on memory. A test replaces
// entries to check the state of a segment when the kernel refuses a call.
#pragma once

#include <sys/mman.h>
#include <sys/types.h>
#include <time.h>

#include <cstddef>

namespace pleat::allocator {

// Each entry has the parameters, the result and the errno of the function that it is named after.
struct HostCalls {
  void* (*mmap)(void*, std::size_t, int, int, int, ::off_t) noexcept = ::mmap;
  int (*munmap)(void*, std::size_t) noexcept = ::munmap;
  int (*mprotect)(void*, std::size_t, int) noexcept = ::mprotect;
  int (*madvise)(void*, std::size_t, int) noexcept = ::madvise;
  int (*mlock2)(const void*, std::size_t, unsigned) noexcept = ::mlock2;
  int (*munlock)(const void*, std::size_t) noexcept = ::munlock;
  int (*mincore)(void*, std::size_t, unsigned char*) noexcept = ::mincore;
  int (*clock_gettime)(clockid_t, timespec*) noexcept = ::clock_gettime;  // measures first touches
  void* (*mremap)(void* from, std::size_t, std::size_t, int, void* to) noexcept =
      [](void* from, std::size_t had, std::size_t wanted, int flags, void* to) noexcept {
        return ::mremap(from, had, wanted, flags, to);
      };
};

}  // namespace pleat::allocator
