// Lines for the person who asked.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <utility>

namespace pleat::cli {

// Writes to stderr. A failed write must not end this process before the program.
template <typename... Arguments>
void say(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  const std::string text = fmt::format(format, std::forward<Arguments>(arguments)...);
  std::fwrite(text.data(), 1, text.size(), stderr);
}

}  // namespace pleat::cli
