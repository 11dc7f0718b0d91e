// StreamEvents orders work across a CUDA device's streams by events of its driver. A StreamId is a
// CUstream; 0 is the legacy default stream.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "allocator/cuda/driver.h"
#include "allocator/store/stream_order.h"

namespace pleat::allocator::cuda {

class StreamEvents final : public StreamOrder {
 public:
  // `driver` and `life` outlive this object. Makes no CUDA call.
  StreamEvents(const Driver& driver, DriverLife& life, int device) noexcept
      : driver_(driver), life_(life), device_(device) {}
  // Does not destroy the events: the driver can be gone by then.
  ~StreamEvents() override = default;
  StreamEvents(const StreamEvents&) = delete;
  StreamEvents& operator=(const StreamEvents&) = delete;

  // If the driver provides no event, record() waits for the stream. Once the driver must not be
  // called any more, all queued work counts as complete.
  [[nodiscard]] EventHandle record(StreamId stream) noexcept override;
  void wait(StreamId stream, EventHandle event) noexcept override;
  [[nodiscard]] bool complete(EventHandle event) noexcept override;
  void synchronize(EventHandle event) noexcept override;
  void release(EventHandle event) noexcept override;
  [[nodiscard]] bool is_captured(StreamId stream) noexcept override;
  [[nodiscard]] bool is_foreign(StreamId stream) noexcept override;
  [[nodiscard]] StreamId stand_in(StreamId stream) noexcept override;

  // Marks the stream as foreign from now on. False if memory is short.
  [[nodiscard]] bool note_foreign(StreamId stream) noexcept;
  // Returns a stream of Pleat's own that comes after all work queued on `stream`, a foreign stream,
  // so far. The stand-in takes the place of `stream` later. False if the driver provides none.
  [[nodiscard]] bool stand_in_for(StreamId stream, StreamId* stand_in) noexcept;

  // Number of events made, and how many of these are idle.
  struct Count {
    std::size_t made = 0, idle = 0;
  };
  [[nodiscard]] Count count() noexcept;

  // Held across fork(): otherwise a thread that the child does not have could own the lock.
  void lock_for_fork() noexcept { mutex_.lock(); }
  void unlock_after_fork() noexcept { mutex_.unlock(); }

 private:
  [[nodiscard]] void* take() noexcept;
  [[nodiscard]] StreamId make_stand_in() noexcept;

  const Driver& driver_;
  DriverLife& life_;
  const int device_;
  std::mutex mutex_;  // innermost
  std::vector<void*> idle_;
  std::size_t made_ = 0;
  std::vector<StreamId> foreign_;
  std::atomic<std::size_t> foreign_count_{0};
  StreamId stand_in_{};  // of all foreign streams
};

}  // namespace pleat::allocator::cuda
