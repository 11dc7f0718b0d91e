// The commands of `pleat`, each in a file of its own; those of profiles are in profile.h.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tools/pleat/environment.h"

namespace pleat::cli {

// Does what the command line asks for. Returns the exit code.
using Work = std::function<int()>;
// `act` becomes the work if `command` is parsed without a command below it. `work` must outlive the
// parsing.
inline void on_parsed(CLI::App& command, Work& work, Work act) {
  command.callback([&command, &work, act = std::move(act)] {
    if (!work && command.get_subcommands().empty()) work = act;
  });
}

// ---- trace: a program's memory, from its trace --------------------------------------------------

// Each reads files and starts no process. Exit codes: 0; 2, no trace, or an output that cannot be
// written; 3, over a limit. The reason is a line on stderr.
void add_trace_summary(CLI::App& trace, Work& work);
void add_trace_export(CLI::App& trace, Work& work);
void add_trace_report(CLI::App& trace, Work& work);
void add_trace_diff(CLI::App& trace, Work& work);
void add_trace_merge(CLI::App& trace, Work& work);
// Returns when the job ends.
void add_trace_top(CLI::App& trace, Work& work);

// `pleat trace record`: which file a program's trace goes to.
struct TraceRecordRequest {
  std::string output = "pleat.trace";       // a file, or a folder for pleat.trace in it
  bool force = false;                       // an existing file is replaced
  std::optional<std::uint64_t> most_bytes;  // of the file, and of the part before it
  bool with_command = false;                // the trace holds the command line
};
// Without the flags of Pleat's own options.
[[nodiscard]] CLI::App* add_trace_record(CLI::App& trace, TraceRecordRequest& request);
// Adds to `settings` what the program's options are to say: the trace's path, absolute, and that
// compression is off unless these settings or PLEAT_CONF enable it. Removes an existing file, and
// the part that an earlier trace left before it, if that was asked for. A return value other than 0
// is the exit code; the reason is on stderr.
[[nodiscard]] int prepare_trace(const TraceRecordRequest& request, Settings& settings);

// ---- check: runs a program once and says how far noise changes its gradients --------------------

struct CheckRequest {
  unsigned passes = 3;
  bool stop = false;           // end the program once the passes were looked at
  std::filesystem::path json;  // empty: none
  char** command = nullptr;    // ends with a null
};

// Exit codes: 0, no surprise; 1, a surprise; 2, the check was incomplete.
inline constexpr int kSurprise = 1;
inline constexpr int kCouldNotLook = 2;

// A file for the results of the passes, empty and for this user alone. Throws std::system_error.
[[nodiscard]] std::filesystem::path make_check_file();
// Runs the command in the environment that is set, which names `results` to the bridge; prints the
// table on stderr as soon as it is there, and removes the file. Returns the exit code.
[[nodiscard]] int check(const CheckRequest& request, const std::filesystem::path& results);

// ---- doctor: reports whether `pleat run` works here and now, and if not, the remedy -------------

// Prints to stdout. Returns the exit code: 0 if `pleat run` would work, 1 if not.
//   python    the interpreter to look at; empty: the one in PATH
//   settings  options given as flags, on top of PLEAT_CONF
int doctor(const std::string& python, const Settings& settings, bool as_json);

// ---- completion ---------------------------------------------------------------------------------

// `pleat completion bash`: a script that completes the command line, made of the command line's own
// description, so that it knows whatever that knows. Exit code: 0, or 2 if stdout cannot be
// written. `programs`: commands of `app` that are followed by a program and its arguments.
void add_completion_commands(CLI::App& app, Work& work,
                             const std::vector<const CLI::App*>& programs);
// The values that complete the option. Where its type is written like "peak|end|SECONDS", the words
// in small letters are known without this; without values, files are completed.
void offer(CLI::Option& option, const std::vector<std::string>& values);

}  // namespace pleat::cli
