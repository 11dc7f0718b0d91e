// A block: the unit in which each of our memories hands memory out.
#pragma once

#include <atomic>
#include <cstddef>

#include "allocator/ids.h"

namespace pleat::allocator {

class Record;
struct Segment;

// A range of a segment in use. Lives from allocate() to free(); the address of a Block is stable.
struct Block {
  std::byte* begin = nullptr;
  std::size_t bytes = 0;      // rounded up to the granule
  std::size_t requested = 0;  // what the caller asked for
  BlockId id{};
  StreamId stream{};
  Segment* segment = nullptr;  // the range it is cut from; the pool's own
  // The record of the storage that lies in this block, if it is a saved block. Written under the
  // record's own protocol (residency.h); a null read lets free() take the fast path.
  std::atomic<Record*> record{nullptr};
};

}  // namespace pleat::allocator
