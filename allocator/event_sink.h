// The stream of events a recorder listens to. Nothing here records anything.
#pragma once

#include <cstddef>
#include <cstdint>

#include "allocator/ids.h"

namespace pleat::allocator {

enum class EventKind : std::uint8_t {
  kSegmentReserve,
  kSegmentRelease,
  kPagesRelease,
  kAllocate,
  kFree,
  kTag,
  kRelease,  // a saved block's last forward use is over
  kEncode,   // `bytes` is the payload
  kRestore,
  kDrop,  // a payload or record is gone
  kOutOfMemory,
};

// Fixed layout; no pointers to strings: names are interned by whoever sets op and phase.
struct Event {
  std::uint64_t time_ns = 0;  // CLOCK_MONOTONIC; 0 until a sink asks for times
  std::uint64_t thread = 0;
  DeviceIndex device{};
  StreamId stream{};
  EventKind kind = EventKind::kAllocate;
  BlockId block{};
  std::uint64_t address = 0;
  std::size_t bytes = 0;
  TensorKey key{};
  std::uint32_t op = 0;
  std::uint32_t phase = 0;
  std::uint32_t stack = 0;
};

class EventSink {
 public:
  virtual ~EventSink() = default;
  // Called without our locks held where that is possible, possibly with the pool's lock held for
  // segment and block events: must not allocate from the pool, must not throw, must be quick.
  virtual void on_event(const Event& event) noexcept = 0;
};

}  // namespace pleat::allocator
