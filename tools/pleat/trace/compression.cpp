#include "compression.h"

#include <algorithm>
#include <functional>
#include <tuple>
#include <utility>

#include "interpose/trace/wrapping.h"
#include "trail.h"

namespace pleat::trace {
namespace {

void add(std::uint64_t& count, std::int64_t& sum, std::int64_t bytes) noexcept {
  ++count;
  sum = wrapping_add(sum, bytes);
}

// Adds to the count of `key`, unless there are too many keys.
template <class Map, class Key>
void add(Map& counts, std::size_t most, const Key& key, std::int64_t bytes) {
  if (counts.size() >= most && !counts.contains(key)) return;
  auto& count = counts[key];
  add(count.records, count.bytes, bytes);
}

}  // namespace

void add_to(CompressionSums& sums, const PleatTraceEvent& event,
            const LiveRecord& record) noexcept {
  const auto bytes = static_cast<std::int64_t>(event.bytes);
  switch (event.kind) {
    case PLEAT_TRACE_TAG:
      return add(sums.saved, sums.saved_bytes, bytes);
    case PLEAT_TRACE_HOLD:
      sums.encode_ns += event.key;
      return add(sums.held, sums.held_bytes, bytes);
    case PLEAT_TRACE_ENCODE:
      sums.encode_ns += event.key;
      add(sums.encoded, sums.source_bytes, record.bytes);
      sums.payload_bytes = wrapping_add(sums.payload_bytes, bytes);
      return;
    case PLEAT_TRACE_RESTORE:
      sums.restore_ns += event.key;
      return add(sums.restored, sums.restored_bytes, bytes);
    default:
      return;
  }
}

CompressionSums* Compression::of(Origin origin) {
  const std::uint64_t place =
      (std::uint64_t{origin.op} << 32 | lines_.frame_of(origin.stack)) + 1;  // 0 is no id
  return by_place_.find_or_insert(place);
}

void Compression::add_trail(ByTrail& to, std::uint32_t trail, const PleatTraceEvent& event,
                            Origin origin) {
  add(to, kMostTrails, std::tuple{trail, origin.op, lines_.frame_of(origin.stack)},
      static_cast<std::int64_t>(event.bytes));
}

void Compression::take_decision(const PleatTraceEvent& event, const Ledger& ledger) {
  const LiveRecord* const record = ledger.record(device_, event.record);
  if (record == nullptr || exactness_of(definitions_.string(event.op)) == "may_bear_noise") return;
  add_trail(exact_, event.op, event, record->origin);
}

void Compression::take_left(const PleatTraceEvent& event) {
  add(left_, kMostLeft, std::pair{event.op, lines_.frame_of(event.stack)},
      static_cast<std::int64_t>(event.bytes));
}

void Compression::take(const PleatTraceEvent& event, const Ledger& ledger) {
  if (event.device != device_) return;
  if (event.kind == PLEAT_TRACE_LEFT) return take_left(event);
  if (event.kind == PLEAT_TRACE_PROVED)
    return add(proved_, kMostProved, event.op, static_cast<std::int64_t>(event.bytes));
  if (event.kind == PLEAT_TRACE_DECIDED) return take_decision(event, ledger);
  if (!counts_in_sums(event.kind)) return;
  const LiveRecord* const record = ledger.record(device_, event.record);
  if (record == nullptr) return;
  add_to(all_, event, *record);
  if (CompressionSums* const place = of(record->origin)) add_to(*place, event, *record);
  if (event.kind == PLEAT_TRACE_HOLD) add_trail(held_, record->decided, event, record->origin);
}

std::vector<CompressionLine> Compression::lines() const {
  std::vector<CompressionLine> lines;
  lines.reserve(by_place_.size());
  by_place_.for_each([&](std::uint64_t id, const CompressionSums& sums) {
    lines.push_back(
        {static_cast<std::uint32_t>((id - 1) >> 32), static_cast<std::uint32_t>(id - 1), sums});
  });
  std::sort(lines.begin(), lines.end(), [](const CompressionLine& a, const CompressionLine& b) {
    return std::tie(b.sums.saved_bytes, a.op, a.frame) <
           std::tie(a.sums.saved_bytes, b.op, b.frame);
  });
  return lines;
}

std::vector<TrailLine> Compression::lines_of(const ByTrail& trails) const {
  std::vector<TrailLine> lines;
  for (const auto& [key, sums] : trails) {
    const auto [trail, op, frame] = key;
    lines.push_back({std::string(definitions_.string(trail)), op, frame, sums.records, sums.bytes});
  }
  std::ranges::stable_sort(lines, std::greater(), &TrailLine::bytes);
  return lines;
}

std::vector<LeftLine> Compression::left() const {
  std::vector<LeftLine> lines;
  for (const auto& [key, count] : left_) {
    const auto [why, frame] = key;
    lines.push_back({why == 0 ? "no reason told" : std::string(definitions_.string(why)), frame,
                     count.records, count.bytes});
  }
  std::ranges::stable_sort(lines, std::greater(), &LeftLine::bytes);
  return lines;
}

std::vector<ProvedLine> Compression::proved() const {
  std::vector<ProvedLine> lines;
  for (const auto& [by, count] : proved_)
    lines.push_back({std::string(definitions_.string(by)), count.records, count.bytes});
  std::ranges::stable_sort(lines, std::greater(), &ProvedLine::bytes);
  return lines;
}

}  // namespace pleat::trace
