// `pleat trace record`: which file a program's trace goes to.
#pragma once

#include <string>

#include "tools/pleat/environment.h"

namespace pleat::cli {

struct TraceRecordRequest {
  std::string output = "pleat.trace";  // a file, or a folder for pleat.trace in it
  bool force = false;                  // an existing file is replaced
  bool with_command = false;           // the trace holds the command line
};

// Adds to `settings` what the program's options are to say: the trace's path, absolute, and that
// nothing is compressed unless these settings or PLEAT_CONF say so. Removes an existing file if
// that was asked for. A return value other than 0 is the exit code; the reason is on stderr.
[[nodiscard]] int prepare_trace(const TraceRecordRequest& request, Settings& settings);

}  // namespace pleat::cli
