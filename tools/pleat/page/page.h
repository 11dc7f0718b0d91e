// One page of HTML that holds all it needs: of a trace or of a profile.
#pragma once

#include <string>
#include <string_view>

#include "tools/pleat/answer.h"

namespace pleat::cli {

enum class PageOf : unsigned char { kTrace, kProfile };

// plotly.min.js of this installation; empty: it is not there, and the page has no charts.
[[nodiscard]] std::string load_plotly();

// `title`: of the window, any text. `data`: its keys are read by the page's scripts only.
[[nodiscard]] std::string make_page(PageOf of, std::string_view title, const Json& data,
                                    std::string_view plotly = {});

}  // namespace pleat::cli
