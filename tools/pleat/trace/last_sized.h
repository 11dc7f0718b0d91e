// Which block each thread allocated or shrunk last, if no payload went into a chunk since. The
// events of a trace do not say which block a large payload lies in: it is the one that its thread
// gave the payload's size just before the record was encoded.
#pragma once

#include <cstdint>

#include "per_thread.h"
#include "torch_bridge/c_abi.h"

namespace pleat::trace {

class LastSized {
 public:
  void note(const PleatTraceEvent& event) { of(event.thread) = {event.block, event.device}; }
  void forget(const PleatTraceEvent& event) { of(event.thread) = {}; }
  // 0: none on the event's device.
  [[nodiscard]] std::uint64_t block(const PleatTraceEvent& event) {
    const Sized& sized = of(event.thread);
    return sized.device == event.device ? sized.block : 0;
  }

 private:
  struct Sized {
    std::uint64_t block = 0;
    int device = -1;
  };

  Sized& of(std::uint32_t thread) { return threads_.of(thread); }

  PerThread<Sized> threads_;
};

}  // namespace pleat::trace
