// The data of a page, as JSON that may stand inside <script> whatever a trace's names are.
#pragma once

#include <string>

#include "watch.h"

namespace pleat::cli {

// Of the page: its keys are read by trace_report/*.js and by nobody else.
[[nodiscard]] std::string report_json(const TraceReport& report, trace::Lines& lines,
                                      const TraceReportRequest& selection);

}  // namespace pleat::cli
