// Where a recorder of events is put in: the allocator's events, with what the bridge alone knows of
// them. Nothing here records anything. Torch-free to include.
#pragma once

#include <cstdint>

#include "allocator/event_sink.h"
#include "allocator/heap.h"

namespace pleat::bridge {

// What the thread was doing in which an event happened: allocator::Event::phase.
enum class Phase : std::uint32_t {
  kUnknown,   // nobody has said
  kForward,   // it was in no backward pass: forward, and what lies between two steps
  kBackward,  // it was in one, whatever ran there
};

// Puts `sink` in for the events of every heap in `heaps`, and has their phase filled in; nullptr:
// takes out what was there. The sink hears what begins from now on, in the thread in which it
// happens (EventSink::on_event()). Returns once nobody calls the sink before. Not from within
// on_event(); one thread at a time.
void attach_sink(const allocator::HeapTable& heaps, allocator::EventSink* sink) noexcept;

}  // namespace pleat::bridge
