// `pleat trace diff`: the memory that differs between two runs of a program.
#include <fmt/format.h>

#include "diff.h"
#include "tools/pleat/commands.h"
#include "tools/pleat/program.h"
#include "tools/pleat/trace_command/options.h"
#include "tools/pleat/trace_command/text.h"
#include "torch_bridge/core/option_text.h"

namespace pleat::cli {
namespace {

constexpr const char* kExamples =
    R"text(Says what has changed from run A to run B: the highest figures and the classes side by side; which
lines and operators hold more at the moment, and which less; what was saved for backward.

Operators are matched by name. Lines are matched by function and file: a function whose lines have
moved is moved as a whole, "(A: 12)" says where the line was. The folders of files do not matter.

--since, --until, --at and --max-events count from the beginning of each trace. With --op, --class,
--step and --min-size the tables by line and operator, and --max-growth, are of matching blocks only.

Exit code: 0; 2, no trace, or bad options; 3, B holds more than A by over --max-growth.

Examples:
  pleat trace diff before.trace after.trace
  pleat trace diff stock.trace pleat.trace --at end --top 30
  pleat trace diff before.trace after.trace --class kept --min-size 1MiB
  pleat trace diff main.trace branch.trace --json --max-growth 64MiB
  pleat trace diff main.trace branch.trace --max-growth 2%)text";

std::optional<GrowthLimit> parse_limit(std::string_view text) {
  GrowthLimit limit;
  if (!text.ends_with('%')) {
    const std::optional<std::uint64_t> bytes = parse_size(text);
    if (bytes) limit.bytes = *bytes;
    return bytes ? std::optional(limit) : std::nullopt;
  }
  text.remove_suffix(1);
  limit.per_cent = bridge::number_of<double>(text).value_or(-1);
  return limit.per_cent >= 0 ? std::optional(limit) : std::nullopt;
}

// Both passes over one of the files. False: it is no trace, which is said.
bool read_side(const std::string& path, const TraceDiffRequest& request, DiffSide& side) {
  side.path = path;
  side.file = open_trace(path);
  if (side.file == nullptr) return false;
  TraceSummaryRequest asked;
  static_cast<TraceSelection&>(asked) = request;
  asked.at = request.at;
  asked.modules = false;
  ProgressLine progress;
  side.replay =
      std::make_unique<trace::Replay>(*side.file, filter_of(request, *side.file), progress.pass(0));
  TraceSelection within = request;
  within.device.reset();  // one of the two may do without it
  if (!is_within(within, asked.at, side.replay->lives())) return false;
  side.lines = std::make_unique<trace::Lines>(side.file->definitions());
  side.summary = summarise(*side.replay, *side.lines, asked, progress.pass(1));
  return true;
}

// That the moment is there on both sides, if the device is. False: it is said which is not.
bool has_moments(const TraceDiff& diff, const TraceDiffRequest& request) {
  for (const DiffSide* const side : {&diff.a, &diff.b})
    for (const DeviceSummary& device : side->summary.devices) {
      if (device.at.taken || request.at.kind != Moment::Kind::kOutOfMemory) continue;
      trouble(side->path, device_text(device.lives->device) + ": memory never ran out");
      return false;
    }
  return true;
}

int check_limit(const TraceDiff& diff, const TraceDiffRequest& request) {
  if (!request.most_growth) return 0;
  for (const DeviceDiff& device : diff.devices) {
    if (request.most_growth->allows(device.bytes_a, device.bytes_b)) continue;
    say("pleat: {}: {}: {} against {} is over --max-growth {}\n", shown_path(diff.b.path),
        device_text(device.device), size_text(device.bytes_b), size_text(device.bytes_a),
        bridge::printable(request.most_growth_text));
    return kOverLimit;
  }
  return 0;
}

int diff_files(const TraceDiffRequest& request) {
  TraceDiff diff;
  if (!read_side(request.file, request, diff.a) || !read_side(request.other, request, diff.b))
    return kTraceTrouble;
  compare(diff);
  if (diff.devices.empty() && request.device)
    return trouble(request.file, "has nothing of " + device_text(*request.device) +
                                     ", and neither has " + shown_path(request.other));
  if (!has_moments(diff, request)) return kTraceTrouble;
  return put(answer_of(diff, request), request.as_json) ? check_limit(diff, request)
                                                        : kTraceTrouble;
}

}  // namespace

void add_trace_diff(CLI::App& trace, Work& work) {
  CLI::App& command =
      *trace.add_subcommand("diff", "Say what grew and what shrank from one trace to another");
  command.footer(kExamples);
  const auto asked = std::make_shared<TraceDiffRequest>();
  TraceDiffRequest& request = *asked;
  command.add_option("A", request.file, "a trace")->required()->type_name("");
  command.add_option("B", request.other, "the trace to hold against it")->required()->type_name("");
  add_tables(command, request.as_json, request.top);
  add_moment(command, request.at);
  const auto take_limit = [&request](const std::string& text) {
    request.most_growth = parse_limit(text);
    request.most_growth_text = text;
    if (!request.most_growth) refuse("--max-growth", text, "sizes like 64MiB, and 2%");
  };
  command
      .add_option_function<std::string>("--max-growth", take_limit,
                                        "exit code 3 if B holds more than A by over this")
      ->type_name("SIZE|PERCENT");
  add_filters(command, request);
  on_parsed(command, work, [asked] {
    return with_memory(asked->file, "not enough memory to compare it",
                       [&] { return diff_files(*asked); });
  });
}

}  // namespace pleat::cli
