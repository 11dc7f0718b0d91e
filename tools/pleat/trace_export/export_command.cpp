#include "export_command.h"

#include <fmt/format.h>

#include <array>
#include <memory>

#include "formats.h"
#include "tools/pleat/completion.h"
#include "tools/pleat/program.h"
#include "tools/pleat/trace_command/options.h"
#include "tools/pleat/trace_command/text.h"

namespace pleat::cli {
namespace {

constexpr const char* kExportExamples =
    R"text(Formats:
  torch-snapshot.pickle, torch-snapshot.json
               what each device holds at a moment, and the events before it: pytorch.org/memory_viz
  perfetto     counters, phases, lives of blocks of 1 MiB or more, what became of saved tensors:
               ui.perfetto.dev
  speedscope   flame graphs of the peak, of leaks, of what was saved and allocated: speedscope.app
  collapsed    one of these (--what) as lines for flamegraph.pl, inferno and others
  csv, json    each event, one a line

--max-events ends reading early; of a snapshot it bounds the events that are written for each device,
and the latest before the moment are kept [200000]. --since and --until also bound where the peak is
looked for. Of csv and json, --min-size, --op, --class and --step are about events.

Exit code: 0; 2, no trace, bad options, or an output that cannot be written.

Examples:
  pleat trace export --to torch-snapshot.pickle -o run.pickle run.trace
  pleat trace export --to torch-snapshot.json --at oom -o run.json run.trace
  pleat trace export --to torch-snapshot.pickle --group 'mlp=mlp|fc[12]' -o run.pickle run.trace
  pleat trace export --to perfetto --min-size 64KiB -o run.pftrace run.trace
  pleat trace export --to collapsed --what leaked -o - run.trace | flamegraph.pl > leaked.svg
  pleat trace export --to csv --device cuda:0 -o run.csv run.trace)text";

struct FormatRow {
  const char* name;
  ExportFormat format;
  void (*write)(const TraceExport&);
};
constexpr std::array<FormatRow, 7> kFormats{{
    {"torch-snapshot.pickle", ExportFormat::kTorchPickle, export_torch_snapshot},
    {"torch-snapshot.json", ExportFormat::kTorchJson, export_torch_snapshot},
    {"perfetto", ExportFormat::kPerfetto, export_perfetto},
    {"speedscope", ExportFormat::kSpeedscope, export_speedscope},
    {"collapsed", ExportFormat::kCollapsed, export_collapsed},
    {"csv", ExportFormat::kCsv, export_csv},
    {"json", ExportFormat::kJson, export_json_lines},
}};

std::optional<ExportFormat> parse_format(std::string_view text) {
  for (const FormatRow& row : kFormats)
    if (text == row.name) return row.format;
  return std::nullopt;
}

std::string format_names() {
  std::string names;
  for (const FormatRow& row : kFormats) names.append(names.empty() ? "" : ", ").append(row.name);
  return names;
}

std::optional<StackBytes> parse_what(std::string_view text) {
  if (text == "peak") return StackBytes::kPeak;
  if (text == "leaked") return StackBytes::kLeaked;
  if (text == "saved") return StackBytes::kSaved;
  if (text == "allocated") return StackBytes::kAllocated;
  return std::nullopt;
}

bool is_snapshot(ExportFormat format) {
  return format == ExportFormat::kTorchPickle || format == ExportFormat::kTorchJson;
}

int export_file(const TraceExportRequest& request) {
  const std::unique_ptr<trace::File> file = open_trace(request.file);
  if (file == nullptr) return kTraceTrouble;
  TraceOutput out;
  if (!out.open(request.output, request.force, kUsersMode)) return trouble(out.error());
  const trace::Filter filter = filter_of(request, *file);
  std::optional<ProgressLine> progress(std::in_place);
  const trace::Lives lives = trace::find_lives(*file, filter, progress->pass(0));
  if (!is_within(request, request.at, lives)) return kTraceTrouble;
  trace::Symbols symbols(file->definitions());
  trace::Lines lines(file->definitions(), request.symbols ? &symbols : nullptr);
  const trace::Progress second = progress->pass(1);
  const TraceExport to{request, *file, filter, lives, lines, second, out};
  kFormats[static_cast<std::size_t>(request.format)].write(to);
  const bool written = out.close();
  progress.reset();
  return written ? 0 : trouble(out.error());
}

}  // namespace

class TraceExportCommand {
 public:
  explicit TraceExportCommand(CLI::App& trace);
  [[nodiscard]] bool parsed() const { return app_->parsed(); }
  // One line; empty: the options fit the format.
  [[nodiscard]] std::string complaint() const {
    if (app_->count("--at") > 0 && !is_snapshot(request_.format))
      return "--at is for torch-snapshot.pickle and torch-snapshot.json";
    if (app_->count("--group") > 0 && !is_snapshot(request_.format))
      return "--group is for torch-snapshot.pickle and torch-snapshot.json";
    if (app_->count("--what") > 0 && request_.format != ExportFormat::kCollapsed)
      return "--what is for collapsed";
    return {};
  }
  // The parsed request, once it is complete.
  [[nodiscard]] TraceExportRequest request() const {
    TraceExportRequest request = request_;
    request.names_size = app_->count("--min-size") > 0;
    // A snapshot keeps the latest events, so all of them are read.
    if (is_snapshot(request.format) && app_->count("--max-events") > 0) {
      request.most_events = request.filter.most_events;
      request.filter.most_events = trace::Filter{}.most_events;
    }
    return request;
  }

 private:
  CLI::App* app_;
  TraceExportRequest request_;
};

TraceExportCommand::TraceExportCommand(CLI::App& trace)
    : app_(trace.add_subcommand("export", "Write a trace in the format of another tool")) {
  CLI::App& command = *app_;
  command.footer(kExportExamples);
  command.add_option("FILE", request_.file, "a trace")->required()->type_name("");
  const auto take_format = [this](const std::string& text) {
    const std::optional<ExportFormat> format = parse_format(text);
    if (!format) refuse("--to", text, format_names());
    request_.format = *format;
  };
  CLI::Option* const format =
      command.add_option_function<std::string>("--to", take_format, "one of those below");
  format->required()->type_name("FORMAT");
  std::vector<std::string> names;
  for (const FormatRow& row : kFormats) names.emplace_back(row.name);
  offer(*format, names);
  command.add_option("-o,--output", request_.output, "file to write; -: standard output")
      ->required()
      ->type_name("FILE");
  command.add_flag("--force", request_.force, "replace a file that exists");
  add_moment(command, "moment of a snapshot [peak]", request_.at);
  add_groups(command, "categories of a snapshot: modules, else lines, that match", request_);
  add_symbols(command, request_);
  add_parsed(command, "--what", "bytes of collapsed stacks [peak]", "peak|leaked|saved|allocated",
             "peak, leaked, saved and allocated", parse_what,
             [this](StackBytes what) { request_.what = what; });
  add_filters(command, request_);
}

std::shared_ptr<TraceExportCommand> add_trace_export(CLI::App& trace) {
  return std::make_shared<TraceExportCommand>(trace);
}

bool trace_export_parsed(const TraceExportCommand& command) { return command.parsed(); }

int run_trace_export(const TraceExportCommand& command) {
  const TraceExportRequest request = command.request();
  if (const std::string complaint = command.complaint(); !complaint.empty())
    return trouble(complaint);
  return with_memory(request.file, "not enough memory to export it",
                     [&] { return export_file(request); });
}

}  // namespace pleat::cli
