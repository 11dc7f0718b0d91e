#include "trace_summary.h"

#include <memory>

namespace pleat::cli {
namespace {

using trace::Ledger;
using trace::Snapshot;

// Takes a device's snapshots as events pass by.
class DeviceWatch {
 public:
  DeviceWatch(const trace::Replay& replay, const trace::DeviceLives& lives, const Moment& moment,
              trace::Lines& lines)
      : all_(replay.lives()),
        lives_(lives),
        compression_(lives.device, replay.file().definitions(), lines) {
    using Kind = Moment::Kind;
    const trace::Peak& peak = lives.peaks[PLEAT_TRACE_REQUESTED];
    if (moment.kind == Kind::kPeak && peak.bytes > 0) wanted_ = peak.event;
    if (moment.kind == Kind::kEnd) wanted_ = all_.end_event;
    if (moment.kind == Kind::kOutOfMemory) wanted_ = lives.last_out_of_memory;
    if (moment.kind == Kind::kTime) {
      by_time_ = true;
      const double ns = std::min(moment.seconds * 1e9, 9e18);
      time_ns_ = all_.start_ns + static_cast<std::uint64_t>(ns);
    }
  }

  void take(const PleatTraceEvent& event, const Ledger& ledger) {
    const std::uint64_t number = ledger.events() - 1;
    compression_.take(event, ledger);
    const bool last = number + 1 == all_.events;
    if (wanted_ && number == *wanted_) at_ = take_snapshot(ledger, lives_.device, event);
    if (by_time_ && !at_.taken && (event.time_ns >= time_ns_ || last))
      at_ = take_snapshot(ledger, lives_.device, event);
    if (number == all_.end_event) end_ = ledger.live(lives_.device);
  }

  [[nodiscard]] DeviceSummary summary(const trace::Replay& replay, trace::Lines& lines) {
    DeviceSummary summary;
    summary.lives = &lives_;
    summary.by_line = group(at_.live, trace::GroupBy::kLine, replay, lines);
    summary.by_operator = group(at_.live, trace::GroupBy::kOperator, replay, lines);
    summary.growth = find_growth(end_, all_, lines);
    summary.compression = compression_.all();
    summary.compression_lines = compression_.lines();
    summary.held = compression_.reasons();
    summary.exact = compression_.exact();
    summary.at = std::move(at_);
    return summary;
  }

 private:
  const trace::Lives& all_;
  const trace::DeviceLives& lives_;
  trace::Compression compression_;
  std::optional<std::uint64_t> wanted_;
  bool by_time_ = false;
  std::uint64_t time_ns_ = 0;
  Snapshot at_;
  std::vector<trace::LiveEntry> end_;
};

}  // namespace

TraceSummary summarise(const trace::Replay& replay, trace::Lines& lines,
                       const TraceSummaryRequest& request, const trace::Progress& progress) {
  TraceSummary summary;
  summary.replay = &replay;
  std::vector<std::unique_ptr<DeviceWatch>> watches;
  for (const auto& [index, lives] : replay.lives().devices) {
    if (request.device && *request.device != index) continue;
    watches.push_back(std::make_unique<DeviceWatch>(replay, lives, request.at, lines));
  }
  replay.for_each(
      [&](const PleatTraceEvent& event, const Ledger& ledger) {
        for (const auto& watch : watches) watch->take(event, ledger);
        summary.disagreements = ledger.disagreements();
      },
      progress);
  for (const auto& watch : watches) summary.devices.push_back(watch->summary(replay, lines));
  return summary;
}

}  // namespace pleat::cli
