#include "trace_report_map.h"

#include <algorithm>
#include <tuple>

#include "trace/numbers.h"

namespace pleat::cli {

using trace::ByteClass;
using trace::wrapping_add;

void ChunkPlaces::take(const PleatTraceEvent& event, const trace::Ledger& ledger) {
  if (event.device != device_) return;
  const auto bytes = static_cast<std::int64_t>(event.bytes);
  switch (event.kind) {
    case PLEAT_TRACE_CHUNK_ALLOCATE: {
      Chunk* chunk = chunks_.find(event.block);
      if (chunk == nullptr) chunk = chunks_.insert(event.block);
      if (chunk != nullptr) *chunk = {event.address, bytes};
      break;
    }
    case PLEAT_TRACE_CHUNK_FREE:
      chunks_.erase(event.block);
      break;
    case PLEAT_TRACE_PAYLOAD_ALLOCATE:
    case PLEAT_TRACE_PAYLOAD_SHRINK: {
      Payload* payload = payloads_.find(event.address);
      if (payload == nullptr) payload = payloads_.insert(event.address);
      if (payload != nullptr) {
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

MemoryMap memory_map(const trace::Ledger& ledger, int device,
                     const std::vector<trace::LiveEntry>& live, const ChunkPlaces& chunks,
                     std::size_t most) {
  MemoryMap map;
  map.segments = ledger.segments(device);
  std::vector<MapPiece> all;
  for (const trace::LiveEntry& entry : live)
    if (entry.address != 0)
      all.push_back({MapPiece::Kind::kBlock, entry.address, entry.bytes, entry.of, entry.place()});
  chunks.append(all);
  for (const MapPiece& piece : all) {
    if (piece.bytes <= 0) continue;
    auto segment =
        std::upper_bound(map.segments.begin(), map.segments.end(), piece.address,
                         [](std::uint64_t at, const auto& one) { return at < one.first; });
    const std::uint64_t end = piece.address + static_cast<std::uint64_t>(piece.bytes);
    if (segment == map.segments.begin() || (--segment)->second < end || end < piece.address) {
      if (piece.kind == MapPiece::Kind::kBlock)
        map.elsewhere_bytes = wrapping_add(map.elsewhere_bytes, piece.bytes);
      continue;
    }
    map.pieces.push_back(piece);
  }
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
  return map;
}

}  // namespace pleat::cli
