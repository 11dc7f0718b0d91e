// Whether sides can be kept of elements of a type.
#pragma once

#include "compress/types.h"

namespace pleat::compress {

// True if elements of the type can be kept as these sides: the type is floating, the bounds are
// values of it in order, and no element would need a NaN in its place.
[[nodiscard]] bool sides_hold(const Sides& sides, ElementType type) noexcept;

}  // namespace pleat::compress
