// Gives a pool's free pages back when nobody has used it for a while. The pool itself looks at its
// pages only when it is used; a job that has freed its tensors and goes on in numpy or pandas would
// keep them resident beside what it needs now.
#pragma once

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "allocator/host/pool.h"

namespace pleat::allocator {

// One thread, from the first use on, which looks once per `patience` whether anything was allocated
// or freed since. Where pages are soon wanted again it waits up to 16 times as long, so that a job
// that pauses between its steps does not fault in all of its memory at every one.
class IdleTrimmer {
 public:
  explicit IdleTrimmer(Pool& pool,
                       std::chrono::milliseconds patience = std::chrono::seconds(1)) noexcept
      : pool_(pool), patience_(patience) {}
  ~IdleTrimmer();
  IdleTrimmer(const IdleTrimmer&) = delete;
  IdleTrimmer& operator=(const IdleTrimmer&) = delete;

  // Before an allocation; no lock of the pool may be held. Starts the thread if there is none; if
  // it cannot be had, goes without.
  void note_use() noexcept {
    if (!started_.load(std::memory_order_relaxed)) [[unlikely]] {
      start();
    }
  }

  // Around fork(), before and after the pool's lock: the child has no such thread, nor should the
  // process look as if it had several. It starts again with the next use, on either side.
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
  std::mutex start_mutex_;  // guards the thread's coming and going
  pthread_t thread_{};
  bool has_thread_ = false;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;  // guarded by mutex_
};

}  // namespace pleat::allocator
