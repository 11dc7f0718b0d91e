// The scales of the keys of one device (scales.h). The host cannot look at values there, so a
// sample of a tensor is copied to pinned memory in the stream that encodes it. It is read before
// the next tensor of the key is planned. Torch-free.
//
// How a tensor is coded does not depend on when a sample has come: the caller waits for it.
//
// Threads: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "allocator/cuda/device_words.h"
#include "allocator/cuda/driver.h"
#include "allocator/store/block_codec.h"
#include "compress/block/block_spec.h"
#include "torch_bridge/core/key_scales.h"

namespace pleat::bridge::cuda {

class DeviceScales {
 public:
  static constexpr std::size_t kSamples = 8;  // under way at a time
  static constexpr std::size_t kSampleBytes = std::size_t{512} << 10;

  // All outlive this. Makes no CUDA call.
  DeviceScales(const allocator::cuda::Driver& driver, allocator::cuda::DriverLife& life,
               allocator::cuda::DeviceWords& words) noexcept
      : driver_(driver), life_(life), words_(words) {}

  // Allocates the pinned memory, 4 MiB. The device's context must be current and no capture under
  // way. Returns the driver's error. Called once.
  [[nodiscard]] int open() noexcept;

  // The scales of what is asked, and whether a sample of the tensor is to be queued. A request that
  // is closed, or whose values have no scales, has none. No sample of the key is under way.
  [[nodiscard]] KeyScales::Answer ask(const allocator::EncodeRequest& request) noexcept;
  // Queues the copies of a sample on the request's stream. There must be room (is_full()). The
  // device's context must be current. Without success the key keeps its scales.
  void sample(const allocator::EncodeRequest& request) noexcept;

  // Of the samples that are under way. Both learn from those that have come.
  //   expects  the stream of a sample of the key
  //   is_full  the stream of the oldest sample, where there is no room for another
  [[nodiscard]] std::optional<allocator::StreamId> expects(allocator::TensorKey key) noexcept;
  [[nodiscard]] std::optional<allocator::StreamId> is_full() noexcept;
  // The device has failed: what was queued on the stream will not come.
  void forget(allocator::StreamId stream) noexcept;

  void lock_for_fork() noexcept { mutex_.lock(); }
  void unlock_after_fork() noexcept { mutex_.unlock(); }

 private:
  struct Sample {
    allocator::TensorKey key;
    allocator::CodecWords choice;
    allocator::StreamId stream;
    std::size_t elements = 0;
    std::byte* memory = nullptr;
    allocator::cuda::DeviceWords::Slot done;  // not 0 once all is copied
  };

  void read_what_has_come() noexcept;  // with the mutex
  void give_back(const Sample& sample) noexcept;

  const allocator::cuda::Driver& driver_;
  allocator::cuda::DriverLife& life_;
  allocator::cuda::DeviceWords& words_;
  KeyScales scales_;
  std::mutex mutex_;  // before those of scales and words
  std::vector<std::byte*> idle_;
  std::vector<Sample> under_way_;  // the oldest first
};

}  // namespace pleat::bridge::cuda
