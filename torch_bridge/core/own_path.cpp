#include "torch_bridge/core/own_path.h"

#include <dlfcn.h>

namespace pleat::bridge {

std::string path_of_this_library() {
  Dl_info info{};
  const bool known = ::dladdr(reinterpret_cast<const void*>(&path_of_this_library), &info) != 0;
  return known && info.dli_fname != nullptr ? info.dli_fname : std::string();
}

}  // namespace pleat::bridge
