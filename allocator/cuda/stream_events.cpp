#include "allocator/cuda/stream_events.h"

#include <algorithm>

namespace pleat::allocator::cuda {
namespace {

constexpr unsigned kWithoutTiming = 2;          // CU_EVENT_DISABLE_TIMING
constexpr unsigned kBesideTheLegacyStream = 1;  // CU_STREAM_NON_BLOCKING

void* handle_of(StreamId stream) noexcept { return reinterpret_cast<void*>(stream.value); }
void* handle_of(EventHandle event) noexcept { return reinterpret_cast<void*>(event.value); }

}  // namespace

// Returns nullptr if the driver provides no event. A released event is reused at once: a stream
// that waits for it captured its position when the wait was queued.
void* StreamEvents::take() noexcept {
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    if (!idle_.empty()) {
      void* const event = idle_.back();
      idle_.pop_back();
      return event;
    }
  }
  void* event = nullptr;
  if (life_.note(driver_.event_create(&event, kWithoutTiming)) != kSuccess) return nullptr;
  const std::lock_guard<std::mutex> guard(mutex_);
  ++made_;
  return event;
}

EventHandle StreamEvents::record(StreamId stream) noexcept {
  const DeviceContext context(driver_, life_, device_);
  if (!context) return {};
  if (void* const event = take()) {
    const EventHandle handle{reinterpret_cast<std::uint64_t>(event)};
    if (life_.note(driver_.event_record(event, handle_of(stream))) == kSuccess) return handle;
    release(handle);
  }
  if (life_.may_call()) life_.note(driver_.stream_synchronize(handle_of(stream)));
  return {};
}

void StreamEvents::wait(StreamId stream, EventHandle event) noexcept {
  if (event.value == 0 || !life_.may_call()) return;
  const DeviceContext context(driver_, life_, device_);
  if (!context) return;
  if (life_.note(driver_.stream_wait(handle_of(stream), handle_of(event), 0)) != kSuccess &&
      life_.may_call()) {
    life_.note(driver_.event_synchronize(handle_of(event)));
  }
}

bool StreamEvents::complete(EventHandle event) noexcept {
  if (event.value == 0 || !life_.may_call()) return true;
  const DeviceContext context(driver_, life_, device_);
  // After a driver error the state of the work is unknown. Report the event as complete; the job
  // meets the error itself.
  return !context || life_.note(driver_.event_query(handle_of(event))) != kNotReady;
}

void StreamEvents::synchronize(EventHandle event) noexcept {
  if (event.value == 0 || !life_.may_call()) return;
  const DeviceContext context(driver_, life_, device_);
  if (context) life_.note(driver_.event_synchronize(handle_of(event)));
}

void StreamEvents::release(EventHandle event) noexcept {
  if (event.value == 0) return;
  try {
    const std::lock_guard<std::mutex> guard(mutex_);
    idle_.push_back(handle_of(event));
    return;
  } catch (...) {  // memory is too short to keep the event
  }
  const DeviceContext context(driver_, life_, device_);
  if (context) {
    life_.note(driver_.event_destroy(handle_of(event)));
    const std::lock_guard<std::mutex> guard(mutex_);
    --made_;
  }
}

bool StreamEvents::is_captured(StreamId stream) noexcept {
  if (!life_.may_call()) return false;
  const DeviceContext context(driver_, life_, device_);
  int status = 0;
  if (!context) return false;
  // The query fails for the legacy stream while another stream captures. Count that as captured.
  return life_.note(driver_.stream_capturing(handle_of(stream), &status)) != kSuccess ||
         status != 0;
}

bool StreamEvents::is_foreign(StreamId stream) noexcept {
  if (foreign_count_.load(std::memory_order_acquire) == 0) [[likely]]
    return false;
  const std::lock_guard<std::mutex> guard(mutex_);
  return std::find(foreign_.begin(), foreign_.end(), stream) != foreign_.end();
}

StreamId StreamEvents::stand_in(StreamId stream) noexcept {
  StreamId ours = stream;
  if (is_foreign(stream) && !is_captured(stream)) (void)stand_in_for(stream, &ours);
  return ours;
}

bool StreamEvents::note_foreign(StreamId stream) noexcept {
  if (is_foreign(stream)) return true;
  const std::lock_guard<std::mutex> guard(mutex_);
  try {
    // Another thread may have added the stream meanwhile; a duplicate does no harm.
    foreign_.push_back(stream);
  } catch (...) {
    return false;
  }
  foreign_count_.store(foreign_.size(), std::memory_order_release);
  return true;
}

// Returns 0 if the driver provides no stream.
StreamId StreamEvents::make_stand_in() noexcept {
  const DeviceContext context(driver_, life_, device_);
  if (!context) return {};
  const std::lock_guard<std::mutex> guard(mutex_);
  void* made = nullptr;
  if (stand_in_.value == 0 &&
      life_.note(driver_.stream_create(&made, kBesideTheLegacyStream)) == kSuccess) {
    stand_in_ = {reinterpret_cast<std::uint64_t>(made)};
  }
  return stand_in_;
}

bool StreamEvents::stand_in_for(StreamId stream, StreamId* stand_in) noexcept {
  const StreamId ours = make_stand_in();
  if (ours.value == 0) return false;
  follow(ours, stream);
  *stand_in = ours;
  return true;
}

StreamEvents::Count StreamEvents::count() noexcept {
  const std::lock_guard<std::mutex> guard(mutex_);
  return {made_, idle_.size()};
}

}  // namespace pleat::allocator::cuda
