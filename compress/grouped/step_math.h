// The step that a group's metadata encode, and its consequences for sides. Included by the CPU
// paths and by the CUDA kernels; anonymous, for the reason given in element_math.h.
#pragma once

#include "compress/grouped/group_math.h"
#include "compress/sides/side_math.h"

namespace pleat::compress {
namespace {

// The step that the metadata encode, 0 where the group comes back exact.
template <class T>
PLEAT_HD inline float step_of_group(const Metadata<T>& metadata) {
  const GroupKind kind = kind_of<T>(metadata);
  return kind == GroupKind::kRegular || kind == GroupKind::kWide
             ? float_of(step_bits_of<T>(metadata.second))
             : 0.0f;
}

// True if some value that the group may be restored to is on another side than some element that it
// may stand for. All of them lie between the two ends. Zeros of zero-kept groups do not, but they
// are exact. Not for transformed groups: all that are quantised may leave.
template <class T>
PLEAT_HD inline bool group_may_leave(const Metadata<T>& metadata, unsigned bits,
                                     const SideTest& test) {
  const GroupKind kind = kind_of<T>(metadata);
  if (kind != GroupKind::kRegular && kind != GroupKind::kWide) return false;
  const Dequantiser group = read_lossy_group<T>(metadata, bits);
  const unsigned codes = kind == GroupKind::kWide ? wide_levels(bits) : 1u << bits;
  const float levels = static_cast<float>(codes - (group.keep_zero ? 2 : 1));
  const float near_end = fused(group.step, group.dither ? -0.5f : 0.0f, group.anchor);
  // Half a step more than codes reach: the step may be a rounding error too short for the range.
  float far_end = fused(group.step, levels + 0.5f, group.anchor);
  far_end = far_end < T::kLargest ? far_end : T::kLargest;
  far_end = far_end > -T::kLargest ? far_end : -T::kLargest;
  return side_of(test, T::to_float(T::from_float(near_end))) !=
         side_of(test, T::to_float(T::from_float(far_end)));
}

}  // namespace
}  // namespace pleat::compress
