#include "options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "text.h"
#include "tools/pleat/commands.h"
#include "tools/pleat/trace/modules.h"
#include "tools/pleat/trace/what_if.h"
#include "torch_bridge/core/option_text.h"

namespace pleat::cli {

void refuse(const char* option, std::string_view value, std::string_view allowed) {
  throw CLI::ValidationError(
      option, fmt::format("'{}': allowed are {}", bridge::printable(value), allowed));
}

std::optional<double> parse_seconds(std::string_view text) {
  if (text.ends_with('s')) text.remove_suffix(1);
  const std::optional<double> number = bridge::number_of<double>(text);
  return number && *number >= 0 && *number < 1e9 ? number : std::nullopt;
}

std::optional<Moment> parse_moment(std::string_view text) {
  using Kind = Moment::Kind;
  if (text == "peak") return Moment{Kind::kPeak};
  if (text == "end") return Moment{Kind::kEnd};
  if (text == "oom") return Moment{Kind::kOutOfMemory};
  if (text == "dump") return Moment{Kind::kDump};
  const std::optional<double> seconds = parse_seconds(text);
  return seconds ? std::optional(Moment{Kind::kTime, *seconds}) : std::nullopt;
}

std::optional<std::uint64_t> parse_count(std::string_view text) {
  return bridge::number_of<std::uint64_t>(text);
}

std::optional<std::uint64_t> parse_positive(std::string_view text) {
  const std::optional<std::uint64_t> number = parse_count(text);
  return number && *number > 0 ? number : std::nullopt;
}

std::optional<int> parse_device(std::string_view text) {
  if (text == "host" || text == "cpu") return -1;
  if (text.starts_with("cuda:")) text.remove_prefix(5);
  const std::optional<std::uint64_t> number = parse_count(text);
  return number && *number < 128 ? std::optional(static_cast<int>(*number)) : std::nullopt;
}

// ---- options that commands share ----------------------------------------------------------------

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
  CLI::Option* const of_class =
      command.add_option_function<std::string>("--class", take_class, "only blocks of this class");
  of_class->type_name("CLASS");
  offer(*of_class, {trace::kClassNames.begin(), trace::kClassNames.end()});
  add_parsed(command, "--step", "only blocks that were born in this step", "N", kCounts,
             parse_count, [&](std::uint64_t step) { filter.step = step; });
  add_parsed(command, "--device", "only this one [all]", "DEVICE", "host, cuda:0 and the like",
             parse_device, [&](int device) { request.device = device; });
  add_parsed(command, "--max-events", "read no more than this", "N", "whole numbers from 1",
             parse_positive, [&](std::uint64_t events) { filter.most_events = events; });
}

void add_symbols(CLI::App& command, TraceSelection& request) {
  command.add_flag_callback(
      "--no-symbols", [&request] { request.symbols = false; },
      "native frames as module and offset: no file of their functions is read");
}

void add_groups(CLI::App& command, const char* help, TraceSelection& request) {
  const auto take = [&request](const std::vector<std::string>& texts) {
    for (const std::string& text : texts) {
      std::string problem;
      std::optional<trace::GroupRule> rule = trace::parse_group(text, problem);
      if (!rule)
        throw CLI::ValidationError("--group", fmt::format("'{}': {}", bridge::printable(text),
                                                          bridge::printable(problem)));
      request.groups.push_back(*std::move(rule));
    }
  };
  command.add_option_function<std::vector<std::string>>("--group", take, help)
      ->type_name("NAME=REGEX")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

void add_layers(CLI::App& command, TraceSelection& request, std::uint32_t& depth) {
  constexpr std::uint64_t kMost = trace::ModuleTree::kMostDepth;
  const auto parse = [](std::string_view text) {
    const std::optional<std::uint64_t> count = parse_count(text);
    return count && *count >= 1 && *count <= kMost ? count : std::nullopt;
  };
  add_parsed(command, "--depth", "modules deeper than this belong to those above [all]", "N",
             "1 to 32", parse,
             [&depth](std::uint64_t count) { depth = static_cast<std::uint32_t>(count); });
  add_groups(command, "a table of groups: modules, else lines, that match; the rest is \"other\"",
             request);
}

void add_tables(CLI::App& command, bool& as_json, std::size_t& top) {
  command.add_flag("--json", as_json, "machine-readable");
  add_parsed(command, "--top", "rows of each table [10]", "N", "whole numbers", parse_count,
             [&top](std::uint64_t rows) { top = rows; });
}

void add_moment(CLI::App& command, Moment& moment, const char* help) {
  add_parsed(command, "--at", help, "peak|end|oom|dump|SECONDS",
             "peak, end, oom, dump and seconds from the trace's beginning", parse_moment,
             [&moment](const Moment& asked) { moment = asked; });
}

std::optional<double> parse_bits(std::string_view text) {
  if (text == "lossless") return trace::kLossless;
  const std::optional<double> bits = bridge::number_of<double>(text);
  return bits && *bits >= 1 && *bits <= 8 ? bits : std::nullopt;
}

void add_what_if(CLI::App& command, const char* help, std::optional<double>& bits) {
  add_parsed(command, "--what-if", help, "BITS|lossless",
             "numbers of bits from 1 to 8, and lossless", parse_bits,
             [&bits](double asked) { bits = asked; });
}

// ---- the file -----------------------------------------------------------------------------------

trace::Filter filter_of(const TraceSelection& selection, const trace::File& file) {
  const auto moment = [&file](double seconds) {
    return file.start_ns() + static_cast<std::uint64_t>(seconds * 1e9);
  };
  trace::Filter filter = selection.filter;
  if (selection.since_seconds > 0) filter.since_ns = moment(selection.since_seconds);
  if (selection.until_seconds) filter.until_ns = moment(*selection.until_seconds);
  return filter;
}

std::unique_ptr<trace::File> open_trace(const std::string& path) {
  std::string error;
  std::unique_ptr<trace::File> file = trace::File::open(path, error);
  if (file == nullptr) trouble(path, error);
  return file;
}

}  // namespace pleat::cli
