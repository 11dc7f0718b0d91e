// Helpers that tests of launches share: a launcher that records them, and tasks.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "compress/cuda/device_codec.h"
#include "tests/compress/support.h"

namespace pleat::compress::test {

// A launcher that takes the built image for granted: the tasks' launches are of interest. Its
// device runs twelve blocks at a time.
class Recorder final : public KernelLauncher {
 public:
  struct Launch {
    std::string kernel;
    unsigned most_blocks, blocks, threads;
    cuda::Batch batch;
    std::uint64_t stream;
  };
  LaunchStatus prepare(const DeviceImage&) noexcept override { return LaunchStatus::kOk; }
  LaunchStatus launch(const DeviceImage& image, const char* kernel, unsigned most_blocks,
                      unsigned threads, const void* parameter,
                      StreamHandle stream) noexcept override {
    EXPECT_EQ(image.data, cuda::device_image().data);
    if (launches.size() == fail_at) return LaunchStatus::kFailed;
    launches.push_back(
        {kernel, most_blocks, std::min(most_blocks, 12u), threads, {}, stream.value});
    std::memcpy(&launches.back().batch, parameter, sizeof(cuda::Batch));
    return LaunchStatus::kOk;
  }
  int driver_error() const noexcept override { return 0; }

  std::vector<Launch> launches;
  std::size_t fail_at = SIZE_MAX;
};

inline cuda::DeviceTask task_of(ElementType type, unsigned bits, std::size_t elements,
                                Transform transform = Transform::kNone) {
  cuda::DeviceTask task;
  task.type = type;
  task.bits = static_cast<std::uint8_t>(bits);
  task.elements = elements;
  task.transform = transform;
  return task;
}

}  // namespace pleat::compress::test
