// How a block is to be coded on a device, without a look at its values: by what is asked, and by
// what earlier payloads of its key have taught. Torch-free.
#pragma once

#include <cstddef>
#include <optional>

#include "allocator/store/byte_ranges.h"
#include "compress/block/block_spec.h"
#include "torch_bridge/cuda/device_form.h"
#include "torch_bridge/cuda/key_lessons.h"

namespace pleat::bridge::cuda {

struct DevicePlan {
  compress::block::BlockSpec spec;  // what is asked, at the width that is used
  DeviceForm form;
  compress::Sides beside{};  // closed: as they stand beside values, or would have to
  bool gated = false;        // the source stays until the verdict
  bool judged = false;       // the device is to say more than that it is done
  bool any_byte = false;     // as DeviceTask has it
  std::size_t payload_bytes = 0, scratch_bytes = 0;
};

// Empty where the device has no form for the block.
//   ranges  `count` of them: the block's spans
[[nodiscard]] std::optional<DevicePlan> plan_on_device(const compress::block::BlockSpec& spec,
                                                       const KeyLesson& lesson,
                                                       const allocator::ByteRange* ranges,
                                                       std::size_t count) noexcept;

}  // namespace pleat::bridge::cuda
