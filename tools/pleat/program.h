// Becoming the program that was asked for, and lines for the person who asked.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <utility>

namespace pleat::cli {

// Exit codes as of env(1).
inline constexpr int kNotExecutable = 126;
inline constexpr int kNotFound = 127;

// Writes to stderr. A failed write must not end this process before the program.
template <typename... Arguments>
void say(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  const std::string text = fmt::format(format, std::forward<Arguments>(arguments)...);
  std::fwrite(text.data(), 1, text.size(), stderr);
}

// Runs the command, which ends with a null, in place of this program. Returns only if that fails:
// the exit code, the reason is on stderr.
[[nodiscard]] int become(char** command);

}  // namespace pleat::cli
