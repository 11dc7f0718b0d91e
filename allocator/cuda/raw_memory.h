// What we need of the allocator that a CUDA device's memory comes from. The bridge gives the one
// that is in force; tests give their own.
#pragma once

#include <cstddef>

#include "allocator/ids.h"

namespace pleat::allocator::cuda {

// Threads: any. May take locks of its own, and wait for the device. Never calls back.
class RawMemory {
 public:
  // At least `bytes` on the device for work on `stream`; nullptr if there is no memory.
  [[nodiscard]] virtual void* allocate(DeviceIndex device, std::size_t bytes,
                                       StreamId stream) noexcept = 0;
  // Whether what this thread allocates now for work on `stream` goes to a pool of the script's own
  // (MemPool, a graph's), where nothing may stay that the script does not know of.
  [[nodiscard]] virtual bool is_private(DeviceIndex device, StreamId stream) noexcept = 0;
  // The memory serves again in the order of the stream it was allocated for, and once the streams
  // of note_use() have done what they were given before this call.
  virtual void free(void* pointer) noexcept = 0;
  // `stream` uses the memory, whatever stream that was allocated for.
  virtual void note_use(DeviceIndex device, void* pointer, StreamId stream) noexcept = 0;

 protected:
  ~RawMemory() = default;
};

}  // namespace pleat::allocator::cuda
