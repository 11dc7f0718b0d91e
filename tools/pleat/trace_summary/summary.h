// What `pleat trace summary` tells of a trace, in numbers. Prints nothing.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/pleat/trace/compression.h"
#include "tools/pleat/trace/replay.h"
#include "tools/pleat/trace_command/describe.h"
#include "tools/pleat/trace_command/layers.h"
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

// A device's predicted memory with other bits.
struct WhatIfSummary {
  trace::Peak peak;
  std::array<std::int64_t, trace::kByteClasses> classes{};  // that it is made of
  std::int64_t at = 0;  // live bytes at the moment that was asked for
};

struct DeviceSummary {
  const trace::DeviceLives* lives = nullptr;
  // The moment that was asked for, without what lived; not taken: there is none such.
  trace::Snapshot at;
  std::vector<trace::Group> by_line;
  std::vector<trace::Group> by_operator;
  trace::Growth growth;
  trace::CompressionSums compression;
  std::vector<trace::CompressionLine> compression_lines;
  std::vector<trace::TrailLine> held, exact;
  std::optional<WhatIfSummary> what_if;  // none: not asked for, or the trace does not know
  std::vector<trace::LeftLine> left;
  std::vector<trace::ProvedLine> proved;
  DeviceLayers layers;
};

// Follows a device's memory through the second pass. All that it is given must outlive it.
class DeviceWatch {
 public:
  // `bits`: of a prediction; none: there is none.
  DeviceWatch(const trace::Replay& replay, const trace::DeviceLives& lives, const Moment& at,
              std::optional<double> bits, trace::Lines& lines, Layers& layers)
      : replay_(replay),
        lives_(lives),
        lines_(lines),
        compression_(lives.device, replay.file().definitions(), lines),
        layers_(lives.device, layers),
        moment_(at, lives, replay.lives()) {
    if (bits) what_if_.emplace(lives.device, *bits, replay.filter());
  }

  // True: the event ends with the moment that was asked for.
  bool take(const PleatTraceEvent& event, const trace::Ledger& ledger);
  [[nodiscard]] bool knows_what_if() const noexcept { return what_if_ && what_if_->knows(); }
  // Once, after the last event. `depth`, `most`: of modules.
  [[nodiscard]] DeviceSummary summary(std::uint32_t depth, std::size_t most, bool with_what_if);

 protected:
  const trace::Replay& replay_;
  const trace::DeviceLives& lives_;
  trace::Lines& lines_;
  std::optional<trace::WhatIf> what_if_;
  trace::Snapshot at_;

 private:
  trace::Compression compression_;
  LayerWatch layers_;
  MomentWatch moment_;
  std::int64_t would_be_ = 0;  // at the moment
  std::vector<trace::LiveEntry> end_;
};

struct TraceSummary {
  const trace::Replay* replay = nullptr;
  std::uint64_t disagreements = 0;
  bool knows_what_if = false;
  std::vector<DeviceSummary> devices;  // the host first
  std::unique_ptr<Layers> layers;
};

// Makes the second pass. `lines` and `replay` must outlive what is returned.
[[nodiscard]] TraceSummary summarise(const trace::Replay& replay, trace::Lines& lines,
                                     const TraceSummaryRequest& request,
                                     const trace::Progress& progress);

[[nodiscard]] Section answer_of(const TraceSummary& summary, trace::Lines& lines,
                                const TraceSummaryRequest& request);
// Adds `compression`.
void put_compression(Section& to, const DeviceSummary& device, const PlaceCells& places,
                     const TraceSummaryRequest& request);
// Adds the tables of modules and of groups: null where the trace has none, or none were asked for.
void put_layers(Section& to, const TraceSummary& summary, const DeviceSummary& device,
                trace::Lines& lines, const TraceSummaryRequest& request);

}  // namespace pleat::cli
