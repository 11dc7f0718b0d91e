// `pleat trace export`: a trace in the formats of other tools. Each format is a function that reads
// the trace once more and writes as it reads; memory follows what lives, not what has been. Others
// write some of them, too.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "tools/pleat/trace/ledger.h"
#include "tools/pleat/trace/lines.h"
#include "tools/pleat/trace/replay.h"
#include "tools/pleat/trace_command/output.h"
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

inline constexpr std::size_t kMostThreads = 1u << 16;  // that an export tells apart

struct TraceExport {
  const TraceExportRequest& request;
  const trace::File& file;
  const trace::Filter& filter;
  const trace::Lives& lives;
  trace::Lines& lines;
  const trace::Progress& progress;
  TraceOutput& out;

  // The second pass: before(event, ledger) sees what the event ends, after(event, ledger) what it
  // makes; after() may return false, which ends it. Ends early once `out` has failed.
  template <class Before, class After>
  void for_each(Before&& before, After&& after) const {
    trace::Ledger ledger(file, lives);
    file.for_each(
        [&](const PleatTraceEvent& event) {
          if (ledger.events() >= lives.events || out.failed()) return false;
          before(event, static_cast<const trace::Ledger&>(ledger));
          ledger.apply(event);
          if constexpr (std::is_same_v<decltype(after(event, ledger)), bool>)
            return after(event, static_cast<const trace::Ledger&>(ledger));
          else
            after(event, static_cast<const trace::Ledger&>(ledger));
          return true;
        },
        trace::kAllColumns, progress);
  }

  [[nodiscard]] bool wants(int device) const {
    return !request.device || *request.device == device;
  }
  // Filters but for times, classes and devices: of something of so many bytes.
  [[nodiscard]] bool passes(std::int64_t bytes, std::uint32_t op, std::uint32_t step) const {
    return trace::passes(filter, lives, file.definitions(), bytes, op, step);
  }
  [[nodiscard]] bool is_of_class(trace::ByteClass of) const {
    return !filter.of_class || *filter.of_class == of;
  }
};

// Errors go to `out`.
void export_csv(const TraceExport& to);
void export_json_lines(const TraceExport& to);
void export_speedscope(const TraceExport& to);
void export_collapsed(const TraceExport& to);
void export_perfetto(const TraceExport& to);
struct PerfettoPlace;
// One process of a file that holds several, each written once.
void export_perfetto_process(const TraceExport& to, PerfettoPlace place);
void export_torch_snapshot(const TraceExport& to);

// ---- words --------------------------------------------------------------------------------------

[[nodiscard]] std::string_view event_name(
    std::uint8_t kind);  // "allocate"; "?": there is none such
// An event of an allocator: its bytes are memory, its block and record are of its device.
[[nodiscard]] constexpr bool is_memory(std::uint8_t kind) { return kind < PLEAT_TRACE_PHASE; }

}  // namespace pleat::cli
