#include "watch.h"

#include <algorithm>
#include <memory>

#include "tables.h"

namespace pleat::cli {
namespace {

using trace::Ledger;
using trace::LiveEntry;

// Everything of one device, as events pass by.
class DeviceWatch {
 public:
  DeviceWatch(const trace::Replay& replay, const trace::DeviceLives& lives, const Moment& moment,
              trace::Lines& lines, Layers& layers)
      : replay_(replay),
        lives_(lives),
        lines_(lines),
        curve_(lives.device, replay.lives(), kReportPoints),
        compression_(lives.device, replay.file().definitions(), lines),
        layers_(lives.device, layers),
        run_(lives.device, lines),
        chunks_(lives.device),
        moment_(moment, lives, replay.lives()) {}

  void take(const PleatTraceEvent& event, const Ledger& ledger) {
    const std::uint64_t number = ledger.events() - 1;
    curve_.take(event, ledger);
    compression_.take(event, ledger);
    layers_.take(event, ledger);
    run_.take(event, ledger);
    chunks_.take(event, ledger);
    if (moment_.is_now(event, number)) {
      at_ = take_snapshot(ledger, lives_.device, event);
      map_ = memory_map(ledger, lives_.device, at_.live, chunks_, kReportPieces);
    }
    if (number == replay_.lives().end_event) end_ = ledger.live(lives_.device);
  }

  [[nodiscard]] DeviceReport report(std::uint32_t depth) {
    DeviceReport report;
    report.lives = &lives_;
    report.curve = curve_.points();
    report.by_line = group(at_.live, trace::GroupBy::kLine, replay_, lines_);
    report.by_operator = group(at_.live, trace::GroupBy::kOperator, replay_, lines_);
    report.run = run_.places();
    report.map = std::move(map_);
    report.growth = find_growth(end_, replay_.lives(), lines_);
    report.compression = compression_.all();
    report.compression_lines = compression_.lines();
    report.left_raw = run_.left_raw();
    report.left_alone = compression_.left();
    report.encode_ns = compression_.encode_ns();
    layers_.take_moment(at_.live, replay_);
    report.layers = layers_.layers(depth, kMostPlaces);
    std::erase_if(at_.live, [&](const LiveEntry& entry) { return !passes(entry, replay_); });
    report.flame = flame_of(at_.live, replay_.file().definitions(), lines_, kReportFrames);
    at_.live = {};
    report.at = std::move(at_);
    return report;
  }

 private:
  const trace::Replay& replay_;
  const trace::DeviceLives& lives_;
  trace::Lines& lines_;
  trace::Curve curve_;
  trace::Compression compression_;
  LayerWatch layers_;
  RunPlaces run_;
  ChunkPlaces chunks_;
  MomentWatch moment_;
  trace::Snapshot at_;
  MemoryMap map_;
  std::vector<LiveEntry> end_;
};

}  // namespace

TraceReport gather_report(const trace::Replay& replay, trace::Lines& lines,
                          const TraceReportRequest& selection, const trace::Progress& progress) {
  TraceReport report;
  report.replay = &replay;
  report.layers = std::make_unique<Layers>(replay, lines, selection);
  ResidentCurve resident(replay.lives(), kReportPoints);
  PhaseBands phases(replay.lives(), kReportPoints);
  std::vector<std::unique_ptr<DeviceWatch>> watches;
  for (const auto& [index, lives] : replay.lives().devices) {
    if (selection.device && *selection.device != index) continue;
    watches.push_back(
        std::make_unique<DeviceWatch>(replay, lives, selection.at, lines, *report.layers));
  }
  replay.for_each(
      [&](const PleatTraceEvent& event, const Ledger& ledger) {
        resident.take(event);
        phases.take(event);
        for (const auto& watch : watches) watch->take(event, ledger);
        report.disagreements = ledger.disagreements();
      },
      progress);
  report.resident = resident.points();
  report.phases = phases.bands();
  for (const auto& watch : watches) report.devices.push_back(watch->report(selection.depth));
  return report;
}

}  // namespace pleat::cli
