// `pleat trace top`: the memory of a running job by class.
#pragma once

#include <sys/types.h>

#include <CLI/CLI.hpp>

namespace pleat::cli {

struct TraceTopRequest {
  pid_t pid = 0;
  double interval_seconds = 1;
  bool once = false;
  bool as_json = false;
};
// Adds the command to `trace`. `request` must outlive it.
[[nodiscard]] CLI::App* add_trace_top(CLI::App& trace, TraceTopRequest& request);
// Returns when the job ends. Exit codes: 0; 2, there is no such job, or it cannot be read.
[[nodiscard]] int trace_top(const TraceTopRequest& request);

}  // namespace pleat::cli
