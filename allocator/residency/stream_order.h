// The order of work that a device does later. What residency does to a block it queues on a stream;
// where another stream has to come after that, it says so here. No function but synchronize() waits
// on the host.
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

  // After all that `stream` has been given so far. To be released; complete if there is no memory
  // for it, and then the caller has waited.
  [[nodiscard]] virtual EventHandle record(StreamId stream) noexcept = 0;
  // What `stream` is given from now on begins after the event.
  virtual void wait(StreamId stream, EventHandle event) noexcept = 0;
  [[nodiscard]] virtual bool complete(EventHandle event) noexcept = 0;
  // Blocks the calling thread.
  virtual void synchronize(EventHandle event) noexcept = 0;
  virtual void release(EventHandle event) noexcept = 0;
  // Others made the stream and may destroy it: nothing is said to it but while it is somebody's
  // current one.
  [[nodiscard]] virtual bool is_foreign(StreamId /*stream*/) noexcept { return false; }
  // A stream of ours that comes after all that `stream` has been given so far, if that is foreign;
  // else `stream` itself.
  [[nodiscard]] virtual StreamId stand_in(StreamId stream) noexcept { return stream; }
  // Nothing may be queued there: a graph is being recorded.
  [[nodiscard]] virtual bool is_captured(StreamId stream) noexcept = 0;

  // What `later` is given from now on begins after all that `earlier` has been given. Nothing is
  // done where one of them is captured: a graph cannot wait for work outside of it, and what was
  // given before its capture is over, as whoever captures waits for the device first.
  void follow(StreamId later, StreamId earlier) noexcept {
    if (later == earlier) [[likely]]
      return;
    if (is_captured(later) || is_captured(earlier)) return;
    const EventHandle event = record(earlier);
    wait(later, event);
    release(event);
  }
};

// Of a device whose work is done when the call returns: the host.
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
