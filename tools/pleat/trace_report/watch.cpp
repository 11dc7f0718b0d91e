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
  DeviceWatch(const trace::Replay& replay, const trace::DeviceLives& lives,
              const TraceReportRequest& request, trace::Lines& lines, Layers& layers)
      : replay_(replay),
        lives_(lives),
        lines_(lines),
        what_if_(lives.device, request.what_if.value_or(kReportWhatIf), replay.filter()),
        curve_(lives.device, replay.lives(), kReportPoints),
        compression_(lives.device, replay.file().definitions(), lines),
        layers_(lives.device, layers),
        run_(lives.device, lines),
        chunks_(lives.device),
        moment_(request.at, lives, replay.lives()) {}

  void take(const PleatTraceEvent& event, const Ledger& ledger) {
    const std::uint64_t number = ledger.events() - 1;
    what_if_.take(event, ledger);
    curve_.take(event, ledger, &what_if_);
    compression_.take(event, ledger);
    layers_.take(event, ledger);
    run_.take(event, ledger);
    chunks_.take(event, ledger);
    if (moment_.is_now(event, number)) {
      at_ = take_snapshot(ledger, lives_.device, event);
      map_ = memory_map(ledger, lives_.device, at_.live, chunks_, kReportPieces);
      what_if_.tell(at_.live, ledger);
    }
    if (number == replay_.lives().end_event) end_ = ledger.live(lives_.device);
  }

  [[nodiscard]] const trace::WhatIf& what_if() const noexcept { return what_if_; }

  [[nodiscard]] DeviceReport report(std::uint32_t depth, bool with_what_if) {
    DeviceReport report;
    report.lives = &lives_;
    report.what_if = what_if_.peak();
    const auto only_would_be = [](const LiveEntry& one) {
      return one.block == 0 && one.bytes == 0;
    };
    if (!with_what_if) std::erase_if(at_.live, only_would_be);
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
    std::erase_if(at_.live, only_would_be);
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
  trace::WhatIf what_if_;
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
        std::make_unique<DeviceWatch>(replay, lives, selection, lines, *report.layers));
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
  const bool tells_what_if = std::any_of(watches.begin(), watches.end(), [&](const auto& watch) {
    return selection.what_if ? watch->what_if().knows() : watch->what_if().has_plans();
  });
  if (tells_what_if) report.what_if = selection.what_if.value_or(kReportWhatIf);
  for (const auto& watch : watches)
    report.devices.push_back(watch->report(selection.depth, tells_what_if));
  return report;
}

}  // namespace pleat::cli
