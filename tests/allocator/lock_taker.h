// Takes every lock of a heap in another thread, as the owner of a recorder's lock could.
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "allocator/event_sink.h"
#include "allocator/lifecycle/residency.h"

namespace pleat::allocator::testing {

using ToldKinds = std::array<int, static_cast<std::size_t>(EventKind::kPagesMove) + 1>;

// Called while a sink is called. Ends the process with a message if a lock of Pleat's is held,
// because a waiting thread would never return.
inline void expect_no_lock_is_held(Residency& residency, EventKind told) {
  using Clock = std::chrono::steady_clock;
  constexpr auto kForEver = std::chrono::seconds(10);
  constexpr auto kGate = std::chrono::seconds(2);  // fork waits this long for the lock of a record
  std::mutex mutex;
  std::condition_variable changed;
  bool taken = false;
  bool record_is_free = false;
  std::thread taker([&] {
    for (int attempt = 0; attempt < 2 && !record_is_free; ++attempt) {
      const auto begin = Clock::now();
      residency.lock_for_fork();
      record_is_free = Clock::now() - begin < kGate;
      residency.unlock_after_fork(ForkSide::kParent);
    }
    const std::lock_guard<std::mutex> guard(mutex);
    taken = true;
    changed.notify_one();
  });
  {
    std::unique_lock<std::mutex> guard(mutex);
    changed.wait_for(guard, kForEver, [&] { return taken; });
    if (!taken || !record_is_free) {
      std::fprintf(stderr, "a lock is held while the sink is told of an event of kind %d\n",
                   static_cast<int>(told));
      std::abort();
    }
  }
  taker.join();
}

}  // namespace pleat::allocator::testing
