// `pleat trace summary`: the figures of a trace, as text or as JSON.
#include "summary.h"
#include "tools/pleat/commands.h"
#include "tools/pleat/program.h"
#include "tools/pleat/trace_command/options.h"
#include "tools/pleat/trace_command/text.h"

namespace pleat::cli {
namespace {

constexpr const char* kExamples =
    R"text(Says of a trace: when most memory was live, what it was made of and which lines of the program it
belongs to; what grows from step to step; what is reserved and unused; what compression saved.

  saved raw   saved for backward, not compressed (yet)
  payloads    saved for backward, compressed
  restored    given back to backward
  temporary   born and freed in one phase
  kept        of forward or backward, outlives its phase: the program holds it
  unknown     there before the trace, or nothing is known of it
  slack       rounding, and chunks of payloads that have room left
  cached      reserved, and free

--what-if 4 tells the peak that the program would have with saved tensors at 4 bits: of a run with
bits:off by what Pleat would have decided, of others by the size of payloads. With lossless, tensors that
may bear noise stay raw: how well they compress without loss is not known.

Exit code: 0; 2, no trace, or bad options; 3, over --max-peak or --max-growth.

Examples:
  pleat trace summary run.trace
  pleat trace summary run.trace --at oom --top 30
  pleat trace summary run.trace --class kept --min-size 1MiB
  pleat trace summary run.trace --what-if 4
  pleat trace summary run.trace --depth 3 --group 'attention=attn' --group 'mlp=mlp|fc[12]'
  pleat trace summary run.trace --json --max-peak 8GiB --max-growth 1MiB/step
  pleat trace export --to perfetto -o run.pftrace run.trace)text";

// ---- limits -------------------------------------------------------------------------------------

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

int check_limits(const TraceSummary& summary, const TraceSummaryRequest& request) {
  const std::string file = shown_path(request.file);
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

int summarise_file(const TraceSummaryRequest& request) {
  const std::unique_ptr<trace::File> file = open_trace(request.file);
  if (file == nullptr) return kTraceTrouble;
  std::optional<ProgressLine> progress(std::in_place);
  const trace::Replay replay(*file, filter_of(request, *file), progress->pass(0));
  if (!is_within(request, request.at, replay.lives())) return kTraceTrouble;
  trace::Symbols symbols(file->definitions());
  trace::Lines lines(file->definitions(), request.symbols ? &symbols : nullptr);
  const TraceSummary summary = summarise(replay, lines, request, progress->pass(1));
  progress.reset();
  const bool printed = put(answer_of(summary, lines, request), request.as_json);
  return printed ? check_limits(summary, request) : kTraceTrouble;
}

}  // namespace

void add_trace_summary(CLI::App& trace, Work& work) {
  trace.footer(kExamples);
  CLI::App& command =
      *trace.add_subcommand("summary", "Print the peak, what it was made of, and what grows");
  command.footer(kExamples);
  const auto asked = std::make_shared<TraceSummaryRequest>();
  TraceSummaryRequest& request = *asked;
  command.add_option("FILE", request.file, "a trace")->required()->type_name("");
  add_tables(command, request.as_json, request.top);
  add_moment(command, request.at);
  add_what_if(command, "what memory would be with saved tensors of so many bits", request.what_if);
  add_limits(command, request);
  add_layers(command, request, request.depth);
  add_symbols(command, request);
  add_filters(command, request);
  on_parsed(command, work, [asked] {
    return with_memory(asked->file, "not enough memory to read it",
                       [&] { return summarise_file(*asked); });
  });
}

}  // namespace pleat::cli
