// Runs the CUDA kernels for sections next to codes (compress/cuda/device_asides.h) on the CPU:
// tiles in any order.
#pragma once

#include <functional>

#include "compress/device/jobs.h"
#include "compress/types.h"

namespace pleat::compress::test {

//   pick(n)  which of n tiles is next
using Pick = std::function<unsigned(unsigned)>;
void emulate_look_at_columns(ElementType type, const cuda::LineJob& job, const Pick& pick);
void emulate_keep_lines(ElementType type, const cuda::LineJob& job, const Pick& pick);
void emulate_restore_lines(ElementType type, const cuda::LineJob& job, const Pick& pick);
void emulate_spread(ElementType type, const cuda::LineJob& job, const Pick& pick);
void emulate_mix(ElementType type, const cuda::LineJob& job, const Pick& pick);
void emulate_keep_near_zero(ElementType type, const cuda::Job& job, const Pick& pick);
void emulate_restore_near_zero(ElementType type, const cuda::Job& job, const Pick& pick);
void emulate_sketch(ElementType type, const cuda::Job& job, const Pick& pick);

}  // namespace pleat::compress::test
