// A block is the unit in which each of Pleat's memories hands out bytes.
#pragma once

#include <atomic>
#include <cstddef>

#include "allocator/ids.h"

namespace pleat::allocator {

class Record;
struct Segment;

// A range of a segment in use. It lives from allocate() to free() at a stable address.
struct Block {
  std::byte* begin = nullptr;
  std::size_t bytes = 0;      // rounded up to the granule
  std::size_t requested = 0;  // as the caller requested
  BlockId id{};
  StreamId stream{};
  Segment* segment = nullptr;  // the segment that holds the block; the pool's own
  // The record of the storage in this block, if the storage is saved. The record's own protocol
  // (residency.h) governs writes. A null pointer lets free() take the fast path.
  std::atomic<Record*> record{nullptr};
};

}  // namespace pleat::allocator
