// The step that a group's metadata encode, and its consequences for sides. Included by the CPU
// paths and by the CUDA kernels; anonymous, for the reason given in element_math.h.
#pragma once

#include "compress/grouped/group_math.h"
#include "compress/sides/side_math.h"

namespace pleat::compress {
namespace {

// False where the group comes back exact.
template <class T>
PLEAT_HD inline bool is_quantised(const Metadata<T>& metadata) {
  const GroupKind kind = kind_of<T>(metadata);
  return kind == GroupKind::kRegular || kind == GroupKind::kWide;
}
// The step that the metadata encode, 0 where the group comes back exact.
template <class T>
PLEAT_HD inline float step_of_group(const Metadata<T>& metadata) {
  return is_quantised<T>(metadata) ? float_of(step_bits_of<T>(metadata.second)) : 0.0f;
}

// True if some value that the group may be restored to is on another side than some element that it
// may stand for. All of them lie between the two ends. Zeros of zero-kept groups do not, but they
// are exact. Not for transformed groups: all that are quantised may leave.
//   exponent  not below 0: for elements that are divided by this power of two once restored
template <class T>
PLEAT_HD inline bool group_may_leave(const Metadata<T>& metadata, unsigned bits,
                                     const SideTest& test, int exponent = 0) {
  if (!is_quantised<T>(metadata)) return false;
  const Dequantiser group = read_lossy_group<T>(metadata, bits);
  const unsigned codes = kind_of<T>(metadata) == GroupKind::kWide ? wide_levels(bits) : 1u << bits;
  const float levels = static_cast<float>(codes - (group.keep_zero ? 2 : 1));
  float near_end = fused(group.step, group.dither ? -0.5f : 0.0f, group.anchor);
  // Half a step more than codes reach: the step may be a rounding error too short for the range.
  float far_end = fused(group.step, levels + 0.5f, group.anchor);
  far_end = far_end < T::kLargest ? far_end : T::kLargest;
  far_end = far_end > -T::kLargest ? far_end : -T::kLargest;
  near_end = T::to_float(T::from_float(near_end));
  far_end = T::to_float(T::from_float(far_end));
  if (exponent != 0) {
    const float part = float_of(static_cast<uint32_t>(127 - exponent) << 23);
    near_end = T::to_float(T::from_float(near_end * part));
    far_end = T::to_float(T::from_float(far_end * part));
  }
  return side_of(test, near_end) != side_of(test, far_end);
}

}  // namespace
}  // namespace pleat::compress
