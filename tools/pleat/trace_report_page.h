// One page of HTML that holds all it needs, written so that nobody sees half of it.
#pragma once

#include <string>
#include <string_view>

namespace pleat::cli {

// plotly.min.js of this installation; empty: it is not there, and the page has no charts.
[[nodiscard]] std::string load_plotly();

// `json`: of report_json(). `title`: of the window, any text.
[[nodiscard]] std::string report_page(std::string_view title, std::string_view json,
                                      std::string_view plotly);

// Writes a file beside `path` and renames it. Empty: it is written; else why not, in a line
// without the path. `replace`: an existing file is replaced; else it is an error.
[[nodiscard]] std::string write_whole(const std::string& path, std::string_view content,
                                      bool replace);

}  // namespace pleat::cli
