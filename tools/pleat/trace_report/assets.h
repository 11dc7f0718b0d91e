// The files of page/, made part of the program by page/embed.cmake.
#pragma once

#include <string_view>

namespace pleat::cli::assets {

extern const std::string_view kPage, kStyle, kScript;

}  // namespace pleat::cli::assets
