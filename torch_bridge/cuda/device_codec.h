// The codec of a CUDA device as the bridge sees it. The library beside the bridge has it, as only
// that library holds the kernels. Torch-free.
#pragma once

#include <cstdint>
#include <string>

#include "allocator/ids.h"
#include "allocator/residency/block_codec.h"
#include "torch_bridge/core/codec_totals.h"
#include "torch_bridge/core/counts.h"

namespace pleat::bridge::cuda {

// Why a block is held raw.
enum class DeviceHold : std::uint8_t {
  kNoForm,       // its type has no shorter form, or it is too small for one
  kNotYet,       // the last payload of its key was refused
  kRefused,      // the device has refused it
  kNoWords,      // more payloads wait for their verdicts than there are words for
  kNoDevice,     // the driver took no work
  kCount,
};
[[nodiscard]] constexpr const char* device_hold_name(DeviceHold hold) noexcept {
  switch (hold) {
    case DeviceHold::kNoForm:
      return "no_form";
    case DeviceHold::kNotYet:
      return "not_yet";
    case DeviceHold::kRefused:
      return "refused";
    case DeviceHold::kNoWords:
      return "no_words";
    case DeviceHold::kNoDevice:
      return "no_device";
    case DeviceHold::kCount:
      break;
  }
  return "?";
}

class DeviceCodec : public allocator::BlockCodec {
 public:
  // Takes the words that kernels write, loads the kernels, and codes a block there and back on
  // `stream`, which the calling thread waits for. No capture may be under way. False: `why` says in
  // a few words what is wrong; nothing is coded then. Once.
  [[nodiscard]] virtual bool open(allocator::StreamId stream, std::string& why) noexcept = 0;

  [[nodiscard]] virtual const CodecTotals& totals() const noexcept = 0;
  [[nodiscard]] virtual const Counts<DeviceHold>& holds() const noexcept = 0;
  // Payloads whose sources were given back before the device said that they had needed more care.
  [[nodiscard]] virtual std::uint64_t surprises() const noexcept = 0;

  // Around fork(): its locks, which are innermost.
  virtual void lock_for_fork() noexcept = 0;
  virtual void unlock_after_fork() noexcept = 0;
};

}  // namespace pleat::bridge::cuda
