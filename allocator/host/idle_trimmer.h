// IdleTrimmer releases a pool's free pages after a period in which no thread used the pool. The
// pool itself examines its pages only when it is used. A job that has freed its tensors and
// continues in numpy or pandas would keep those pages resident.
#pragma once

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "allocator/host/pool.h"

namespace pleat::allocator {

// Runs one thread, from the first use on. Once per `patience` the thread checks for allocations and
// frees since its last check. If trimmed pages are soon needed again, the thread waits up to 16
// times as long: a job that pauses between its steps must not fault in all of its memory at each.
class IdleTrimmer {
 public:
  explicit IdleTrimmer(Pool& pool,
                       std::chrono::milliseconds patience = std::chrono::seconds(1)) noexcept
      : pool_(pool), patience_(patience) {}
  ~IdleTrimmer();
  IdleTrimmer(const IdleTrimmer&) = delete;
  IdleTrimmer& operator=(const IdleTrimmer&) = delete;

  // Must be called before an allocation, without the pool's lock. Starts the thread if it does not
  // run; without the thread the pool is not trimmed.
  void note_use() noexcept {
    if (!started_.load(std::memory_order_relaxed)) [[unlikely]] {
      start();
    }
  }

  // Around fork(), taken before and released after the pool's lock. Ends the thread: the child
  // would not have it, and a forking process should not look multi-threaded. The next use, in
  // parent or child, starts it again.
  void lock_for_fork() noexcept;
  void unlock_after_fork() noexcept;

 private:
  void start() noexcept;
  void end_thread() noexcept;
  void run() noexcept;
  [[nodiscard]] std::uint64_t uses() const noexcept;

  Pool& pool_;
  const std::chrono::milliseconds patience_;
  std::atomic<bool> started_{false};
  std::mutex start_mutex_;  // guards the start and the end of the thread
  pthread_t thread_{};
  bool has_thread_ = false;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;  // guarded by mutex_
};

}  // namespace pleat::allocator
