// `pleat trace`: what a trace knows of a program's memory. Reads files; starts nothing.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "moment.h"
#include "tools/pleat/trace/filter.h"
#include "tools/pleat/trace/groups.h"

namespace pleat::cli {

// Which file, and which part of it.
struct TraceSelection {
  std::string file;
  std::optional<int> device;  // -1: the host; none: all
  double since_seconds = 0;
  std::optional<double> until_seconds;
  trace::Filter filter;  // but for its times
  bool symbols = true;   // names of native functions are looked up
  std::vector<trace::GroupRule> groups;
};

struct TraceSummaryRequest : TraceSelection {
  bool as_json = false;
  std::size_t top = 10;     // rows of each table
  std::uint32_t depth = 0;  // of modules in their table; 0: any
  Moment at;
  std::optional<double> what_if;  // bits, or trace::kLossless
  std::optional<std::uint64_t> most_peak_bytes;
  std::optional<std::uint64_t> most_growth_bytes;  // a step
};

// Exit codes: 0; 2, no trace or an output that cannot be written; 3, over a limit. Reasons are one
// line on stderr.
inline constexpr int kTraceTrouble = 2;
inline constexpr int kOverLimit = 3;
[[nodiscard]] int trace_summary(const TraceSummaryRequest& request);

class TraceExportCommand;
struct TraceReportRequest;
struct TraceDiffRequest;
struct TraceMergeRequest;
struct TraceTopRequest;

struct TraceCommands {
  CLI::App* all = nullptr;
  CLI::App* summary = nullptr;
  TraceSummaryRequest summary_request;
  std::shared_ptr<TraceExportCommand> exporting;
  CLI::App* report = nullptr;
  std::shared_ptr<TraceReportRequest> report_request;
  CLI::App* diff = nullptr;
  std::shared_ptr<TraceDiffRequest> diff_request;
  CLI::App* merge = nullptr;
  std::shared_ptr<TraceMergeRequest> merge_request;
  CLI::App* top = nullptr;
  std::shared_ptr<TraceTopRequest> top_request;
};
// Adds `trace` and what it can do to `app`. `commands` must outlive `app`.
void add_trace_commands(CLI::App& app, TraceCommands& commands);
// What was parsed. Returns the exit code.
[[nodiscard]] int run_trace_command(const TraceCommands& commands);

}  // namespace pleat::cli
