// Whether sides can be kept of elements of a type.
#pragma once

#include "compress/float_environment.h"
#include "compress/float_types.h"
#include "compress/sides/side_values.h"

namespace pleat::compress {

// True if elements of the type can be kept as these sides: the type is floating, the bounds are
// values of it in order, and no element would need a NaN in its place.
[[nodiscard]] inline bool sides_hold(const Sides& sides, ElementType type) noexcept {
  const FloatEnvironment environment;
  return sides.any() && is_floating(type) &&
         with_type(type, [&]<class T>() { return side_values<T>(sides).sound; });
}

}  // namespace pleat::compress
