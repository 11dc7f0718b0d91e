#include "top.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <thread>

#include "tools/pleat/commands.h"
#include "tools/pleat/program.h"
#include "tools/pleat/trace_command/options.h"
#include "tools/pleat/trace_command/request.h"

namespace pleat::cli {
namespace {

constexpr const char* kExamples =
    R"text(Says what the memory of a running job is made of, now and at its peak so far, once a second. The job must
have a trace: pleat trace record, PLEAT_CONF=trace:FILE or pleat.trace.start(). On a terminal the table
stays where it is; elsewhere there is one line a second. Ends with the job.

What a phase has made is called temporary until the phase is over: then it is kept, optimizer state or
an input. `pleat trace summary` knows the future, and says it exactly.

Exit code: 0; 2, no such process, no trace, bad options.

Examples:
  pleat trace top 4711
  pleat trace top 4711 --interval 10 >> memory.log
  pleat trace top 4711 --once --json | jq '.devices[0].now.classes')text";

struct TraceTopRequest {
  pid_t pid = 0;
  double interval_seconds = 1;
  bool once = false;
  bool as_json = false;
};

using Clock = std::chrono::steady_clock;

std::optional<pid_t> parse_pid(std::string_view text) {
  const std::optional<std::uint64_t> number = parse_count(text);
  return number && *number > 0 && *number <= 1u << 30 ? std::optional(static_cast<pid_t>(*number))
                                                      : std::nullopt;
}

std::optional<double> parse_interval(std::string_view text) {
  const std::optional<double> seconds = parse_seconds(text);
  return seconds && *seconds >= 0.1 && *seconds <= 86'400 ? seconds : std::nullopt;
}

std::size_t terminal_rows() {
  winsize size{};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_row : 0;
}

// In the place of what was shown before.
class Screen {
 public:
  bool show(const std::string& text) {
    const std::size_t rows = terminal_rows();
    std::string out = lines_ > 0 ? fmt::format("\x1b[{}A\x1b[J", lines_) : "";
    lines_ = 0;
    for (std::size_t at = 0; at < text.size() && (rows == 0 || lines_ + 1 < rows); ++lines_) {
      const std::size_t end = text.find('\n', at) + 1;
      out.append(text, at, end - at);
      at = end;
    }
    return put(out);
  }

 private:
  std::size_t lines_ = 0;
};

// Until the time is over, or the job ends.
void wait_for(double seconds, const TopReader& reader) {
  const auto until = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                        std::chrono::duration<double>(seconds));
  constexpr auto kLook = std::chrono::milliseconds(200);
  while (Clock::now() < until && reader.is_running())
    std::this_thread::sleep_for(std::min<Clock::duration>(kLook, until - Clock::now()));
}

int trace_top(const TraceTopRequest& request) {
  TopReader reader;
  if (const std::string problem = reader.open(request.pid); !problem.empty()) {
    return trouble(problem);
  }
  Screen screen;
  const bool in_place = ::isatty(STDOUT_FILENO) == 1;
  while (true) {
    const bool runs = reader.is_running();
    const std::optional<trace::TopPage> page = reader.read();
    if (!runs || (page && page->ended != 0)) {
      const std::string line = runs
                                   ? fmt::format("the trace of process {} has ended\n", request.pid)
                                   : fmt::format("process {} has ended\n", request.pid);
      if (request.as_json) {
        say("pleat: {}", line);
        return 0;
      }
      return put(line) ? 0 : kTraceTrouble;
    }
    if (!page) {
      return trouble(fmt::format("process {}: its page cannot be read any more", request.pid));
    }
    const bool shown =
        request.as_json
            ? put(top_json(*page).dump(-1, ' ', false, Json::error_handler_t::replace) + '\n')
        : request.once ? put(top_text(*page, terminal_columns()))
        : in_place     ? screen.show(top_text(*page, terminal_columns()))
                       : put(top_line(*page));
    if (!shown) return kTraceTrouble;
    if (request.once) return 0;
    wait_for(request.interval_seconds, reader);
  }
}

}  // namespace

void add_trace_top(CLI::App& trace, Work& work) {
  CLI::App& command =
      *trace.add_subcommand("top", "Say what the memory of a running job is made of");
  command.footer(kExamples);
  const auto asked = std::make_shared<TraceTopRequest>();
  TraceTopRequest& request = *asked;
  const auto take = [&request](const std::string& text) {
    const std::optional<pid_t> pid = parse_pid(text);
    if (!pid) refuse("PID", text, "the numbers of processes");
    request.pid = *pid;
  };
  command.add_option_function<std::string>("PID", take, "the job's process")
      ->required()
      ->type_name("");
  add_parsed(command, "--interval", "seconds between two looks [1]", "SECONDS",
             "seconds from 0.1 on", parse_interval,
             [&](double seconds) { request.interval_seconds = seconds; });
  command.add_flag("--once", request.once, "look once");
  command.add_flag("--json", request.as_json, "machine-readable: an object a line");
  on_parsed(command, work, [asked] { return trace_top(*asked); });
}

}  // namespace pleat::cli
