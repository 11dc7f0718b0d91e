// Shared by the commands of `pleat trace`: options, and the line that reports reading progress.
#pragma once

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "request.h"
#include "tools/pleat/program.h"
#include "tools/pleat/trace/reader.h"

namespace pleat::cli {

// One line: the option's text is none of what is allowed.
[[noreturn]] void refuse(const char* option, std::string_view value, std::string_view allowed);

[[nodiscard]] std::optional<double> parse_seconds(std::string_view text);
[[nodiscard]] std::optional<std::uint64_t> parse_count(std::string_view text);
[[nodiscard]] std::optional<std::uint64_t> parse_positive(std::string_view text);
[[nodiscard]] std::optional<int> parse_device(std::string_view text);
[[nodiscard]] std::optional<Moment> parse_moment(std::string_view text);

// Adds an option whose text `parse` turns into something, or into nothing.
template <class Parse, class Take>
void add_parsed(CLI::App& command, const char* name, const char* help, const char* type,
                const char* allowed, Parse parse, Take take) {
  const auto read = [=](const std::string& text) {
    const auto value = parse(text);
    if (!value) refuse(name, text, allowed);
    take(*value);
  };
  command.add_option_function<std::string>(name, read, help)->type_name(type);
}

// --since, --until, --min-size, --op, --class, --step, --device, --max-events.
void add_filters(CLI::App& command, TraceSelection& request);
// --no-symbols.
void add_symbols(CLI::App& command, TraceSelection& request);
// --group.
void add_groups(CLI::App& command, const char* help, TraceSelection& request);
// --depth of a table of modules, and --group for one of groups.
void add_layers(CLI::App& command, TraceSelection& request, std::uint32_t& depth);
// --at.
void add_moment(CLI::App& command, Moment& moment,
                const char* help = "the moment to tell of [peak]");
// --json, and --top of a command that prints tables.
void add_tables(CLI::App& command, bool& as_json, std::size_t& top);
// --what-if.
void add_what_if(CLI::App& command, const char* help, std::optional<double>& bits);

// Null: it cannot be read, which is said on stderr.
[[nodiscard]] std::unique_ptr<trace::File> open_trace(const std::string& path);
// With its times, which count from the beginning of the file's trace.
[[nodiscard]] trace::Filter filter_of(const TraceSelection& selection, const trace::File& file);

// A line on a terminal, once reading takes longer than a second.
class ProgressLine {
 public:
  ProgressLine() : shows_(::isatty(STDERR_FILENO) == 1) {}
  ~ProgressLine() {
    if (printed_) say("\r\x1b[K");
  }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // Of pass 0 or 1.
  [[nodiscard]] trace::Progress pass(int number) {
    if (!shows_) return {};
    return [this, number](std::uint64_t done, std::uint64_t all) {
      const auto now = std::chrono::steady_clock::now();
      if (now - start_ < std::chrono::seconds(1) || now - told_ < std::chrono::milliseconds(200))
        return;
      told_ = now;
      printed_ = true;
      const double part = all == 0 ? 1 : static_cast<double>(done) / static_cast<double>(all);
      say("\rpleat: reading {:.0f} %", 50 * (number + part));
    };
  }

 private:
  const bool shows_;
  bool printed_ = false;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now(), told_{};
};

}  // namespace pleat::cli
