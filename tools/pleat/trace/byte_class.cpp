#include "byte_class.h"

#include <algorithm>

namespace pleat::trace {

std::optional<ByteClass> class_of_name(std::string_view name) noexcept {
  const auto it = std::find(kClassNames.begin(), kClassNames.end(), name);
  if (it == kClassNames.end()) return std::nullopt;
  return static_cast<ByteClass>(it - kClassNames.begin());
}

std::string_view phase_name(std::uint8_t phase) noexcept {
  constexpr std::array<std::string_view, 6> kNames{"other",     "forward", "backward",
                                                   "optimizer", "between", "data"};
  return phase < kNames.size() ? kNames[phase] : "?";
}

}  // namespace pleat::trace
