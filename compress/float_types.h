// From an element type to the struct that has its arithmetic. Internal to compress/.
#pragma once

#include "compress/element_math.h"
#include "compress/types.h"

namespace pleat::compress {
namespace {

// body.operator()<T>(), where T has the arithmetic of a floating type.
template <class Body>
auto with_type(ElementType type, Body body) {
  switch (type) {
    case ElementType::kFloat32:
      return body.template operator()<Float32>();
    case ElementType::kBFloat16:
      return body.template operator()<BFloat16>();
    default:
      return body.template operator()<Float16>();
  }
}

}  // namespace
}  // namespace pleat::compress
