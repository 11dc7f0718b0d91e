// Where this library is: what belongs to it lies beside it.
#pragma once

#include <string>

namespace pleat::bridge {

// As the loader was asked for it; empty if that is not known.
[[nodiscard]] std::string path_of_this_library();

}  // namespace pleat::bridge
