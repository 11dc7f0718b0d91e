#include "trace.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <new>

#include "profile_output.h"
#include "program.h"
#include "torch_bridge/core/option_text.h"
#include "trace_export.h"
#include "trace_options.h"
#include "trace_report.h"
#include "trace_summary.h"
#include "trace_text.h"

namespace pleat::cli {
namespace {

constexpr const char* kSummaryExamples =
    R"text(Says of a trace: when most memory was live, what it was made of and which lines of the program it
belongs to; what grows from step to step; what is reserved and unused; what compression saved.

  saved raw   saved for backward, not compressed (yet)       payloads  compressed
  restored    given back to backward                         temporary born and freed in one phase
  kept        of forward or backward, outlives its phase: the program holds it
  unknown     there before the trace, or nothing is known of it
  slack       rounding, and chunks of payloads that have room left
  cached      reserved, and free

Exit code: 0; 2, no trace, or bad options; 3, over --max-peak or --max-growth.

Examples:
  pleat trace summary run.trace
  pleat trace summary run.trace --at oom --top 30
  pleat trace summary run.trace --class kept --min-size 1MiB
  pleat trace summary run.trace --json --max-peak 8GiB --max-growth 1MiB/step
  pleat trace export --to perfetto -o run.pftrace run.trace)text";

}  // namespace

// ---- options ------------------------------------------------------------------------------------

void refuse(const char* option, std::string_view value, std::string_view allowed) {
  throw CLI::ValidationError(
      option, fmt::format("'{}': allowed are {}", bridge::printable(value), allowed));
}

std::optional<double> parse_seconds(std::string_view text) {
  if (text.ends_with('s')) text.remove_suffix(1);
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end || !(number >= 0 && number < 1e9)) return std::nullopt;
  return number;
}

std::optional<Moment> parse_moment(std::string_view text) {
  using Kind = Moment::Kind;
  if (text == "peak") return Moment{Kind::kPeak};
  if (text == "end") return Moment{Kind::kEnd};
  if (text == "oom") return Moment{Kind::kOutOfMemory};
  const std::optional<double> seconds = parse_seconds(text);
  return seconds ? std::optional(Moment{Kind::kTime, *seconds}) : std::nullopt;
}

std::optional<std::uint64_t> parse_count(std::string_view text) {
  std::uint64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end) return std::nullopt;
  return number;
}

std::optional<int> parse_device(std::string_view text) {
  if (text == "host" || text == "cpu") return -1;
  if (text.starts_with("cuda:")) text.remove_prefix(5);
  const std::optional<std::uint64_t> number = parse_count(text);
  return number && *number < 128 ? std::optional(static_cast<int>(*number)) : std::nullopt;
}

namespace {

std::optional<std::uint64_t> parse_growth(std::string_view text) {
  if (text.ends_with("/step")) text.remove_suffix(5);
  return parse_size(text);
}

void add_limits(CLI::App& command, TraceSummaryRequest& request) {
  constexpr const char* kSizes = "sizes like 8GiB, 500MB or 4096";
  add_parsed(command, "--max-peak", "exit code 3 if more was live at once", "SIZE", kSizes,
             parse_size, [&](std::uint64_t bytes) { request.most_peak_bytes = bytes; });
  add_parsed(command, "--max-growth", "exit code 3 if memory grows faster", "SIZE/step", kSizes,
             parse_growth, [&](std::uint64_t bytes) { request.most_growth_bytes = bytes; });
}

}  // namespace

void add_filters(CLI::App& command, TraceSelection& request) {
  trace::Filter& filter = request.filter;
  constexpr const char* kSeconds = "seconds from the trace's beginning";
  constexpr const char* kCounts = "whole numbers";
  add_parsed(command, "--since", "leave out what was before", "SECONDS", kSeconds, parse_seconds,
             [&](double seconds) { request.since_seconds = seconds; });
  add_parsed(command, "--until", "leave out what came later", "SECONDS", kSeconds, parse_seconds,
             [&](double seconds) { request.until_seconds = seconds; });
  add_parsed(command, "--min-size", "only blocks of at least this", "SIZE", "sizes like 1MiB",
             parse_size, [&](std::uint64_t bytes) { filter.least_bytes = bytes; });
  command.add_option("--op", filter.op, "only blocks of operators with this in their name")
      ->type_name("TEXT");
  const auto take_class = [&filter](const std::string& name) {
    filter.of_class = trace::class_of_name(name);
    if (!filter.of_class)
      refuse("--class", name, fmt::format("{}", fmt::join(trace::kClassNames, ", ")));
  };
  command.add_option_function<std::string>("--class", take_class, "only blocks of this class")
      ->type_name("CLASS");
  add_parsed(command, "--step", "only blocks that were born in this step", "N", kCounts,
             parse_count, [&](std::uint64_t step) { filter.step = step; });
  add_parsed(command, "--device", "only this one [all]", "DEVICE", "host, cuda:0 and the like",
             parse_device, [&](int device) { request.device = device; });
  add_parsed(command, "--max-events", "read no more than this", "N", kCounts, parse_count,
             [&](std::uint64_t events) { filter.most_events = events; });
}

void add_moment(CLI::App& command, TraceSummaryRequest& request) {
  add_parsed(command, "--at", "the moment to tell of [peak]", "peak|end|oom|SECONDS",
             "peak, end, oom and seconds from the trace's beginning", parse_moment,
             [&](const Moment& moment) { request.at = moment; });
}

// ---- limits -------------------------------------------------------------------------------------

namespace {

int check_limits(const TraceSummary& summary, const TraceSummaryRequest& request) {
  const std::string file = bridge::printable(request.file);
  for (const DeviceSummary& device : summary.devices) {
    const std::string name = device_text(device.lives->device);
    const std::int64_t peak = device.lives->peaks[PLEAT_TRACE_REQUESTED].bytes;
    if (request.most_peak_bytes && peak > static_cast<std::int64_t>(*request.most_peak_bytes)) {
      say("pleat: {}: {}: the peak of {} is over --max-peak {}\n", file, name, size_text(peak),
          size_text(static_cast<std::int64_t>(*request.most_peak_bytes)));
      return kOverLimit;
    }
    if (request.most_growth_bytes &&
        device.growth.bytes_per_step > static_cast<double>(*request.most_growth_bytes)) {
      say("pleat: {}: {}: the growth of {} a step is over --max-growth {}/step\n", file, name,
          size_text(static_cast<std::int64_t>(device.growth.bytes_per_step)),
          size_text(static_cast<std::int64_t>(*request.most_growth_bytes)));
      return kOverLimit;
    }
  }
  if (request.most_growth_bytes && !summary.devices.empty() &&
      !summary.devices.front().growth.known)
    say("pleat: {}: too few steps to tell growth: --max-growth is not checked\n", file);
  return 0;
}

}  // namespace

trace::Filter filter_of(const TraceSelection& selection, const trace::File& file) {
  const auto moment = [&file](double seconds) {
    return file.start_ns() + static_cast<std::uint64_t>(seconds * 1e9);
  };
  trace::Filter filter = selection.filter;
  if (selection.since_seconds > 0) filter.since_ns = moment(selection.since_seconds);
  if (selection.until_seconds) filter.until_ns = moment(*selection.until_seconds);
  return filter;
}

namespace {

int summarise_file(const TraceSummaryRequest& request) {
  std::string error;
  const std::unique_ptr<trace::File> file = trace::File::open(request.file, error);
  if (file == nullptr) {
    say("pleat: {}: {}\n", bridge::printable(request.file), error);
    return kTraceTrouble;
  }
  std::optional<ProgressLine> progress(std::in_place);
  const trace::Replay replay(*file, filter_of(request, *file), progress->pass(0));
  trace::Lines lines(file->definitions());
  const TraceSummary summary = summarise(replay, lines, request, progress->pass(1));
  progress.reset();
  const bool printed = request.as_json ? put_summary_json(summary, lines, request)
                                       : put(text_of(summary, lines, request));
  return printed ? check_limits(summary, request) : kTraceTrouble;
}

// ---- report -------------------------------------------------------------------------------------

void add_report(TraceCommands& commands) {
  commands.report_request = std::make_shared<TraceReportRequest>();
  TraceSummaryRequest& selection = commands.report_request->selection;
  commands.report = add_trace_report(*commands.all, *commands.report_request);
  add_moment(*commands.report, selection);
  add_filters(*commands.report, selection);
}

int report(const TraceReportRequest& request) {
  std::optional<ProgressLine> progress(std::in_place);
  return trace_report(request, [&](int pass) {
    if (pass < 2) return progress->pass(pass);
    progress.reset();
    return trace::Progress();
  });
}

}  // namespace

int trace_summary(const TraceSummaryRequest& request) {
  try {
    return summarise_file(request);
  } catch (const std::bad_alloc&) {
    say("pleat: {}: not enough memory to read it\n", bridge::printable(request.file));
    return kTraceTrouble;
  }
}

void add_trace_commands(CLI::App& app, TraceCommands& commands) {
  TraceSummaryRequest& request = commands.summary_request;
  commands.all = app.add_subcommand("trace", "Say where a program's memory went");
  commands.all->footer(kSummaryExamples);
  commands.summary = commands.all->add_subcommand(
      "summary", "Print the peak, what it was made of, and what grows");
  commands.summary->footer(kSummaryExamples);
  commands.summary->add_option("FILE", request.file, "a trace")->required()->type_name("");
  commands.summary->add_flag("--json", request.as_json, "machine-readable");
  add_parsed(*commands.summary, "--top", "rows of each table [10]", "N", "whole numbers",
             parse_count, [&](std::uint64_t rows) { request.top = rows; });
  add_moment(*commands.summary, request);
  add_limits(*commands.summary, request);
  add_filters(*commands.summary, request);
  commands.exporting = add_trace_export(*commands.all);
  add_report(commands);
}

int run_trace_command(const TraceCommands& commands) {
  if (commands.summary->parsed()) return trace_summary(commands.summary_request);
  if (trace_export_parsed(*commands.exporting)) return run_trace_export(*commands.exporting);
  if (commands.report->parsed()) return report(*commands.report_request);
  std::fputs(commands.all->help("pleat").c_str(), stdout);
  return 0;
}

}  // namespace pleat::cli
