#include "compress/sides/side_bounds.h"

#include "compress/float_environment.h"
#include "compress/sides/side_values.h"

namespace pleat::compress {
namespace {

template <class Element>
bool are_sound(const Sides& sides) noexcept {
  return side_values<Element>(sides).sound;
}

}  // namespace

bool sides_hold(const Sides& sides, ElementType type) noexcept {
  const FloatEnvironment environment;
  if (!sides.any()) return false;
  switch (type) {
    case ElementType::kFloat32:
      return are_sound<Float32>(sides);
    case ElementType::kBFloat16:
      return are_sound<BFloat16>(sides);
    case ElementType::kFloat16:
      return are_sound<Float16>(sides);
    default:
      return false;
  }
}

}  // namespace pleat::compress
