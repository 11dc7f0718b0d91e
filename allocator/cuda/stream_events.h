// The order of a CUDA device's streams, by events of its driver. A StreamId is a CUstream; 0 is the
// legacy default stream.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "allocator/cuda/driver.h"
#include "allocator/residency/stream_order.h"

namespace pleat::allocator::cuda {

class StreamEvents final : public StreamOrder {
 public:
  // `driver` and `life` outlive this. Makes no CUDA call.
  StreamEvents(const Driver& driver, DriverLife& life, int device) noexcept
      : driver_(driver), life_(life), device_(device) {}
  // Events are not destroyed: where this ends, the driver may be gone.
  ~StreamEvents() override = default;
  StreamEvents(const StreamEvents&) = delete;
  StreamEvents& operator=(const StreamEvents&) = delete;

  // Where the driver gives no event, the stream is waited for. Where it may not be called any more,
  // all that was queued counts as complete.
  [[nodiscard]] EventHandle record(StreamId stream) noexcept override;
  void wait(StreamId stream, EventHandle event) noexcept override;
  [[nodiscard]] bool complete(EventHandle event) noexcept override;
  void synchronize(EventHandle event) noexcept override;
  void release(EventHandle event) noexcept override;
  [[nodiscard]] bool is_captured(StreamId stream) noexcept override;
  [[nodiscard]] bool is_foreign(StreamId stream) noexcept override;
  [[nodiscard]] StreamId stand_in(StreamId stream) noexcept override;

  // From now on the stream is foreign. False if there is no memory to note that.
  [[nodiscard]] bool note_foreign(StreamId stream) noexcept;
  // Returns a stream of ours that comes after all that `stream`, a foreign one, was given so far,
  // and serves instead of it later; false if the driver gives none.
  [[nodiscard]] bool stand_in_for(StreamId stream, StreamId* stand_in) noexcept;

  // How many were made; of these, how many nobody holds.
  struct Count {
    std::size_t made = 0, idle = 0;
  };
  [[nodiscard]] Count count() noexcept;

  // In a forked child the lock may be somebody's who is not there.
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
