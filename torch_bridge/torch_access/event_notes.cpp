#include "torch_bridge/torch_access/event_notes.h"

#include "torch_bridge/torch_access/pass_state.h"

namespace pleat::bridge {
namespace {

// Runs under locks of the allocator's: reads what is this thread's own, and takes none.
void note_phase(allocator::Event& event) noexcept {
  event.phase = static_cast<std::uint32_t>(in_backward() ? Phase::kBackward : Phase::kForward);
}

}  // namespace

void attach_sink(const allocator::HeapTable& heaps, allocator::EventSink* sink) noexcept {
  heaps.for_each([sink](allocator::Heap& heap) {
    heap.events().attach(sink, sink != nullptr ? &note_phase : nullptr);
  });
}

}  // namespace pleat::bridge
