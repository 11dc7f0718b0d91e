// Sizes, times and places of a trace as a person reads and writes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tools/pleat/trace/replay.h"

namespace pleat::cli {

inline constexpr std::size_t kMostWord = 60;  // characters of a place or an operator in a table

[[nodiscard]] std::string size_text(std::int64_t bytes);                  // "1.25 GiB"
[[nodiscard]] std::string share_of(std::int64_t part, std::int64_t all);  // "12.5 %"; of 0: ""
[[nodiscard]] std::string count_text(std::uint64_t count);                // "10,008,449"
[[nodiscard]] std::string device_text(int device);                        // "host", "cuda:1"
[[nodiscard]] std::string step_text(const trace::Lives& lives, std::uint32_t step);  // "4"; "-"

// Of a WhatIf: "at 4 bits", "at 2.5 bits", "lossless".
[[nodiscard]] std::string what_if_text(double bits);
// Messages for a trace without the data.
inline constexpr const char* kNoWhatIf =
    "the trace does not say what may be compressed: record it with bits:off";

// "8GiB", "1.5 MB", "4096": bytes. Nothing: it is no size.
[[nodiscard]] std::optional<std::uint64_t> parse_size(std::string_view text);

// A path in a line to the user: its end tells most, so all of it.
[[nodiscard]] std::string shown_path(std::string_view path);

}  // namespace pleat::cli
