// A block: the unit in which every memory of ours is handed out.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "allocator/ids.h"

namespace pleat::allocator {

class Record;

// A range of a segment in use. Lives from allocate() to free(); the address of a Block is stable.
struct Block {
  std::byte* begin = nullptr;
  std::size_t bytes = 0;      // rounded up to the granule
  std::size_t requested = 0;  // what the caller asked for
  BlockId id{};
  StreamId stream{};
  std::uint32_t segment = 0;  // of its memory, which alone can read it
  // The record of the storage that lies in this block, if it is a saved block. Written under the
  // record's own protocol (residency.h); a null read lets free() take the fast path.
  std::atomic<Record*> record{nullptr};
};

}  // namespace pleat::allocator
