// The tasks of a device for the payload of one block: the tasks of each span, and their launches.
// Both directions have the same parts in the same places. Torch-free.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "allocator/ids.h"
#include "compress/cuda/device_asides.h"
#include "compress/cuda/device_codec.h"
#include "compress/kernel_launcher.h"
#include "torch_bridge/cuda/device_form.h"

namespace pleat::bridge::cuda {

// The memory of a stream's launches (DeviceWords): counters for the jobs of a launch, and words for
// verdicts that are not read.
class Workspace {
 public:
  explicit Workspace(std::uint64_t address) noexcept : address_(address) {}
  [[nodiscard]] compress::cuda::Counters* counters(std::size_t task) const noexcept;
  [[nodiscard]] compress::cuda::Verdict* unread(std::size_t task) const noexcept;

 private:
  std::uint64_t address_;
};

struct DeviceTasks {
  std::vector<compress::cuda::DeviceTask> codes, sides;
  std::vector<compress::cuda::LineTask> lines;
  std::vector<compress::cuda::NearZeroTask> near_zero;

  // Throws std::bad_alloc.
  void reserve(const DeviceForm& form, std::size_t spans);

  enum class Way : bool { kEncode, kDecode };
  // Adds the tasks for a span, for which reserve() has made room. Its verdicts are not read. The
  // caller adds the fields that the form does not hold (nonce, bounds, the table, scratch memory,
  // verdicts), at the end of each list.
  //   elements  the device's address of the span; payload: that of the payload
  void add(Way way, const DeviceForm& form, const SpanPlace& place, void* elements, void* payload,
           Workspace workspace) noexcept;

  // All launches, in the order in which one needs the other: codes first, since what else is kept
  // is judged by them, and put back into what they have restored. False: the driver has refused
  // one.
  [[nodiscard]] bool launch_encode(compress::KernelLauncher& launcher,
                                   allocator::StreamId stream) const noexcept;
  [[nodiscard]] bool launch_decode(compress::KernelLauncher& launcher,
                                   allocator::StreamId stream) const noexcept;
};

}  // namespace pleat::bridge::cuda
