// `pleat trace merge`: the traces of a job's ranks, side by side on one time base.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "tools/pleat/trace_command/request.h"

namespace pleat::cli {

struct TraceMergeRequest : TraceSelection {  // without `file`
  std::vector<std::string> files;            // and folders
  std::string output;                        // a timeline for Perfetto; "-": stdout; empty: none
  bool force = false;
  bool as_json = false;
  bool allow_missing = false;
  bool names_size = false;  // --min-size was given
};

[[nodiscard]] CLI::App* add_trace_merge(CLI::App& trace, TraceMergeRequest& request);
// Exit code: 0; 2, no traces of one job, or an output that cannot be written. The reason is a line
// on stderr.
[[nodiscard]] int trace_merge(const TraceMergeRequest& request);

}  // namespace pleat::cli
