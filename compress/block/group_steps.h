// The steps of a payload's groups, and whether they may carry an element to another side.
#pragma once

#include <cstddef>
#include <vector>

#include "compress/types.h"

namespace pleat::compress {

// The step of each group of a payload that encode() made, 0 where the group comes back exact; none
// if all of the payload does. Of a scaled group, the step that has its mean squared error. Of a
// transformed group, the step of its rotated elements. With exponents, the widest step of the
// group's parts; with a table, the root mean square of its elements' steps. Throws std::bad_alloc.
[[nodiscard]] std::vector<float> group_steps(const void* payload);

// True if an element that decode() restores from `payload` may be on another side than the element
// it was encoded from. Looks at the metadata of the groups, not at their codes.
//   sides  as sides_beside_values() (sides.h) gives them
[[nodiscard]] bool may_leave_side(const void* payload, std::size_t payload_bytes,
                                  const Sides& sides) noexcept;

}  // namespace pleat::compress
