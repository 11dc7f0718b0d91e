// Copies, fills and allocations as operations of streams, for the entry points of runtime and
// driver.
#pragma once

#include <cuda.h>

#include <cstddef>

namespace pleat::simulated {

struct Rows {
  std::size_t width = 0;   // bytes
  std::size_t height = 1;  // rows
  std::size_t to_pitch = 0;
  std::size_t from_pitch = 0;
};

// Reads unpinned host memory at once; writes to it wait.
int copy(CUstream stream, void* to, const void* from, const Rows& rows, const char* name);
int copy_and_wait(void* to, const void* from, std::size_t bytes, const char* name);
// `count` elements of `width` bytes, 1, 2 or 4.
int fill(CUstream stream, void* to, unsigned value, std::size_t width, std::size_t count,
         const char* name);

int free_and_wait(void* address, const char* name);
int allocate_on(CUstream stream, std::size_t bytes, void** address);
int free_on(CUstream stream, void* address, const char* name);

}  // namespace pleat::simulated
