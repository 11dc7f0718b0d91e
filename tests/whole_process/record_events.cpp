// Linked into a bridge of the tests' own: keeps the events that happen between two calls, for a
// script that reads them through ctypes (test_events.py).
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "torch_bridge/core/runtime.h"
#include "torch_bridge/install/export.h"

namespace pleat::bridge {
bool in_backward() noexcept;  // of torch_access/pass_state.h, which includes torch's headers
}

namespace {

using pleat::allocator::Event;
using pleat::allocator::EventKind;

struct Recorder final : pleat::allocator::EventSink {
  void on_event(const Event& event) noexcept override {
    const std::lock_guard<std::mutex> guard(mutex);
    events.push_back(event);
  }
  std::mutex mutex;
  std::vector<Event> events;
};

// As in test_events.py. Runs under the allocator's locks.
void note_phase(Event& event) noexcept { event.phase = pleat::bridge::in_backward() ? 2 : 1; }

Recorder& recorder() {
  static auto* const one = new Recorder;
  return *one;
}

// Events of records, and of freed blocks; "other" for all other events.
const char* name_of(EventKind kind) noexcept {
  switch (kind) {
    case EventKind::kTag:
      return "tag";
    case EventKind::kRelease:
      return "release";
    case EventKind::kWait:
      return "wait";
    case EventKind::kHold:
      return "hold";
    case EventKind::kEncode:
      return "encode";
    case EventKind::kRestore:
      return "restore";
    case EventKind::kRestoredFree:
      return "restored_free";
    case EventKind::kDrop:
      return "drop";
    case EventKind::kFree:
      return "free";
    default:
      return "other";
  }
}

}  // namespace

struct TestEvent {
  std::uint64_t block, record, key, phase;
  const char* kind;
};

PLEAT_EXPORT void pleat_test_record(int on) {
  pleat::bridge::Runtime::get()->heaps.for_each([on](pleat::allocator::Heap& heap) {
    heap.events().attach(on != 0 ? &recorder() : nullptr, on != 0 ? &note_phase : nullptr);
  });
}

// Copies the first `most` events in order. Returns the number of all events.
PLEAT_EXPORT std::size_t pleat_test_events(TestEvent* to, std::size_t most) {
  const std::lock_guard<std::mutex> guard(recorder().mutex);
  const std::vector<Event>& events = recorder().events;
  for (std::size_t i = 0; i < events.size() && i < most; ++i) {
    const Event& e = events[i];
    to[i] = {e.block.value, e.record.value, e.key.value, e.phase, name_of(e.kind)};
  }
  return events.size();
}
