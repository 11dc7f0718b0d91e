// StreamOrder orders work that a device does later, across its streams. Residency queues its work
// for a block on a stream; if another stream must come after that work, it calls this interface. No
// function but synchronize() waits on the host.
#pragma once

#include <cstdint>

#include "allocator/ids.h"

namespace pleat::allocator {

// A point in a stream's order. 0 is "already complete".
struct EventHandle {
  std::uint64_t value = 0;
};

class StreamOrder {
 public:
  virtual ~StreamOrder() = default;

  // Records an event after all work queued on `stream` so far. The caller must release it. If
  // memory is short the call waits for the stream and returns a complete event.
  [[nodiscard]] virtual EventHandle record(StreamId stream) noexcept = 0;
  // Makes later work on `stream` begin after the event.
  virtual void wait(StreamId stream, EventHandle event) noexcept = 0;
  [[nodiscard]] virtual bool complete(EventHandle event) noexcept = 0;
  // Blocks the calling thread.
  virtual void synchronize(EventHandle event) noexcept = 0;
  virtual void release(EventHandle event) noexcept = 0;
  // True if other code owns the stream. Pleat uses it only while it is a thread's current stream.
  [[nodiscard]] virtual bool is_foreign(StreamId /*stream*/) noexcept { return false; }
  // If `stream` is foreign, a stream of Pleat's own that comes after its queued work; else
  // `stream`.
  [[nodiscard]] virtual StreamId stand_in(StreamId stream) noexcept { return stream; }
  // True while a graph is captured on the stream: Pleat must queue no work there.
  [[nodiscard]] virtual bool is_captured(StreamId stream) noexcept = 0;

  // Makes later work on `later` begin after all work queued on `earlier`. No effect if one of them
  // is captured: a graph cannot wait for work outside of it. Work queued before the capture is
  // complete, because a capture begins by waiting for the device.
  void follow(StreamId later, StreamId earlier) noexcept {
    if (later == earlier) [[likely]]
      return;
    if (is_captured(later) || is_captured(earlier)) return;
    const EventHandle event = record(earlier);
    wait(later, event);
    release(event);
  }
};

// The order of a device whose work is complete when the call returns: the host.
class SynchronousOrder final : public StreamOrder {
 public:
  [[nodiscard]] EventHandle record(StreamId /*stream*/) noexcept override { return {}; }
  void wait(StreamId /*stream*/, EventHandle /*event*/) noexcept override {}
  [[nodiscard]] bool complete(EventHandle /*event*/) noexcept override { return true; }
  void synchronize(EventHandle /*event*/) noexcept override {}
  void release(EventHandle /*event*/) noexcept override {}
  [[nodiscard]] bool is_captured(StreamId /*stream*/) noexcept override { return false; }
};

}  // namespace pleat::allocator
