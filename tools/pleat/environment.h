// How a program is started: in the place of this one, with LD_PRELOAD and PLEAT_CONF merged with
// their present values.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pleat::cli {

// Options given as flags: key of the option table and value (any text), in the order given.
using Settings = std::vector<std::pair<std::string, std::string>>;

// The value of a variable, or "" if there is none.
[[nodiscard]] std::string variable(const char* name);

// Entries of an LD_PRELOAD value (spaces and colons separate), in order.
[[nodiscard]] std::vector<std::string> preload_entries(std::string_view value);

// Whether `entry` is a sanitizer's runtime, which refuses to start unless it comes first.
[[nodiscard]] bool is_sanitizer_runtime(std::string_view entry);

// `existing` with `library` in front (but behind sanitizer runtimes), each entry once.
[[nodiscard]] std::string merge_preload(std::string_view existing,
                                        const std::filesystem::path& library);

// False for a path that LD_PRELOAD cannot hold, because a separator is part of it.
[[nodiscard]] bool fits_preload(const std::filesystem::path& library);

// `existing` (PLEAT_CONF) with `settings`, quoted where needed, in place of its values for the same
// keys. Items with unbalanced quotes go last, so that they spoil no other item.
[[nodiscard]] std::string merge_conf(std::string_view existing, const Settings& settings);

// Exit codes as of env(1).
inline constexpr int kNotExecutable = 126;
inline constexpr int kNotFound = 127;

// Runs the command, which ends with a null, in place of this program. Returns only if that fails:
// the exit code, the reason is on stderr.
[[nodiscard]] int become(char** command);

// `text` as one word of a POSIX shell.
[[nodiscard]] std::string shell_quoted(std::string_view text);

}  // namespace pleat::cli
