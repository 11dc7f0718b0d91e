#include "map.h"

#include <algorithm>
#include <tuple>

#include "interpose/trace/wrapping.h"

namespace pleat::cli {

using trace::ByteClass;
using trace::wrapping_add;

namespace {

// Blocks this far apart are of one segment that the trace did not see.
constexpr std::uint64_t kMostGap = 64u << 20;

bool in_one(const std::vector<MapSegment>& segments, std::uint64_t begin, std::uint64_t end) {
  auto segment =
      std::upper_bound(segments.begin(), segments.end(), begin,
                       [](std::uint64_t at, const MapSegment& one) { return at < one.begin; });
  return segment != segments.begin() && (--segment)->end >= end;
}

bool begins_between(const std::vector<MapSegment>& segments, std::uint64_t from,
                    std::uint64_t until) {
  return std::any_of(segments.begin(), segments.end(),
                     [&](const MapSegment& one) { return one.begin >= from && one.begin < until; });
}

// Adds segments for pieces that are in none. `pieces`: by address.
void add_unseen(MemoryMap& map) {
  std::vector<MapSegment> unseen;
  for (const MapPiece& piece : map.pieces) {
    const std::uint64_t end = piece.address + static_cast<std::uint64_t>(piece.bytes);
    if (in_one(map.segments, piece.address, end)) continue;
    if (!unseen.empty() && piece.address <= unseen.back().end + kMostGap &&
        !begins_between(map.segments, unseen.back().end, piece.address)) {
      unseen.back().end = std::max(unseen.back().end, end);
    } else {
      unseen.push_back({piece.address, end, true});
    }
  }
  map.segments.insert(map.segments.end(), unseen.begin(), unseen.end());
  std::sort(map.segments.begin(), map.segments.end(),
            [](const MapSegment& a, const MapSegment& b) { return a.begin < b.begin; });
}

}  // namespace

MemoryMap memory_map(const trace::Ledger& ledger, int device,
                     const std::vector<trace::LiveEntry>& live, std::size_t most) {
  MemoryMap map;
  for (const auto& [begin, end] : ledger.segments(device)) map.segments.push_back({begin, end});
  for (const trace::LiveEntry& entry : live)
    if (entry.address != 0)
      map.pieces.push_back(
          {MapPiece::Kind::kBlock, entry.address, entry.bytes, entry.of, entry.place()});
  for (const trace::LiveEntry& chunk : ledger.chunks(device))
    map.pieces.push_back({MapPiece::Kind::kChunk, chunk.address, chunk.bytes, {}, {}});
  for (const trace::LiveEntry& one : ledger.chunked_payloads(device))
    map.pieces.push_back({MapPiece::Kind::kPayload, one.address, one.bytes, one.of, one.place()});
  std::erase_if(map.pieces, [](const MapPiece& piece) {
    const std::uint64_t end = piece.address + static_cast<std::uint64_t>(piece.bytes);
    return piece.bytes <= 0 || end < piece.address;
  });
  if (map.pieces.size() > most) {
    const auto cut = map.pieces.begin() + static_cast<std::ptrdiff_t>(most);
    std::nth_element(map.pieces.begin(), cut, map.pieces.end(),
                     [](const MapPiece& a, const MapPiece& b) { return a.bytes > b.bytes; });
    map.left_out = map.pieces.size() - most;
    for (auto it = cut; it != map.pieces.end(); ++it)
      map.left_out_bytes = wrapping_add(map.left_out_bytes, it->bytes);
    map.pieces.erase(cut, map.pieces.end());
  }
  std::sort(map.pieces.begin(), map.pieces.end(), [](const MapPiece& a, const MapPiece& b) {
    return std::tie(a.address, b.bytes, a.kind) < std::tie(b.address, a.bytes, b.kind);
  });
  add_unseen(map);
  return map;
}

}  // namespace pleat::cli
