#include "trace_report.h"

#include <filesystem>
#include <new>
#include <optional>

#include "program.h"
#include "torch_bridge/core/option_text.h"
#include "trace_report_json.h"
#include "trace_report_page.h"
#include "trace_text.h"

namespace pleat::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kExamples =
    R"text(Makes one page of HTML from a trace. The page needs nothing but a browser: no network, no other file.
It shows memory over time by what it is for; which operators and lines it belongs to; a flame graph
and a map of memory at the peak; what compression did; what grows from step to step.

With --op, --class, --step and --min-size the tables and the flame graph at that moment hold
matching blocks only; curves and sums over the run hold all.

Exit code: 0; 2, no trace, or an output that exists or cannot be written.

Examples:
  pleat trace report run.trace -o run.html
  pleat trace report run.trace -o end.html --at end --force
  pleat trace report run.trace -o gpu.html --device cuda:0 --class "saved raw")text";

int trouble(const std::string& file, const std::string& why) {
  say("pleat: {}: {}\n", bridge::printable(file), why);
  return kTraceTrouble;
}

trace::Filter filter_with_times(const TraceSummaryRequest& selection, const trace::File& file) {
  const auto moment = [&](double seconds) {
    return file.start_ns() + static_cast<std::uint64_t>(seconds * 1e9);
  };
  trace::Filter filter = selection.filter;
  if (selection.since_seconds > 0) filter.since_ns = moment(selection.since_seconds);
  if (selection.until_seconds) filter.until_ns = moment(*selection.until_seconds);
  return filter;
}

int make_report(const TraceReportRequest& request, const PassProgress& progress) {
  const std::string& trace_path = request.selection.file;
  std::error_code ignored;
  if (fs::equivalent(trace_path, request.output, ignored))
    return trouble(request.output, "is the trace itself");
  // Before the work; write_whole() looks again.
  if (!request.force && fs::exists(fs::symlink_status(request.output, ignored)))
    return trouble(request.output, "exists; --force replaces it");
  std::string error;
  const std::unique_ptr<trace::File> file = trace::File::open(trace_path, error);
  if (file == nullptr) return trouble(trace_path, error);
  std::string json;
  {
    const trace::Replay replay(*file, filter_with_times(request.selection, *file), progress(0));
    trace::Lines lines(file->definitions());
    const TraceReport report = gather_report(replay, lines, request.selection, progress(1));
    progress(2);
    if (report.devices.empty() && request.selection.device)
      return trouble(trace_path, "has nothing of " + device_text(*request.selection.device));
    json = report_json(report, lines, request.selection);
  }
  const std::string plotly = load_plotly();
  const std::string title = trace_path.substr(trace_path.rfind('/') + 1);
  error = write_whole(request.output, report_page(title, json, plotly), request.force);
  if (!error.empty()) return trouble(request.output, error);
  if (plotly.empty())
    say("pleat: {}: charts are left out: plotly.min.js was not there\n",
        bridge::printable(request.output));
  return 0;
}

}  // namespace

CLI::App* add_trace_report(CLI::App& trace, TraceReportRequest& request) {
  CLI::App* const command =
      trace.add_subcommand("report", "Make a page of HTML that shows where memory went");
  command->footer(kExamples);
  command->add_option("FILE", request.selection.file, "a trace")->required()->type_name("");
  command->add_option("-o,--output", request.output, "the page")->required()->type_name("FILE");
  command->add_flag("--force", request.force, "replace a file that exists");
  return command;
}

int trace_report(const TraceReportRequest& request, const PassProgress& progress) {
  try {
    return make_report(request, progress);
  } catch (const std::bad_alloc&) {
    return trouble(request.selection.file, "not enough memory to read it");
  }
}

}  // namespace pleat::cli
