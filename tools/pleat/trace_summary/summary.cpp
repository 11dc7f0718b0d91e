#include "summary.h"

#include <memory>

namespace pleat::cli {
namespace {

using trace::Ledger;
using trace::Snapshot;

// Takes a device's snapshots as events pass by.
class DeviceWatch {
 public:
  DeviceWatch(const trace::Replay& replay, const trace::DeviceLives& lives, const Moment& moment,
              trace::Lines& lines, Layers& layers)
      : all_(replay.lives()),
        lives_(lives),
        moment_(moment, lives, replay.lives()),
        compression_(lives.device, replay.file().definitions(), lines),
        layers_(lives.device, layers) {}

  void take(const PleatTraceEvent& event, const Ledger& ledger) {
    const std::uint64_t number = ledger.events() - 1;
    compression_.take(event, ledger);
    layers_.take(event, ledger);
    if (moment_.is_now(event, number)) at_ = take_snapshot(ledger, lives_.device, event);
    if (number == all_.end_event) end_ = ledger.live(lives_.device);
  }

  [[nodiscard]] DeviceSummary summary(const trace::Replay& replay, trace::Lines& lines,
                                      const TraceSummaryRequest& request) {
    DeviceSummary summary;
    summary.lives = &lives_;
    summary.by_line = group(at_.live, trace::GroupBy::kLine, replay, lines);
    summary.by_operator = group(at_.live, trace::GroupBy::kOperator, replay, lines);
    summary.growth = find_growth(end_, all_, lines);
    summary.compression = compression_.all();
    summary.compression_lines = compression_.lines();
    summary.held = compression_.reasons();
    summary.exact = compression_.exact();
    summary.left = compression_.left();
    summary.encode_ns = compression_.encode_ns();
    layers_.take_moment(at_.live, replay);
    summary.layers = layers_.layers(request.depth, request.top);
    summary.at = std::move(at_);
    return summary;
  }

 private:
  const trace::Lives& all_;
  const trace::DeviceLives& lives_;
  MomentWatch moment_;
  trace::Compression compression_;
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
        std::make_unique<DeviceWatch>(replay, lives, request.at, lines, *summary.layers));
  }
  replay.for_each(
      [&](const PleatTraceEvent& event, const Ledger& ledger) {
        for (const auto& watch : watches) watch->take(event, ledger);
        summary.disagreements = ledger.disagreements();
      },
      progress);
  for (const auto& watch : watches)
    summary.devices.push_back(watch->summary(replay, lines, request));
  return summary;
}

}  // namespace pleat::cli
