#include "summary.h"

#include <memory>

namespace pleat::cli {

using trace::Ledger;

bool DeviceWatch::take(const PleatTraceEvent& event, const Ledger& ledger) {
  const std::uint64_t number = ledger.events() - 1;
  compression_.take(event, ledger);
  layers_.take(event, ledger);
  if (what_if_) what_if_->take(event, ledger);
  const bool is_now = moment_.is_now(event, number);
  if (is_now) {
    at_ = take_snapshot(ledger, lives_.device, event);
    if (what_if_) would_be_ = what_if_->tell(at_.live, ledger);
  }
  if (number == replay_.lives().end_event) end_ = ledger.live(lives_.device);
  return is_now;
}

DeviceSummary DeviceWatch::summary(std::uint32_t depth, std::size_t most, bool with_what_if) {
  DeviceSummary summary;
  if (with_what_if)
    summary.what_if = WhatIfSummary{what_if_->peak(), what_if_->classes(), would_be_};
  summary.lives = &lives_;
  summary.by_line = group(at_.live, trace::GroupBy::kLine, replay_, lines_);
  summary.by_operator = group(at_.live, trace::GroupBy::kOperator, replay_, lines_);
  summary.growth = find_growth(end_, replay_.lives(), lines_);
  summary.compression = compression_.all();
  summary.compression_lines = compression_.lines();
  summary.held = compression_.held();
  summary.exact = compression_.exact();
  summary.left = compression_.left();
  summary.proved = compression_.proved();
  layers_.take_moment(at_.live, replay_);
  summary.layers = layers_.layers(depth, most);
  at_.live = {};
  summary.at = std::move(at_);
  return summary;
}

TraceSummary summarise(const trace::Replay& replay, trace::Lines& lines,
                       const TraceSummaryRequest& request, const trace::Progress& progress) {
  TraceSummary summary;
  summary.replay = &replay;
  summary.layers = std::make_unique<Layers>(replay, lines, request);
  std::vector<std::unique_ptr<DeviceWatch>> watches;
  for (const auto& [index, lives] : replay.lives().devices) {
    if (request.device && *request.device != index) continue;
    watches.push_back(std::make_unique<DeviceWatch>(replay, lives, request.at, request.what_if,
                                                    lines, *summary.layers));
  }
  replay.for_each(
      [&](const PleatTraceEvent& event, const Ledger& ledger) {
        for (const auto& watch : watches) watch->take(event, ledger);
        summary.disagreements = ledger.disagreements();
      },
      progress);
  for (const auto& watch : watches) summary.knows_what_if |= watch->knows_what_if();
  for (const auto& watch : watches)
    summary.devices.push_back(watch->summary(request.depth, request.top, summary.knows_what_if));
  return summary;
}

}  // namespace pleat::cli
