// The codec of a CUDA device as the bridge sees it. The library beside the bridge has it, as only
// that library holds the kernels. Torch-free.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "allocator/ids.h"
#include "allocator/store/block_codec.h"
#include "compress/cuda/device_sketch.h"
#include "torch_bridge/core/device_facts.h"

namespace pleat::bridge::cuda {

class DeviceCodec : public allocator::BlockCodec {
 public:
  // Takes the words that kernels write, loads the kernels, and codes a block there and back on
  // `stream`, which the calling thread waits for. No capture may be under way. kNotYet: the job has
  // no context on the device so far. kNever: `why` says in a few words what is wrong. One thread at
  // a time, until it was another answer than kNotYet.
  enum class Opened : std::uint8_t { kYes, kNotYet, kNever };
  [[nodiscard]] virtual Opened open(allocator::StreamId stream, std::string& why) noexcept = 0;

  // The spans of a payload of lossy floats that this codec has made; none of another. Throws
  // std::bad_alloc.
  [[nodiscard]] virtual std::vector<CodedSpan> coded_spans(
      const allocator::PayloadView& payload) const = 0;

  // Queues sketches of vectors on the device. False: it will not, or has queued only some.
  [[nodiscard]] virtual bool sketch(std::span<const compress::cuda::SketchTask> tasks,
                                    allocator::StreamId stream) noexcept = 0;

  // The outcomes of blocks so far.
  [[nodiscard]] virtual const DeviceCounts& counts() const noexcept = 0;

  // Around fork(): its locks, which are innermost.
  virtual void lock_for_fork() noexcept = 0;
  virtual void unlock_after_fork() noexcept = 0;
};

}  // namespace pleat::bridge::cuda
