// `pleat trace report`: a trace as one page that needs nothing but a browser. This file is the
// command; watch.h gathers the page's data.
#include <filesystem>
#include <optional>

#include "tools/pleat/commands.h"
#include "tools/pleat/page/page.h"
#include "tools/pleat/program.h"
#include "tools/pleat/trace_command/options.h"
#include "tools/pleat/trace_command/output.h"
#include "tools/pleat/trace_command/text.h"
#include "watch.h"

namespace pleat::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kExamples =
    R"text(Makes one page of HTML from a trace. The page needs nothing but a browser: no network, no other file.
It shows memory over time by what it is for; which operators and lines it belongs to; a flame graph
and a map of memory at the peak; what compression did; what grows from step to step.

Of a run with bits:off a second curve and a column of the tables show what memory would be with saved
tensors at 4 bits; --what-if chooses other bits, also of runs that compress.

With --op, --class, --step and --min-size the tables and the flame graph at that moment hold
matching blocks only; curves and sums over the run hold all.

Exit code: 0; 2, no trace, or an output that exists or cannot be written.

Examples:
  pleat trace report run.trace -o run.html
  pleat trace report run.trace -o end.html --at end --force
  pleat trace report run.trace -o run.html --what-if 2.5
  pleat trace report run.trace -o run.html --group 'attention=attn' --group 'mlp=mlp|fc[12]'
  pleat trace report run.trace -o gpu.html --device cuda:0 --class "saved raw")text";

int make_report(const TraceReportRequest& request) {
  std::error_code ignored;
  if (fs::equivalent(request.file, request.output, ignored))
    return trouble(request.output, "is the trace itself");
  TraceOutput out;
  // Who may read the trace may read the page.
  if (!out.open(request.output, request.force, kOwnersMode)) return trouble(out.error());
  const std::unique_ptr<trace::File> file = open_trace(request.file);
  if (file == nullptr) return kTraceTrouble;
  Json json;
  {
    std::optional<ProgressLine> progress(std::in_place);
    const trace::Replay replay(*file, filter_of(request, *file), progress->pass(0));
    if (!is_within(request, request.at, replay.lives())) return kTraceTrouble;
    trace::Symbols symbols(file->definitions());
    trace::Lines lines(file->definitions(), request.symbols ? &symbols : nullptr);
    const TraceReport report = gather_report(replay, lines, request, progress->pass(1));
    progress.reset();
    json = report_json(report, lines, request);
  }
  const std::string plotly = load_plotly();
  const std::string title = request.file.substr(request.file.rfind('/') + 1);
  out.put(make_page(PageOf::kTrace, title, json, plotly));
  if (!out.close()) return trouble(out.error());
  if (plotly.empty())
    say("pleat: {}: charts are left out: plotly.min.js was not there\n",
        shown_path(request.output));
  return 0;
}

}  // namespace

void add_trace_report(CLI::App& trace, Work& work) {
  CLI::App& command =
      *trace.add_subcommand("report", "Make a page of HTML that shows where memory went");
  command.footer(kExamples);
  const auto asked = std::make_shared<TraceReportRequest>();
  TraceReportRequest& request = *asked;
  command.add_option("FILE", request.file, "a trace")->required()->type_name("");
  command.add_option("-o,--output", request.output, "the page; -: standard output")
      ->required()
      ->type_name("FILE");
  command.add_flag("--force", request.force, "replace a file that exists");
  add_moment(command, request.at);
  add_what_if(command, "what memory would be with saved tensors of so many bits [4, of bits:off]",
              request.what_if);
  add_layers(command, request, request.depth);
  add_symbols(command, request);
  add_filters(command, request);
  on_parsed(command, work, [asked] {
    return with_memory(asked->file, "not enough memory to read it",
                       [&] { return make_report(*asked); });
  });
}

}  // namespace pleat::cli
