#include "trace_commands.h"

#include "tools/pleat/trace_diff/diff_command.h"
#include "tools/pleat/trace_export/export_command.h"
#include "tools/pleat/trace_merge/merge_command.h"
#include "tools/pleat/trace_report/report_command.h"
#include "tools/pleat/trace_summary/summary_command.h"
#include "tools/pleat/trace_top/top.h"

namespace pleat::cli {

void add_trace_commands(CLI::App& app, TraceCommands& commands) {
  commands.all = app.add_subcommand("trace", "Say where a program's memory went");
  commands.all->footer(kSummaryExamples);
  commands.summary_request = std::make_shared<TraceSummaryRequest>();
  commands.summary = add_trace_summary(*commands.all, *commands.summary_request);
  commands.exporting = add_trace_export(*commands.all);
  commands.report_request = std::make_shared<TraceReportRequest>();
  commands.report = add_trace_report(*commands.all, *commands.report_request);
  commands.diff_request = std::make_shared<TraceDiffRequest>();
  commands.diff = add_trace_diff(*commands.all, *commands.diff_request);
  commands.merge_request = std::make_shared<TraceMergeRequest>();
  commands.merge = add_trace_merge(*commands.all, *commands.merge_request);
  commands.top_request = std::make_shared<TraceTopRequest>();
  commands.top = add_trace_top(*commands.all, *commands.top_request);
}

int run_trace_command(const TraceCommands& commands) {
  if (commands.summary->parsed()) return trace_summary(*commands.summary_request);
  if (trace_export_parsed(*commands.exporting)) return run_trace_export(*commands.exporting);
  if (commands.report->parsed()) return trace_report(*commands.report_request);
  if (commands.diff->parsed()) return trace_diff(*commands.diff_request);
  if (commands.merge->parsed()) return trace_merge(*commands.merge_request);
  if (commands.top->parsed()) return trace_top(*commands.top_request);
  std::fputs(commands.all->help("pleat").c_str(), stdout);
  return 0;
}

}  // namespace pleat::cli
