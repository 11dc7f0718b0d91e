// RawMemory is the interface to the allocator that provides a CUDA device's memory. The bridge
// implements it over the allocator in force; tests implement their own.
#pragma once

#include <cstddef>

#include "allocator/ids.h"

namespace pleat::allocator::cuda {

// Threads: any. Implementations can take their own locks and wait for the device, but never call
// back.
class RawMemory {
 public:
  // At least `bytes` on the device for work on `stream`; nullptr if memory is short.
  [[nodiscard]] virtual void* allocate(DeviceIndex device, std::size_t bytes,
                                       StreamId stream) noexcept = 0;
  // Whether an allocation of this thread for work on `stream` would now come from a private pool of
  // the script (MemPool, a graph's). Pleat must not keep memory there.
  [[nodiscard]] virtual bool is_private(DeviceIndex device, StreamId stream) noexcept = 0;
  // Returns the memory for reuse: in the order of the stream it was allocated for, and once the
  // streams of note_use() have completed the work queued before this call.
  virtual void free(void* pointer) noexcept = 0;
  // Records that `stream` uses the memory, which can have been allocated for another stream.
  virtual void note_use(DeviceIndex device, void* pointer, StreamId stream) noexcept = 0;

 protected:
  ~RawMemory() = default;
};

}  // namespace pleat::allocator::cuda
