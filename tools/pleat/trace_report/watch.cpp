#include "watch.h"

#include <algorithm>
#include <memory>

namespace pleat::cli {
namespace {

using trace::Ledger;
using trace::LiveEntry;

// Everything of one device, as events pass by.
class ReportWatch : public DeviceWatch {
 public:
  ReportWatch(const trace::Replay& replay, const trace::DeviceLives& lives, const Moment& at,
              std::optional<double> bits, trace::Lines& lines, Layers& layers)
      : DeviceWatch(replay, lives, at, bits, lines, layers),
        curve_(lives.device, replay.lives(), kReportPoints),
        run_(lives.device, lines) {}

  void take(const PleatTraceEvent& event, const Ledger& ledger) {
    if (DeviceWatch::take(event, ledger))
      map_ = memory_map(ledger, lives_.device, ledger.live(lives_.device), kReportPieces);
    curve_.take(event, ledger, what_if_ ? &*what_if_ : nullptr);
    run_.take(event, ledger);
  }

  [[nodiscard]] DeviceReport report(std::uint32_t depth, bool with_what_if) {
    std::erase_if(at_.live, [&](const LiveEntry& one) {
      const bool only_would_be = one.block == 0 && one.bytes == 0;
      return (only_would_be && !with_what_if) || !passes(one, replay_);
    });
    DeviceReport report;
    report.flame = flame_of(at_.live, replay_.file().definitions(), lines_, kReportFrames);
    static_cast<DeviceSummary&>(report) = summary(depth, kMostPlaces, with_what_if);
    report.curve = curve_.points();
    report.run = run_.places();
    report.map = std::move(map_);
    return report;
  }

 private:
  trace::Curve curve_;
  RunPlaces run_;
  MemoryMap map_;
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
  const double bits = selection.what_if.value_or(kReportWhatIf);
  const std::optional<double> asked =
      selection.what_if || has_plans ? std::optional(bits) : std::nullopt;
  std::vector<std::unique_ptr<ReportWatch>> watches;
  for (const auto& [index, lives] : devices)
    if (is_wanted(index))
      watches.push_back(
          std::make_unique<ReportWatch>(replay, lives, selection.at, asked, lines, *report.layers));
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
  if (tells_what_if) report.what_if = bits;
  for (const auto& watch : watches)
    report.devices.push_back(watch->report(selection.depth, tells_what_if));
  return report;
}

}  // namespace pleat::cli
