// Work of the command line, and `pleat trace`: a program's memory, from its trace. Its commands
// read files and start no process; `record` is in trace_command/record.h.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <utility>

namespace pleat::cli {

// Does what the command line asks for. Returns the exit code.
using Work = std::function<int()>;
// `act` becomes the work if `command` is parsed without a command below it.
inline void on_parsed(CLI::App& command, Work& work, Work act) {
  command.callback([&command, &work, act = std::move(act)] {
    if (!work && command.get_subcommands().empty()) work = act;
  });
}

// Each adds a command. Exit codes: 0; 2, no trace, or an output that cannot be written; 3, over a
// limit. The reason is a line on stderr. `work` must outlive the parsing.
void add_trace_summary(CLI::App& trace, Work& work);
void add_trace_export(CLI::App& trace, Work& work);
void add_trace_report(CLI::App& trace, Work& work);
void add_trace_diff(CLI::App& trace, Work& work);
void add_trace_merge(CLI::App& trace, Work& work);
// Returns when the job ends.
void add_trace_top(CLI::App& trace, Work& work);

}  // namespace pleat::cli
