// Which bytes of a device's segments are taken at a moment, and by what.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tools/pleat/trace/ledger.h"

namespace pleat::cli {

struct MapPiece {
  enum class Kind : std::uint8_t { kBlock, kChunk, kPayload } kind = Kind::kBlock;
  std::uint64_t address = 0;
  std::int64_t bytes = 0;
  trace::ByteClass of = trace::ByteClass::kUnknown;  // of a chunk: nothing
  trace::Origin place;
};

struct MapSegment {
  std::uint64_t begin = 0, end = 0;
  // Reserved before the trace began: it is known by its blocks only, from the first to the last.
  bool by_blocks = false;
};

struct MemoryMap {
  std::vector<MapSegment> segments;  // by address
  std::vector<MapPiece> pieces;  // by address, a chunk before its payloads; within a segment each
  std::uint64_t left_out = 0;    // pieces too many
  std::int64_t left_out_bytes = 0;
};

// `most`: pieces, the largest are kept.
[[nodiscard]] MemoryMap memory_map(const trace::Ledger& ledger, int device,
                                   const std::vector<trace::LiveEntry>& live, std::size_t most);

}  // namespace pleat::cli
