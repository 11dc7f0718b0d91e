// What `pleat trace report` tells of a trace, in numbers: gathered in one second pass. Prints
// nothing.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "flame.h"
#include "map.h"
#include "over_time.h"
#include "places.h"
#include "tools/pleat/answer.h"
#include "tools/pleat/trace_summary/summary.h"

namespace pleat::cli {

struct TraceReportRequest : TraceSelection {
  std::string output;
  bool force = false;  // an existing file is replaced
  Moment at;
  std::optional<double> what_if;  // bits, or trace::kLossless; none: as kReportWhatIf says
  std::uint32_t depth = 0;        // of modules in their table; 0: any
};

inline constexpr std::size_t kReportPoints = 4000;   // of a curve
inline constexpr std::size_t kReportFrames = 2000;   // of a flame graph
inline constexpr std::size_t kReportPieces = 10000;  // of a map

// Asked of a trace of bits:off without being told to.
inline constexpr double kReportWhatIf = 4;

struct DeviceReport : DeviceSummary {
  std::vector<trace::Curve::Point> curve;
  std::vector<RunPlace> run;
  std::vector<FlameNode> flame;
  MemoryMap map;
};

struct TraceReport {
  const trace::Replay* replay = nullptr;
  std::uint64_t disagreements = 0;
  std::optional<double> what_if;  // bits of the prediction; none: no prediction
  std::vector<ResidentCurve::Point> resident;
  std::vector<PhaseBands::Band> phases;
  std::vector<DeviceReport> devices;  // the host first
  std::unique_ptr<Layers> layers;
};

// Makes the second pass. `lines` and `replay` must outlive what is returned.
[[nodiscard]] TraceReport gather_report(const trace::Replay& replay, trace::Lines& lines,
                                        const TraceReportRequest& selection,
                                        const trace::Progress& progress);

// ---- tables by place ----------------------------------------------------------------------------

// Rows of a table. Of places, those beyond are added up in one more.
inline constexpr std::size_t kMostPlaces = 1000;

struct PlaceRow {
  PlaceKey place;
  bool rest = false;          // all that have no row
  trace::ClassBytes bytes{};  // at the moment
  std::uint64_t blocks = 0;
  std::int64_t would_be = 0;  // bytes at the moment, with other bits
  RunSums run;

  [[nodiscard]] std::int64_t live() const noexcept { return trace::sum_of(bytes); }
};

// The most live bytes first, then the most allocated. Filters hold for the moment only.
[[nodiscard]] std::vector<PlaceRow> place_rows(const DeviceReport& device, bool by_line);

// Which filters a page was made with: "operator with gelu, class payloads"; empty: none.
[[nodiscard]] std::string report_filter_text(const TraceReportRequest& request);

// The data of the page.
[[nodiscard]] Json report_json(const TraceReport& report, trace::Lines& lines,
                               const TraceReportRequest& request);

}  // namespace pleat::cli
