// How compress/ starts a kernel on a device, without knowing whose driver, context or streams those
// are. cuda/driver_launcher.h implements it over libcuda; an allocator with a driver table of its
// own does likewise.
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
  kNoDriver,   // no libcuda here, or one that lacks what is needed
  kNoContext,  // no device context is current in the calling thread
  kNoImage,    // built without device code, or none that this device can run
  kFailed,     // the driver refused: see driver_error()
};

class KernelLauncher {
 public:
  virtual ~KernelLauncher() = default;

  // Loads `image` into the calling thread's current context, where it is not there yet. launch()
  // does so by itself; but not while a stream is being captured, when the driver may refuse.
  [[nodiscard]] virtual LaunchStatus prepare(const DeviceImage& image) noexcept = 0;

  // Queues one kernel on `stream` of the current context and returns at once: as many blocks as its
  // device runs at a time, at most `most_blocks`, of `threads` each. `parameter` is the kernel's
  // only one; it is copied before this returns. Thread-safe.
  [[nodiscard]] virtual LaunchStatus launch(const DeviceImage& image, const char* kernel,
                                            unsigned most_blocks, unsigned threads,
                                            const void* parameter,
                                            StreamHandle stream) noexcept = 0;

  // The driver's number for the last kFailed, kNoImage or kNoContext of this thread; 0: none.
  [[nodiscard]] virtual int driver_error() const noexcept = 0;
};

}  // namespace pleat::compress
