// Which block each thread allocated or shrunk last, if no payload went into a chunk since. The
// events of a trace do not say which block a large payload lies in: it is the one that its thread
// gave the payload's size just before the record was encoded.
#pragma once

#include <cstdint>
#include <unordered_map>

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
  static constexpr std::size_t kMostThreads = 1u << 16;

  // Most events are of the thread of the one before.
  Sized& of(std::uint32_t thread) {
    if (last_ != nullptr && thread == last_thread_) return *last_;
    if (threads_.size() >= kMostThreads && !threads_.contains(thread)) return nobody_ = {};
    last_thread_ = thread;
    last_ = &threads_[thread];
    return *last_;
  }

  std::unordered_map<std::uint32_t, Sized> threads_;
  std::uint32_t last_thread_ = 0;
  Sized* last_ = nullptr;
  Sized nobody_;
};

}  // namespace pleat::trace
