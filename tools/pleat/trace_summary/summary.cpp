#include "summary.h"

#include <memory>

namespace pleat::cli {
namespace {

using trace::Ledger;
using trace::Snapshot;

// Takes a device's snapshots as events pass by.
class DeviceWatch {
 public:
  DeviceWatch(const trace::Replay& replay, const trace::DeviceLives& lives,
              const TraceSummaryRequest& request, trace::Lines& lines, Layers& layers)
      : all_(replay.lives()),
        lives_(lives),
        moment_(request.at, lives, replay.lives()),
        compression_(lives.device, replay.file().definitions(), lines),
        layers_(lives.device, layers) {
    if (request.what_if) what_if_.emplace(lives.device, *request.what_if, replay.filter());
  }

  void take(const PleatTraceEvent& event, const Ledger& ledger) {
    const std::uint64_t number = ledger.events() - 1;
    compression_.take(event, ledger);
    layers_.take(event, ledger);
    if (what_if_) what_if_->take(event, ledger);
    if (moment_.is_now(event, number)) {
      at_ = take_snapshot(ledger, lives_.device, event);
      if (what_if_) would_be_ = what_if_->tell(at_.live, ledger);
    }
    if (number == all_.end_event) end_ = ledger.live(lives_.device);
  }

  [[nodiscard]] bool knows_what_if() const { return what_if_ && what_if_->knows(); }

  [[nodiscard]] DeviceSummary summary(const trace::Replay& replay, trace::Lines& lines,
                                      const TraceSummaryRequest& request, bool with_what_if) {
    DeviceSummary summary;
    if (with_what_if)
      summary.what_if = WhatIfSummary{what_if_->peak(), what_if_->classes(), would_be_};
    summary.lives = &lives_;
    summary.by_line = group(at_.live, trace::GroupBy::kLine, replay, lines);
    summary.by_operator = group(at_.live, trace::GroupBy::kOperator, replay, lines);
    summary.growth = find_growth(end_, all_, lines);
    summary.compression = compression_.all();
    summary.compression_lines = compression_.lines();
    summary.held = compression_.held();
    summary.exact = compression_.exact();
    summary.left = compression_.left();
    summary.proved = compression_.proved();
    layers_.take_moment(at_.live, replay);
    summary.layers = layers_.layers(request.depth, request.top);
    at_.live = {};
    summary.at = std::move(at_);
    return summary;
  }

 private:
  const trace::Lives& all_;
  const trace::DeviceLives& lives_;
  MomentWatch moment_;
  trace::Compression compression_;
  std::optional<trace::WhatIf> what_if_;
  std::int64_t would_be_ = 0;  // at the moment
  LayerWatch layers_;
  Snapshot at_;
  std::vector<trace::LiveEntry> end_;
};

}  // namespace

TraceSummary summarise(const trace::Replay& replay, trace::Lines& lines,
                       const TraceSummaryRequest& request, const trace::Progress& progress) {
  TraceSummary summary;
  summary.replay = &replay;
  summary.layers = std::make_unique<Layers>(replay, lines, request);
  std::vector<std::unique_ptr<DeviceWatch>> watches;
  for (const auto& [index, lives] : replay.lives().devices) {
    if (request.device && *request.device != index) continue;
    watches.push_back(
        std::make_unique<DeviceWatch>(replay, lives, request, lines, *summary.layers));
  }
  replay.for_each(
      [&](const PleatTraceEvent& event, const Ledger& ledger) {
        for (const auto& watch : watches) watch->take(event, ledger);
        summary.disagreements = ledger.disagreements();
      },
      progress);
  for (const auto& watch : watches) summary.knows_what_if |= watch->knows_what_if();
  for (const auto& watch : watches)
    summary.devices.push_back(watch->summary(replay, lines, request, summary.knows_what_if));
  return summary;
}

}  // namespace pleat::cli
