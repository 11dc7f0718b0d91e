// Queues noise for each piece of a block on a device. The kernels that code do it, so the noise is
// what they could have made. Torch-free.
#pragma once

#include <cstddef>
#include <cstdint>

#include "allocator/ids.h"
#include "allocator/store/block_codec.h"
#include "compress/block/block_spec.h"
#include "compress/cuda/device_asides.h"
#include "compress/cuda/device_codec.h"
#include "compress/kernel_launcher.h"
#include "torch_bridge/cuda/device_tasks.h"

namespace pleat::bridge::cuda {

class DeviceNoise {
 public:
  // `words`: as pack_disturbance() makes them. The codes are those of `payload`, if it has any.
  DeviceNoise(const allocator::DisturbanceWords& words,
              const allocator::PayloadView& payload) noexcept;

  // False: all stays as it is.
  [[nodiscard]] bool any() const noexcept;
  // False: the span [begin, end) of a block is too short to be coded, or has no whole elements, and
  // stays as it is.
  [[nodiscard]] bool reaches(std::size_t begin, std::size_t end) const noexcept;
  // Bytes of the memory that queue() needs for the pieces of such a block: at most some MiB.
  [[nodiscard]] std::size_t scratch(std::size_t block_bytes) const noexcept;

  // Queues all for a span, piece by piece. False: the driver has refused a launch.
  //   number      of the span; only_one: the block has no other
  //   scratch     used for one piece after the other
  //   workspace   likewise
  [[nodiscard]] bool queue(compress::KernelLauncher& launcher, allocator::StreamId stream,
                           std::byte* span, std::size_t bytes, std::uint64_t number, bool only_one,
                           std::byte* scratch, Workspace workspace) const noexcept;

 private:
  // Where the parts of scratch memory begin.
  struct Place {
    std::size_t values = 0, section = 0, of_lines = 0, end = 0;  // behind the codes
  };
  [[nodiscard]] Place place(std::size_t elements) const noexcept;
  [[nodiscard]] std::size_t piece() const noexcept;  // elements of all but the last
  [[nodiscard]] bool has_lines(std::size_t elements) const noexcept;
  [[nodiscard]] compress::cuda::DeviceTask code(std::size_t elements) const noexcept;
  [[nodiscard]] compress::cuda::LineTask lines(std::size_t elements) const noexcept;
  [[nodiscard]] bool queue_piece(compress::KernelLauncher& launcher, allocator::StreamId stream,
                                 std::byte* piece, std::size_t elements, std::uint64_t nonce,
                                 bool with_lines, std::byte* scratch,
                                 Workspace workspace) const noexcept;

  compress::block::BlockSpec spec_;
  std::uint64_t nonce_ = 0;
  compress::cuda::DeviceTask code_;
  compress::cuda::MixTask mix_;
};

}  // namespace pleat::bridge::cuda
