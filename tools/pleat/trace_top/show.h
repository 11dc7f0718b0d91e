// A page of `pleat trace top` as a person or a program reads it.
#pragma once

#include <cstddef>
#include <string>

#include "interpose/trace/top.h"
#include "tools/pleat/answer.h"

namespace pleat::cli {

// Several lines; `columns` of the terminal.
[[nodiscard]] std::string top_text(const trace::TopPage& page, std::size_t columns);
// One line.
[[nodiscard]] std::string top_line(const trace::TopPage& page);
[[nodiscard]] Json top_json(const trace::TopPage& page);

}  // namespace pleat::cli
