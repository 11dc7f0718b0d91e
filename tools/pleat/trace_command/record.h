// `pleat trace record`: which file a program's trace goes to.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>

#include "tools/pleat/environment.h"

namespace pleat::cli {

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

}  // namespace pleat::cli
