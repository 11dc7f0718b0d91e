// The functions of libc10_cuda that the bridge needs, which CPU builds of torch do not have. A
// library of its own implements it, linked to libc10_cuda; the bridge opens that library where
// libc10_cuda is loaded. Both are built together: the one function between them checks that.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "allocator/cuda/driver.h"
#include "allocator/cuda/raw_memory.h"
#include "allocator/ids.h"
#include "torch_bridge/cuda/device_codec.h"

namespace pleat::bridge::cuda {

// A listener that is called for frees. Lives as long as the process. Functions are called with no
// lock of torch's allocator held.
class FreeListener {
 public:
  // A storage gives this pointer up. True: the listener has taken the memory over, and gives it to
  // RawMemory::free() once it is done with it. Any thread, also at the end of the process.
  [[nodiscard]] virtual bool keep(void* pointer) noexcept = 0;
  // `bytes` are about to be allocated on `device`, a number.
  virtual void allocating(std::int32_t device, std::size_t bytes) noexcept = 0;
  // There is no memory for them. True: some was freed, so the allocation is tried again. False: the
  // listener can free no more.
  [[nodiscard]] virtual bool make_room(std::int32_t device, std::size_t bytes) noexcept = 0;
  // There was none. In the thread that asked.
  virtual void refused(std::size_t bytes, std::int32_t device) noexcept = 0;
  // The stack that torch's history of memory shows of a thread that has none.
  [[nodiscard]] virtual std::shared_ptr<c10::GatheredContext> no_stack() = 0;

 protected:
  ~FreeListener() = default;
};

struct CurrentStream {
  allocator::StreamId stream;
  bool foreign = false;  // neither the default stream nor of torch's pools: may be destroyed
};

// Memory comes from the allocator that stands behind ours. Threads: any.
class CudaAccess : public allocator::cuda::RawMemory {
 public:
  // The stream that operators of this thread use on that device now, whatever its current device
  // is.
  [[nodiscard]] virtual CurrentStream current_stream(c10::DeviceIndex device) const noexcept = 0;
  // The facts about memory whose free reaches the listener. Empty for memory of private pools and
  // captured graphs, which stays where it is, and for memory that was imported, or allocated before
  // ours stood in front.
  struct Heard {
    allocator::StreamId stream;  // that it was allocated for
    bool used_elsewhere;         // some stream was said to use it
  };
  [[nodiscard]] virtual std::optional<Heard> heard(const c10::DataPtr& data) const noexcept = 0;
  // A storage's memory, at a pointer that RawMemory gave: the listener will hear of its free.
  [[nodiscard]] virtual c10::DataPtr over(void* pointer, c10::DeviceIndex device) const = 0;
  // Memory of some device goes to a private pool: a graph may be being captured.
  [[nodiscard]] virtual bool may_capture() const noexcept = 0;
  // Around fork(): locks of the library's own, which are innermost.
  virtual void lock_for_fork() noexcept = 0;
  virtual void unlock_after_fork() noexcept = 0;
  // The codec of a device. Throws std::bad_alloc.
  [[nodiscard]] virtual std::unique_ptr<DeviceCodec> make_codec(
      const allocator::cuda::Driver& driver, allocator::cuda::DriverLife& life,
      c10::DeviceIndex device) const = 0;
  // torch's allocator of CUDA tensors now.
  [[nodiscard]] virtual c10::Allocator* allocator() const noexcept = 0;
  // Memory for work on the current stream, or the error that torch raises without it.
  [[nodiscard]] virtual c10::DataPtr allocate_storage(std::size_t bytes,
                                                      c10::DeviceIndex device) const = 0;
  // The error that torch raises for so many bytes, if there is no memory for them even now.
  virtual void raise_out_of_memory(std::size_t bytes, c10::DeviceIndex device) const = 0;

 protected:
  ~CudaAccess() = default;
};

inline constexpr unsigned kAccessVersion = 9;
// Puts our allocator in front of the one in force. Null: the library is of another build, or one of
// ours stands there already. Makes no CUDA call. "pleat_cuda_access" by name.
using OpenAccess = CudaAccess* (*)(unsigned version, const char* torch_version,
                                   FreeListener* listener) noexcept;

}  // namespace pleat::bridge::cuda
