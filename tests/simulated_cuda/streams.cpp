#include "tests/simulated_cuda/streams.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <thread>

#include "tests/simulated_cuda/capture.h"
#include "tests/simulated_cuda/context.h"
#include "tests/simulated_cuda/memory.h"

namespace pleat::simulated {
namespace {

// Streams and events are never deleted, so that a use after their end is found.
struct Registry {
  std::vector<CUstream> streams;
  std::set<CUstream> stream_set;
  std::set<CUevent> events;
  CUstream legacy[kMostDevices]{};
};
Registry& registry() {
  static auto* const all = new Registry;
  return *all;
}

constexpr unsigned kNonBlocking = 1;

CUstream make_stream(int device, unsigned flags, int priority) {
  auto* const stream = new CUstream_st;
  stream->number = static_cast<std::uint32_t>(registry().streams.size());
  stream->device = device;
  stream->flags = flags;
  stream->priority = priority;
  registry().streams.push_back(stream);
  registry().stream_set.insert(stream);
  return stream;
}

CUstream legacy_stream(int device) {
  CUstream& stream = registry().legacy[device];
  if (stream == nullptr) stream = make_stream(device, 0, 0);
  return stream;
}

// The legacy stream and streams that are not "non-blocking" wait for each other.
void join_implicitly(CUstream stream) {
  if ((stream->flags & kNonBlocking) != 0) return;
  const CUstream legacy = legacy_stream(stream->device);
  const auto join = [&](CUstream other) {
    stream->clock.join(other->clock);
    stream->due = std::max(stream->due, other->due);
  };
  if (stream != legacy) return join(legacy);
  for (const CUstream other : registry().streams)
    if (other != stream && other->device == stream->device && (other->flags & kNonBlocking) == 0)
      join(other);
}

void host_waits(const VectorClock& clock, std::uint64_t due) {
  Simulation& all = simulation();
  all.now = std::max(all.now, due);
  all.host.join(clock);
  land_host_writes(all.now);
}

int refused(const char* what) {
  simulation().ledger.object(what);
  return kInvalidHandle;
}

// Advances time while host functions wait and no thread calls.
void watch_host_functions() {
  static const bool started = [] {
    std::thread([] {
      for (;;) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        const std::lock_guard guard(lock());
        bool waiting = false;
        for (const CUstream stream : registry().streams) {
          if (stream->host_functions.empty()) continue;
          waiting = true;
          if (stream->due <= simulation().now) run_host_functions(stream);
        }
        if (waiting) land_host_writes(++simulation().now);
      }
    }).detach();
    return true;
  }();
  (void)started;
}

}  // namespace

int current_device() { return context_device(); }

CUstream stream_of(CUstream handle) {
  // Null, CU_STREAM_LEGACY and CU_STREAM_PER_THREAD.
  if (reinterpret_cast<std::uintptr_t>(handle) <= 2) return legacy_stream(current_device());
  return handle;
}

bool is_stream(CUstream handle) {
  return reinterpret_cast<std::uintptr_t>(handle) <= 2 ||
         (registry().stream_set.contains(handle) && !handle->destroyed);
}
std::size_t live_events() {
  return static_cast<std::size_t>(
      std::count_if(registry().events.begin(), registry().events.end(),
                    [](const CUevent event) { return !event->destroyed; }));
}
bool is_event(CUevent event) { return registry().events.contains(event) && !event->destroyed; }

int create_stream(unsigned flags, int priority, CUstream* stream) {
  start();
  *stream = make_stream(current_device(), flags, priority);
  return kSuccess;
}

int destroy_stream(CUstream handle) {
  if (!is_stream(handle) || reinterpret_cast<std::uintptr_t>(handle) <= 2)
    return refused("a stream is destroyed that is none");
  handle->destroyed = true;  // queued work continues
  return kSuccess;
}

void leave_capture(const std::shared_ptr<Capture>& capture) {
  for (const CUstream stream : registry().streams)
    if (stream->capture == capture) stream->capture.reset();
}

std::uint64_t issue(CUstream stream, Operation& operation) {
  Simulation& all = simulation();
  run_host_functions(stream);
  if (operation.prepare) operation.prepare(&operation.accesses);
  join_implicitly(stream);
  stream->clock.join(all.host);
  const Epoch epoch = stream->clock.next(stream->number);
  all.ledger.note(epoch, stream->clock, operation.what, operation.accesses, operation.in_a_graph);
  stream->due = std::max(stream->due, all.now + all.draw_lag());
  return stream->due;
}

int queue(CUstream handle, Operation operation) {
  start();
  if (!is_stream(handle)) return refused("work is queued on a stream that was destroyed");
  const CUstream stream = stream_of(handle);
  if (stream->capture != nullptr) return add_to_graph(*stream->capture, std::move(operation));
  for (const Access& access : operation.accesses)
    if (!reachable(access.address, access.bytes)) {
      simulation().ledger.object(operation.what + " uses an address where no memory is mapped");
      return simulation().sticky = kIllegalAddress;
    }
  const std::uint64_t due = issue(stream, operation);
  if (operation.run) operation.run(due);
  return kSuccess;
}

void run_host_functions(CUstream stream) {
  while (!stream->host_functions.empty()) {
    const auto function = std::move(stream->host_functions.front());
    stream->host_functions.erase(stream->host_functions.begin());
    const InHostFunction inside;
    lock().unlock();  // it can wait for a thread that calls the driver
    function();
    lock().lock();
  }
}

int queue_host_function(CUstream handle, std::function<void()> function) {
  if (is_stream(handle) && stream_of(handle)->capture != nullptr)
    return queue(handle, {"a host function", {}, {}, [=](std::uint64_t) {
                            const InHostFunction inside;
                            function();
                          }});
  if (const int error = queue(handle, {"a host function", {}, {}, {}}); error != kSuccess)
    return error;
  stream_of(handle)->host_functions.push_back(std::move(function));
  watch_host_functions();
  return kSuccess;
}

int create_event(unsigned flags, CUevent* event) {
  *event = new CUevent_st;
  (*event)->flags = flags;
  registry().events.insert(*event);
  return kSuccess;
}

int destroy_event(CUevent event) {
  if (!is_event(event)) return refused("an event is destroyed that is none");
  event->destroyed = true;
  event->clock.clear();
  event->capture.reset();
  return kSuccess;
}

int record(CUevent event, CUstream handle) {
  start();
  if (!is_event(event)) return refused("an event is recorded that was destroyed");
  if (!is_stream(handle)) return refused("an event is recorded on a stream that was destroyed");
  const CUstream stream = stream_of(handle);
  event->recorded = true;
  event->capture = stream->capture;
  if (stream->capture != nullptr) return kSuccess;
  join_implicitly(stream);
  event->clock = stream->clock;
  event->clock.join(simulation().host);
  event->due = std::max(stream->due, simulation().now + simulation().draw_lag());
  return kSuccess;
}

int wait(CUstream handle, CUevent event) {
  if (!is_event(event)) return refused("a stream waits for an event that was destroyed");
  if (!is_stream(handle)) return refused("a stream waits that was destroyed");
  const CUstream stream = stream_of(handle);
  if (event->capture != nullptr) {
    if (stream->capture != nullptr && stream->capture != event->capture) return kCaptureUnsupported;
    stream->capture = event->capture;  // from now on the stream takes part
    return kSuccess;
  }
  if (!event->recorded) return kSuccess;
  // An event from outside a graph is not part of it.
  if (stream->capture != nullptr) {
    (void)invalidate(*stream->capture);
    return kCaptureIsolation;
  }
  stream->clock.join(event->clock);
  stream->due = std::max(stream->due, event->due);
  return kSuccess;
}

int query(CUevent event) {
  if (!is_event(event)) return refused("an event is queried that was destroyed");
  if (event->capture != nullptr) return kCapturedEvent;
  if (const int error = forbidden_while_capturing(); error != kSuccess) return error;
  if (event->recorded && event->due > simulation().now) return kNotReady;
  simulation().host.join(event->clock);
  return kSuccess;
}

int query(CUstream handle) {
  if (!is_stream(handle)) return refused("a stream is queried that was destroyed");
  const CUstream stream = stream_of(handle);
  if (stream->capture != nullptr) return invalidate(*stream->capture);
  if (stream->due > simulation().now) return kNotReady;
  simulation().host.join(stream->clock);
  return kSuccess;
}

int elapsed(float* milliseconds, CUevent from, CUevent to) {
  if (!is_event(from) || !is_event(to) || !from->recorded || !to->recorded) return kInvalidHandle;
  if (from->due > simulation().now || to->due > simulation().now) return kNotReady;
  *milliseconds =
      static_cast<float>(static_cast<double>(to->due) - static_cast<double>(from->due)) * 1e-3f;
  return kSuccess;
}

int synchronize(CUevent event) {
  if (!is_event(event)) return refused("the host waits for an event that was destroyed");
  if (event->capture != nullptr) return kCapturedEvent;
  if (event->recorded) host_waits(event->clock, event->due);
  return kSuccess;
}

int synchronize(CUstream handle) {
  start();
  if (!is_stream(handle)) return refused("the host waits for a stream that was destroyed");
  const CUstream stream = stream_of(handle);
  if (stream->capture != nullptr) return invalidate(*stream->capture);
  join_implicitly(stream);
  run_host_functions(stream);
  host_waits(stream->clock, stream->due);
  return kSuccess;
}

void synchronize_device(int device) {
  for (std::size_t i = 0; i < registry().streams.size(); ++i) {
    const CUstream stream = registry().streams[i];
    if (stream->device != device) continue;
    run_host_functions(stream);
    host_waits(stream->clock, stream->due);
  }
}

}  // namespace pleat::simulated
