// `pleat trace summary`: the figures of a trace, as text or as JSON.
#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "tools/pleat/trace_command/request.h"

namespace pleat::cli {

struct TraceSummaryRequest : TraceSelection {
  bool as_json = false;
  std::size_t top = 10;     // rows of each table
  std::uint32_t depth = 0;  // of modules in their table; 0: any
  Moment at;
  std::optional<double> what_if;  // bits, or trace::kLossless
  std::optional<std::uint64_t> most_peak_bytes;
  std::optional<std::uint64_t> most_growth_bytes;  // a step
};

// Of `pleat trace`, too.
extern const char* const kSummaryExamples;

// Adds `summary` to `trace`. `request` must outlive the parsing.
[[nodiscard]] CLI::App* add_trace_summary(CLI::App& trace, TraceSummaryRequest& request);
// Exit code: 0; 2, no trace; 3, over a limit. The reason is a line on stderr.
[[nodiscard]] int trace_summary(const TraceSummaryRequest& request);

}  // namespace pleat::cli
