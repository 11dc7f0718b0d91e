// The form of a block's payload (compress/block/form_plan.h) in the memory of a device. Torch-free.
#pragma once

#include <cstddef>
#include <optional>

#include "allocator/store/byte_ranges.h"
#include "compress/block/form_plan.h"
#include "torch_bridge/cuda/device_form.h"

namespace pleat::bridge::cuda {

struct DevicePlan : compress::block::FormPlan {
  DeviceForm form;
  std::size_t payload_bytes = 0, scratch_bytes = 0;
};

// Empty where the device has no form for the block.
//   ranges  `count` of them: the block's spans
[[nodiscard]] std::optional<DevicePlan> plan_on_device(const compress::block::BlockSpec& spec,
                                                       const compress::block::KeyLesson& lesson,
                                                       const allocator::ByteRange* ranges,
                                                       std::size_t count) noexcept;

}  // namespace pleat::bridge::cuda
