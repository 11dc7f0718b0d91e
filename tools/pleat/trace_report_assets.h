// The files of trace_report/, made part of the program by trace_report/embed.cmake.
#pragma once

#include <string_view>

namespace pleat::cli::assets {

extern const std::string_view kPage, kStyle, kScript;

}  // namespace pleat::cli::assets
