// A device at a snapshot's moment: segments and their contents.
#include <algorithm>

#include "interpose/trace/wrapping.h"
#include "snapshot.h"

namespace pleat::cli {

using trace::ByteClass;
using trace::Ledger;
using trace::LiveEntry;
using State = SnapshotTile::State;

namespace {

// Blocks outside of all segments belong to one if they are no further apart.
constexpr std::uint64_t kNear = 2u << 20;

std::uint64_t end_of(const SnapshotTile& tile) {
  return tile.address + static_cast<std::uint64_t>(tile.bytes);
}

bool by_address(const SnapshotTile& a, const SnapshotTile& b) {
  return std::tie(a.address, a.bytes) < std::tie(b.address, b.bytes);
}

constexpr auto kMost = static_cast<std::int64_t>(kMostPieceBytes);

// By address. Overlapping tiles cannot be in one segment: only a damaged trace has them.
void keep_apart(std::vector<SnapshotTile>& tiles) {
  std::sort(tiles.begin(), tiles.end(), by_address);
  std::size_t kept = 0;
  for (const SnapshotTile& tile : tiles) {
    if (end_of(tile) <= tile.address || tile.bytes > kMost) continue;
    if (kept == 0 || end_of(tiles[kept - 1]) <= tile.address) tiles[kept++] = tile;
  }
  tiles.resize(kept);
}

}  // namespace

bool SnapshotDevice::is_filtered() const {
  const trace::Filter& filter = to_.filter;
  return filter.least_bytes > 0 || !filter.op.empty() || filter.of_class || filter.step;
}

std::vector<SnapshotTile> SnapshotDevice::used(const Ledger& ledger) const {
  std::vector<SnapshotTile> tiles;
  const auto add = [&](const Place& place, ByteClass of) {
    if (place.listed && place.active > 0 && to_.is_of_class(of))
      tiles.push_back({place.address, place.active, place.requested, place.stream, of,
                       State::kAllocated, place.origin});
  };
  blocks_.for_each([&](std::uint64_t id, const Place& place) {
    const std::optional<LiveEntry> block = ledger.block(lives_.device, id);
    if (block) add(place, block->of);
  });
  payloads_.for_each(
      [&](std::uint64_t /*address*/, const Place& place) { add(place, ByteClass::kPayloads); });
  keep_apart(tiles);
  if (is_filtered()) return tiles;
  add_rest_of_chunks(tiles);
  keep_apart(tiles);
  return tiles;
}

// A chunk is active as a whole. Where it has no payloads, its bytes were not requested.
void SnapshotDevice::add_rest_of_chunks(std::vector<SnapshotTile>& tiles) const {
  std::vector<SnapshotTile> rest;
  chunks_.for_each([&](std::uint64_t /*id*/, const Chunk& chunk) {
    std::uint64_t at = chunk.address;
    const std::uint64_t end =
        at + static_cast<std::uint64_t>(std::max<std::int64_t>(chunk.bytes, 0));
    const auto pass = [&](std::uint64_t to) {
      if (to <= at) return;
      SnapshotTile tile;
      tile.address = at;
      tile.bytes = static_cast<std::int64_t>(to - at);
      tile.of = ByteClass::kPayloads;
      tile.state = State::kPendingFree;
      rest.push_back(tile);
    };
    SnapshotTile first;
    first.address = at;
    auto tile = std::lower_bound(tiles.begin(), tiles.end(), first, by_address);
    for (; tile != tiles.end() && tile->address < end; ++tile) {
      pass(tile->address);
      at = std::max(at, end_of(*tile));
    }
    pass(end);
  });
  tiles.insert(tiles.end(), rest.begin(), rest.end());
}

// Those that the trace saw being reserved. Around what lies outside of them, others are made up:
// the viewer needs one for each address.
std::vector<SnapshotSegment> SnapshotDevice::places_of_segments(
    const std::vector<SnapshotTile>& tiles) const {
  using Range = std::pair<std::uint64_t, std::uint64_t>;
  const std::vector<Range> known(reserved_.begin(), reserved_.end());
  std::vector<Range> outside;
  const auto note = [&](std::uint64_t begin, std::int64_t bytes) {
    const std::uint64_t end = begin + static_cast<std::uint64_t>(std::max<std::int64_t>(bytes, 0));
    const auto it = std::upper_bound(known.begin(), known.end(), Range{begin, ~std::uint64_t{0}});
    const bool inside = it != known.begin() && it[-1].second > begin;
    if (!inside && end > begin && bytes <= kMost) outside.emplace_back(begin, end);
  };
  for (const SnapshotTile& tile : tiles) note(tile.address, tile.bytes);
  history_.for_each([&](const SnapshotEntry& entry) {
    if (entry.outside) note(entry.address, entry.bytes);
  });
  std::sort(outside.begin(), outside.end());
  std::vector<SnapshotSegment> segments;
  std::vector<Range> made_up;
  auto behind = known.begin();  // the known segment behind the range
  for (const auto& [begin, end] : outside) {
    while (behind != known.end() && behind->first <= begin) ++behind;
    const std::uint64_t limit = behind == known.end() ? ~std::uint64_t{0} : behind->first;
    const bool joins = !made_up.empty() && begin <= made_up.back().second + kNear &&
                       (behind == known.begin() || behind[-1].first < made_up.back().first);
    if (joins) {
      made_up.back().second = std::max(made_up.back().second, std::min(end, limit));
    } else {
      made_up.emplace_back(begin, std::min(end, limit));
    }
  }
  for (const std::vector<Range>* const ranges : {&known, &std::as_const(made_up)})
    for (const auto& [begin, end] : *ranges)
      segments.push_back({begin, static_cast<std::int64_t>(end - begin), {}});
  std::sort(
      segments.begin(), segments.end(),
      [](const SnapshotSegment& a, const SnapshotSegment& b) { return a.address < b.address; });
  return segments;
}

void SnapshotDevice::take_moment(const PleatTraceEvent& event, const Ledger& ledger) {
  taken_ = true;
  time_ns_ = event.time_ns;
  const std::vector<SnapshotTile> tiles = used(ledger);
  segments_ = places_of_segments(tiles);
  auto next = tiles.begin();
  for (SnapshotSegment& segment : segments_) {
    std::uint64_t at = segment.address;
    const std::uint64_t end = at + static_cast<std::uint64_t>(segment.bytes);
    const auto pass = [&](std::uint64_t to) {
      if (to <= at) return;
      SnapshotTile tile;
      tile.address = at;
      tile.bytes = static_cast<std::int64_t>(to - at);
      tile.state = State::kFree;
      segment.tiles.push_back(tile);
    };
    while (next != tiles.end() && next->address < at) ++next;
    for (; next != tiles.end() && next->address < end; ++next) {
      pass(next->address);
      SnapshotTile tile = *next;
      tile.bytes = std::min(tile.bytes, static_cast<std::int64_t>(end - tile.address));
      segment.tiles.push_back(tile);
      at = tile.address + static_cast<std::uint64_t>(tile.bytes);
    }
    pass(end);
  }
  if (!is_filtered()) add_unplaced(ledger);
}

// A block from before the trace has a size and no address: a segment of its own, behind
// all.
void SnapshotDevice::add_unplaced(const Ledger& ledger) {
  const trace::Totals& totals = ledger.totals(lives_.device);
  std::int64_t requested = totals.live();
  std::int64_t active = totals.active();
  std::uint64_t behind = 0;
  for (const SnapshotSegment& segment : segments_) {
    for (const SnapshotTile& tile : segment.tiles) {
      requested = trace::wrapping_subtract(requested, tile.requested);
      if (tile.state != State::kFree) active = trace::wrapping_subtract(active, tile.bytes);
    }
    behind = segment.address + static_cast<std::uint64_t>(segment.bytes);
  }
  SnapshotTile tile;
  tile.requested = std::max<std::int64_t>(requested, 0);
  tile.bytes = std::max(active, tile.requested);
  if (tile.bytes <= 0) return;
  tile.address = (behind + kNear) & ~(kNear - 1);
  segments_.push_back({tile.address, tile.bytes, {tile}});
}

}  // namespace pleat::cli
