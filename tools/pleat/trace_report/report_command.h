// `pleat trace report`: a trace as one page that needs nothing but a browser. This file is the
// command; watch.h gathers the page's data.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "tools/pleat/trace_command/request.h"

namespace pleat::cli {

struct TraceReportRequest : TraceSelection {
  std::string output;
  bool force = false;  // an existing file is replaced
  Moment at;
  std::optional<double> what_if;  // bits, or trace::kLossless; none: as kReportWhatIf says
  std::uint32_t depth = 0;        // of modules in their table; 0: any
};

// Adds `report` to `trace`. `request` must outlive the parsing.
[[nodiscard]] CLI::App* add_trace_report(CLI::App& trace, TraceReportRequest& request);
// Returns the exit code: 0, or kTraceTrouble with one line on stderr.
[[nodiscard]] int trace_report(const TraceReportRequest& request);

}  // namespace pleat::cli
