#include "byte_class.h"

#include <algorithm>

namespace pleat::trace {

std::optional<ByteClass> class_of_name(std::string_view name) noexcept {
  const auto it = std::find(kClassNames.begin(), kClassNames.end(), name);
  if (it == kClassNames.end()) return std::nullopt;
  return static_cast<ByteClass>(it - kClassNames.begin());
}

}  // namespace pleat::trace
