// One page of HTML that holds all it needs.
#pragma once

#include <string>
#include <string_view>

namespace pleat::cli {

// plotly.min.js of this installation; empty: it is not there, and the page has no charts.
[[nodiscard]] std::string load_plotly();

// `json`: of report_json(). `title`: of the window, any text.
[[nodiscard]] std::string report_page(std::string_view title, std::string_view json,
                                      std::string_view plotly);

}  // namespace pleat::cli
