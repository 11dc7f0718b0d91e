// `pleat trace report`: a trace as one page that needs nothing but a browser. This file is the
// command; what the page tells is gathered in trace_report_watch.h.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "trace.h"
#include "trace/reader.h"

namespace pleat::cli {

struct TraceReportRequest {
  std::string output;
  bool force = false;  // an existing file is replaced
  // The file, device, moment and filter; nothing else of it counts.
  TraceSummaryRequest selection;
};

// Adds `report`, its output and its file to `trace`; the caller adds what other commands have, too.
[[nodiscard]] CLI::App* add_trace_report(CLI::App& trace, TraceReportRequest& request);

// Who is told how far pass 0 or 1 is.
using PassProgress = std::function<trace::Progress(int pass)>;
// `filter`: with its times. Returns the exit code: 0, or kTraceTrouble with one line on stderr.
[[nodiscard]] int trace_report(const TraceReportRequest& request, const PassProgress& progress);

}  // namespace pleat::cli
