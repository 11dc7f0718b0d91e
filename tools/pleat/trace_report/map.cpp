#include "map.h"

#include <algorithm>
#include <tuple>

#include "interpose/wrapping.h"

namespace pleat::cli {

using trace::ByteClass;
using trace::wrapping_add;

void ChunkPlaces::take(const PleatTraceEvent& event, const trace::Ledger& ledger) {
  if (event.device != device_) return;
  const auto bytes = static_cast<std::int64_t>(event.bytes);
  switch (event.kind) {
    case PLEAT_TRACE_CHUNK_ALLOCATE:
      if (Chunk* const chunk = chunks_.find_or_insert(event.block)) *chunk = {event.address, bytes};
      break;
    case PLEAT_TRACE_CHUNK_FREE:
      chunks_.erase(event.block);
      break;
    case PLEAT_TRACE_PAYLOAD_ALLOCATE:
    case PLEAT_TRACE_PAYLOAD_SHRINK: {
      if (Payload* const payload = payloads_.find_or_insert(event.address)) {
        payload->bytes = bytes;
        if (payload->place.op == 0) payload->place = {event.op, event.stack};
      }
      PleatTraceEvent by_address = event;
      by_address.block = event.address;
      last_.note(by_address);
      break;
    }
    case PLEAT_TRACE_PAYLOAD_FREE:
      payloads_.erase(event.address);
      break;
    case PLEAT_TRACE_ENCODE: {
      const trace::LiveRecord* const record = ledger.record(device_, event.record);
      Payload* const payload = payloads_.find(last_.block(event));
      if (record != nullptr && payload != nullptr && payload->bytes == bytes)
        payload->place = record->origin;
      break;
    }
    default:
      break;
  }
}

void ChunkPlaces::append(std::vector<MapPiece>& pieces) const {
  chunks_.for_each([&](std::uint64_t /*id*/, const Chunk& chunk) {
    pieces.push_back({MapPiece::Kind::kChunk, chunk.address, chunk.bytes, {}, {}});
  });
  payloads_.for_each([&](std::uint64_t address, const Payload& payload) {
    pieces.push_back(
        {MapPiece::Kind::kPayload, address, payload.bytes, ByteClass::kPayloads, payload.place});
  });
}

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
                     const std::vector<trace::LiveEntry>& live, const ChunkPlaces& chunks,
                     std::size_t most) {
  MemoryMap map;
  for (const auto& [begin, end] : ledger.segments(device)) map.segments.push_back({begin, end});
  for (const trace::LiveEntry& entry : live)
    if (entry.address != 0)
      map.pieces.push_back(
          {MapPiece::Kind::kBlock, entry.address, entry.bytes, entry.of, entry.place()});
  chunks.append(map.pieces);
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
