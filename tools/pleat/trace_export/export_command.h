// `pleat trace export`: a trace in the formats of other tools. Each format is a function that reads
// the trace once more and writes as it reads; memory follows what lives, not what has been.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <string>

#include "tools/pleat/trace_command/request.h"

namespace pleat::cli {

enum class ExportFormat : std::uint8_t {
  kTorchPickle,
  kTorchJson,
  kPerfetto,
  kSpeedscope,
  kCollapsed,
  kCsv,
  kJson,
};

// Which bytes a flame graph shows.
enum class StackBytes : std::uint8_t {
  kPeak,       // live at the device's peak
  kLeaked,     // born in step 2 or later, and older than the step that ended last
  kSaved,      // of all storages that were saved for backward
  kAllocated,  // of all blocks
};

struct TraceExportRequest : TraceSelection {
  ExportFormat format = ExportFormat::kCsv;
  std::string output;  // "-": stdout
  bool force = false;
  Moment at;                                 // of a snapshot
  StackBytes what = StackBytes::kPeak;       // of collapsed stacks
  bool names_size = false;                   // --min-size was given
  std::optional<std::uint64_t> most_events;  // --max-events
};

class TraceExportCommand;
// Adds `export` to `trace`. The returned object must outlive the parsing.
[[nodiscard]] std::shared_ptr<TraceExportCommand> add_trace_export(CLI::App& trace);
[[nodiscard]] bool trace_export_parsed(const TraceExportCommand& command);
// Exit code: 0; 2, no trace or an output that cannot be written. The reason is a line on stderr.
[[nodiscard]] int run_trace_export(const TraceExportCommand& command);

}  // namespace pleat::cli
