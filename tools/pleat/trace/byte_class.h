// The classes of live bytes, by their names.
#pragma once

#include <optional>
#include <string_view>

#include "interpose/byte_class.h"
#include "torch_bridge/c_abi.h"

namespace pleat::trace {

[[nodiscard]] std::optional<ByteClass> class_of_name(std::string_view name) noexcept;

}  // namespace pleat::trace
