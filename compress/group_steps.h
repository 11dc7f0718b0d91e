// How wide the steps of a payload's groups are.
#pragma once

#include <cstddef>
#include <vector>

namespace pleat::compress {

// The step of each group of a payload that encode() made, 0 where the group comes back exact; none
// if all of the payload does. Of a scaled group, the step that has its mean squared error. Of a
// transformed group, the step of its rotated elements. Throws std::bad_alloc.
[[nodiscard]] std::vector<float> group_steps(const void* payload);

}  // namespace pleat::compress
