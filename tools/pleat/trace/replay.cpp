#include "replay.h"

#include <algorithm>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

#include "interpose/trace/wrapping.h"

namespace pleat::trace {

Snapshot take_snapshot(const Ledger& ledger, int device, const PleatTraceEvent& event) {
  Snapshot snapshot;
  snapshot.taken = true;
  snapshot.event = ledger.events() - 1;
  snapshot.time_ns = event.time_ns;
  snapshot.step = ledger.step();
  snapshot.phase = event.phase;
  snapshot.totals = ledger.totals(device);
  snapshot.resident = ledger.resident();
  snapshot.small = ledger.small();
  snapshot.other = ledger.other();
  snapshot.gaps = ledger.gaps(device);
  snapshot.live = ledger.live(device);
  return snapshot;
}

// ---- a curve ------------------------------------------------------------------------------------

Curve::Curve(int device, const Lives& lives, std::size_t points)
    : device_(device), most_(std::max<std::size_t>(points, 1)), start_ns_(lives.first_time_ns) {
  width_ns_ = (lives.last_time_ns - lives.first_time_ns) / most_ + 1;
}

void Curve::begin(std::uint64_t time_ns, const Totals& totals) {
  const std::uint64_t passed = time_ns - start_ns_;
  end_ns_ = start_ns_ + (passed / width_ns_ + 1) * width_ns_;
  points_.push_back({time_ns, totals, totals.bytes, totals.reserved(), last_would_be_});
}

void Curve::take(const PleatTraceEvent& event, const Ledger& ledger, const WhatIf* what_if) {
  const Totals& totals = ledger.totals(device_);
  const std::uint64_t time = std::max(event.time_ns, start_ns_);
  if (points_.empty() || (time >= end_ns_ && points_.size() < most_)) {
    // What was there when the piece began counts in it.
    const std::uint64_t begins = time - (time - start_ns_) % width_ns_;
    begin(begins, last_);
  }
  Point& point = points_.back();
  if (totals.live() >= point.totals.live()) {
    point.time_ns = time;
    point.totals = totals;
  }
  for (std::size_t i = 0; i < kByteClasses; ++i)
    point.highest[i] = std::max(point.highest[i], totals.bytes[i]);
  point.highest_reserved = std::max(point.highest_reserved, totals.reserved());
  last_ = totals;
  if (what_if == nullptr) return;
  point.highest_would_be = std::max(point.highest_would_be, what_if->highest());
  last_would_be_ = what_if->live();
}

// ---- tables -------------------------------------------------------------------------------------

bool passes(const Filter& filter, const Lives& lives, const Definitions& definitions,
            std::int64_t bytes, std::uint32_t op, std::uint32_t step) {
  if (filter.least_bytes != 0 &&
      (bytes < 0 || static_cast<std::uint64_t>(bytes) < filter.least_bytes)) {
    return false;
  }
  if (filter.step && lives.step_number(step) != filter.step) return false;
  return filter.op.empty() || definitions.string(op).find(filter.op) != std::string_view::npos;
}

bool passes(const LiveEntry& entry, const Replay& replay) {
  const Filter& filter = replay.filter();
  return entry.bytes >= 0 && (!filter.of_class || entry.of == *filter.of_class) &&
         passes(filter, replay.lives(), replay.file().definitions(), entry.bytes, entry.place().op,
                entry.step);
}

std::vector<Group> group(const std::vector<LiveEntry>& live, GroupBy by, const Replay& replay,
                         Lines& lines) {
  std::vector<Group> groups;
  std::unordered_map<std::uint64_t, std::array<std::uint32_t, kByteClasses>> found;
  for (const LiveEntry& entry : live) {
    if (!passes(entry, replay)) continue;
    const Origin place = entry.place();
    const std::uint32_t frame = by == GroupBy::kLine ? lines.frame_of(place.stack) : 0;
    const std::uint64_t key = std::uint64_t{place.op} << 32 | frame;
    std::uint32_t& index = found[key][static_cast<std::size_t>(entry.of)];  // plus 1
    const bool is_first = index == 0;
    if (is_first) {
      groups.push_back({.op = place.op, .frame = frame, .of = entry.of});
      index = static_cast<std::uint32_t>(groups.size());
    }
    Group& into = groups[index - 1];
    into.bytes = wrapping_add(into.bytes, entry.bytes);
    into.would_be = wrapping_add(into.would_be, entry.would_be);
    if (is_first || entry.born_ns < into.oldest_ns) into.oldest_ns = entry.born_ns;
    if (entry.bytes != 0 || entry.block != 0) ++into.count;  // else it only would be there
    if (entry.step == kNoStep) continue;
    if (into.first_step == kNoStep || entry.step < into.first_step) into.first_step = entry.step;
    if (into.last_step == kNoStep || entry.step > into.last_step) into.last_step = entry.step;
  }
  // Of equals what came first, so that two runs print the same.
  std::sort(groups.begin(), groups.end(), [](const Group& a, const Group& b) {
    return std::tie(b.bytes, a.oldest_ns, a.op, a.frame, a.of) <
           std::tie(a.bytes, b.oldest_ns, b.op, b.frame, b.of);
  });
  return groups;
}

// ---- growth -------------------------------------------------------------------------------------

Growth find_growth(const std::vector<LiveEntry>& live, const Lives& lives, Lines& lines) {
  Growth growth;
  if (lives.steps.size() < kLeastSteps) return growth;
  const std::size_t last = lives.steps.size() - 3;  // two steps later there still is one
  growth.known = true;
  growth.steps = last - kFirstGrowthStep + 1;
  std::unordered_map<std::uint64_t, std::size_t> found;
  std::vector<std::unordered_set<std::uint32_t>> steps;
  std::vector<GrowthLine> all;
  for (const LiveEntry& entry : live) {
    if (entry.step == kNoStep || entry.step < kFirstGrowthStep || entry.step > last) continue;
    const Origin place = entry.place();
    const std::uint32_t frame = lines.frame_of(place.stack);
    const auto [it, is_new] = found.try_emplace(std::uint64_t{place.op} << 32 | frame, all.size());
    if (is_new) {
      all.push_back({.op = place.op, .frame = frame});
      steps.emplace_back();
    }
    GrowthLine& line = all[it->second];
    line.bytes = wrapping_add(line.bytes, entry.bytes);
    ++line.count;
    steps[it->second].insert(entry.step);
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    GrowthLine& line = all[i];
    line.steps = static_cast<std::uint32_t>(steps[i].size());
    line.bytes_per_step = static_cast<double>(line.bytes) / static_cast<double>(growth.steps);
    if (line.steps * std::size_t{2} < growth.steps) continue;
    growth.bytes_per_step += line.bytes_per_step;
    growth.lines.push_back(line);
  }
  std::sort(growth.lines.begin(), growth.lines.end(), [](const GrowthLine& a, const GrowthLine& b) {
    return std::tie(b.bytes, a.op, a.frame) < std::tie(a.bytes, b.op, b.frame);
  });
  return growth;
}

}  // namespace pleat::trace
