// How compress/ starts a kernel on a device, without knowing who owns the driver, context and
// streams. cuda/driver_launcher.h implements it over libcuda; an allocator with its own driver
// table can implement it likewise.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pleat::compress {

// A CUstream; 0 is the legacy default stream.
struct StreamHandle {
  std::uint64_t value = 0;
};

// Device code for every architecture, as nvcc's fatbinary has it. Lives as long as the process.
struct DeviceImage {
  const void* data = nullptr;
  std::size_t bytes = 0;
};

enum class LaunchStatus : std::uint8_t {
  kOk = 0,
  kNoDriver,   // there is no libcuda, or it lacks a function that is needed
  kNoContext,  // no device context is current in the calling thread
  kNoImage,    // built without device code, or with none that this device can run
  kFailed,     // the driver refused: see driver_error()
};

class KernelLauncher {
 public:
  virtual ~KernelLauncher() = default;

  // Loads `image` into the calling thread's current context, if it is not loaded yet. launch() does
  // this itself, but while a stream is being captured the driver may refuse; so call it before a
  // capture. Thread-safe.
  [[nodiscard]] virtual LaunchStatus prepare(const DeviceImage& image) noexcept = 0;

  // Queues one kernel on `stream` of the current context and returns at once. Starts as many blocks
  // as the device runs at a time, at most `most_blocks`, of `threads` threads each. `parameter` is
  // the kernel's only parameter and is copied before this returns. Thread-safe.
  [[nodiscard]] virtual LaunchStatus launch(const DeviceImage& image, const char* kernel,
                                            unsigned most_blocks, unsigned threads,
                                            const void* parameter,
                                            StreamHandle stream) noexcept = 0;

  // The driver's number for the last kFailed, kNoImage or kNoContext of this thread; 0: none.
  [[nodiscard]] virtual int driver_error() const noexcept = 0;
};

}  // namespace pleat::compress
