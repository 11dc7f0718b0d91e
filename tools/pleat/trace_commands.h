// `pleat trace`: a program's memory, from its trace. Reads files; starts no process.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>

namespace pleat::cli {

class TraceExportCommand;
struct TraceSummaryRequest;
struct TraceReportRequest;
struct TraceDiffRequest;
struct TraceMergeRequest;
struct TraceTopRequest;

struct TraceCommands {
  CLI::App* all = nullptr;
  CLI::App* summary = nullptr;
  std::shared_ptr<TraceSummaryRequest> summary_request;
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
// Adds `trace` and its commands to `app`. `commands` must outlive `app`.
void add_trace_commands(CLI::App& app, TraceCommands& commands);
// Runs the parsed command. Returns the exit code.
[[nodiscard]] int run_trace_command(const TraceCommands& commands);

}  // namespace pleat::cli
