#include "watch.h"

#include <algorithm>
#include <memory>

namespace pleat::cli {
namespace {

using trace::Ledger;
using trace::LiveEntry;

// Everything of one device, as events pass by.
class DeviceWatch {
 public:
  DeviceWatch(const trace::Replay& replay, const trace::DeviceLives& lives,
              const TraceReportRequest& request, trace::Lines& lines, Layers& layers,
              bool with_what_if)
      : replay_(replay),
        lives_(lives),
        lines_(lines),
        curve_(lives.device, replay.lives(), kReportPoints),
        compression_(lives.device, replay.file().definitions(), lines),
        layers_(lives.device, layers),
        run_(lives.device, lines),
        moment_(request.at, lives, replay.lives()) {
    if (with_what_if)
      what_if_.emplace(lives.device, request.what_if.value_or(kReportWhatIf), replay.filter());
  }

  void take(const PleatTraceEvent& event, const Ledger& ledger) {
    const std::uint64_t number = ledger.events() - 1;
    if (what_if_) what_if_->take(event, ledger);
    curve_.take(event, ledger, what_if_ ? &*what_if_ : nullptr);
    compression_.take(event, ledger);
    layers_.take(event, ledger);
    run_.take(event, ledger);
    if (moment_.is_now(event, number)) {
      at_ = take_snapshot(ledger, lives_.device, event);
      map_ = memory_map(ledger, lives_.device, at_.live, kReportPieces);
      if (what_if_) what_if_->tell(at_.live, ledger);
    }
    if (number == replay_.lives().end_event) end_ = ledger.live(lives_.device);
  }

  [[nodiscard]] bool knows_what_if() const noexcept { return what_if_ && what_if_->knows(); }

  [[nodiscard]] DeviceReport report(std::uint32_t depth, bool with_what_if) {
    DeviceReport report;
    report.lives = &lives_;
    if (what_if_) report.what_if = what_if_->peak();
    if (!with_what_if)
      std::erase_if(at_.live, [](const auto& one) { return one.block == 0 && one.bytes == 0; });
    report.curve = curve_.points();
    report.by_line = group(at_.live, trace::GroupBy::kLine, replay_, lines_);
    report.by_operator = group(at_.live, trace::GroupBy::kOperator, replay_, lines_);
    report.run = run_.places();
    report.map = std::move(map_);
    report.growth = find_growth(end_, replay_.lives(), lines_);
    report.compression = compression_.all();
    report.compression_lines = compression_.lines();
    report.held = compression_.held();
    report.left_alone = compression_.left();
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
  std::optional<trace::WhatIf> what_if_;
  trace::Curve curve_;
  trace::Compression compression_;
  LayerWatch layers_;
  RunPlaces run_;
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
  const auto is_wanted = [&](int device) {
    return !selection.device || *selection.device == device;
  };
  const auto& devices = replay.lives().devices;
  const bool has_plans = std::any_of(devices.begin(), devices.end(), [&](const auto& one) {
    return is_wanted(one.first) && one.second.has_plans;
  });
  std::vector<std::unique_ptr<DeviceWatch>> watches;
  for (const auto& [index, lives] : devices) {
    if (!is_wanted(index)) continue;
    watches.push_back(std::make_unique<DeviceWatch>(replay, lives, selection, lines, *report.layers,
                                                    selection.what_if || has_plans));
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
  const bool tells_what_if =
      selection.what_if ? std::any_of(watches.begin(), watches.end(),
                                      [](const auto& watch) { return watch->knows_what_if(); })
                        : has_plans;
  if (tells_what_if) report.what_if = selection.what_if.value_or(kReportWhatIf);
  for (const auto& watch : watches)
    report.devices.push_back(watch->report(selection.depth, tells_what_if));
  return report;
}

}  // namespace pleat::cli
