#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <memory>

#include "formats.h"
#include "tools/pleat/commands.h"
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

// One line; empty: the options fit the format.
std::string complaint(const CLI::App& command, ExportFormat format) {
  for (const char* const option : {"--at", "--group"})
    if (command.count(option) > 0 && !is_snapshot(format))
      return fmt::format("{} is for torch-snapshot.pickle and torch-snapshot.json", option);
  if (command.count("--what") > 0 && format != ExportFormat::kCollapsed)
    return "--what is for collapsed";
  return {};
}

}  // namespace

void add_trace_export(CLI::App& trace, Work& work) {
  CLI::App& command =
      *trace.add_subcommand("export", "Write a trace in the format of another tool");
  command.footer(kExportExamples);
  const auto asked = std::make_shared<TraceExportRequest>();
  TraceExportRequest& request = *asked;
  command.add_option("FILE", request.file, "a trace")->required()->type_name("");
  std::vector<std::string> names;
  for (const FormatRow& row : kFormats) names.emplace_back(row.name);
  const auto take_format = [&request, names](const std::string& text) {
    const auto* const row = std::ranges::find(kFormats, text, &FormatRow::name);
    if (row == kFormats.end()) refuse("--to", text, fmt::format("{}", fmt::join(names, ", ")));
    request.format = row->format;
  };
  CLI::Option* const format =
      command.add_option_function<std::string>("--to", take_format, "one of those below");
  format->required()->type_name("FORMAT");
  offer(*format, names);
  command.add_option("-o,--output", request.output, "file to write; -: standard output")
      ->required()
      ->type_name("FILE");
  command.add_flag("--force", request.force, "replace a file that exists");
  add_moment(command, request.at, "moment of a snapshot [peak]");
  add_groups(command, "categories of a snapshot: modules, else lines, that match", request);
  add_symbols(command, request);
  add_parsed(command, "--what", "bytes of collapsed stacks [peak]", "peak|leaked|saved|allocated",
             "peak, leaked, saved and allocated", parse_what,
             [&request](StackBytes what) { request.what = what; });
  add_filters(command, request);
  on_parsed(command, work, [asked, &command] {
    TraceExportRequest& request = *asked;
    if (const std::string wrong = complaint(command, request.format); !wrong.empty())
      return trouble(wrong);
    request.names_size = command.count("--min-size") > 0;
    // A snapshot keeps the latest events, so all of them are read.
    if (is_snapshot(request.format) && command.count("--max-events") > 0)
      request.most_events = std::exchange(request.filter.most_events, trace::Filter{}.most_events);
    return with_memory(request.file, "not enough memory to export it",
                       [&] { return export_file(request); });
  });
}

}  // namespace pleat::cli
