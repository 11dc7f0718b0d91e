#include "allocator/host/idle_trimmer.h"

#include <csignal>

#include <algorithm>

namespace pleat::allocator {
namespace {

constexpr std::size_t kStackBytes = 256u << 10;
constexpr std::int64_t kWorthIt = 1 << 20;  // bytes
constexpr int kSoon = 4;                    // looks after a trim
constexpr int kMostPatience = 16;

}  // namespace

IdleTrimmer::~IdleTrimmer() {
  const std::lock_guard<std::mutex> guard(start_mutex_);
  end_thread();
}

void IdleTrimmer::start() noexcept {
  const std::lock_guard<std::mutex> guard(start_mutex_);
  if (started_.load(std::memory_order_relaxed)) {
    return;
  }
  started_.store(true, std::memory_order_relaxed);
  stop_ = false;
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) {
    return;
  }
  (void)pthread_attr_setstacksize(&attributes, kStackBytes);
  // Signals must go to the job's own threads.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  has_thread_ = pthread_create(
                    &thread_, &attributes,
                    [](void* self) -> void* {
                      static_cast<IdleTrimmer*>(self)->run();
                      return nullptr;
                    },
                    this) == 0;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
  if (has_thread_) {
    (void)pthread_setname_np(thread_, "pleat-idle");
  }
}

void IdleTrimmer::end_thread() noexcept {
  if (has_thread_) {
    {
      const std::lock_guard<std::mutex> guard(mutex_);
      stop_ = true;
    }
    wake_.notify_one();
    pthread_join(thread_, nullptr);
    has_thread_ = false;
  }
  started_.store(false, std::memory_order_relaxed);
}

void IdleTrimmer::lock_for_fork() noexcept {
  start_mutex_.lock();
  end_thread();
}

void IdleTrimmer::unlock_after_fork() noexcept { start_mutex_.unlock(); }

std::uint64_t IdleTrimmer::uses() const noexcept {
  const StatValues requested = pool_.statistics().read(StatKind::kRequested);
  return static_cast<std::uint64_t>(requested.allocated) +
         static_cast<std::uint64_t>(requested.freed);
}

void IdleTrimmer::run() noexcept {
  std::unique_lock<std::mutex> lock(mutex_);
  std::chrono::milliseconds patience = patience_;
  std::uint64_t seen = uses();
  int looks = -1;  // looks since the last trim; -1: the pool was used since
  while (!wake_.wait_for(lock, patience, [this] { return stop_; })) {
    const std::uint64_t now = uses();
    if (now != seen) {
      if (looks >= 0) {
        patience = looks < kSoon ? std::min(2 * patience, kMostPatience * patience_) : patience_;
        looks = -1;
      }
      seen = now;
    } else if (looks >= 0) {
      looks = std::min(looks + 1, kSoon);
    } else if (pool_.statistics().current(StatKind::kCached) >= kWorthIt) {
      pool_.trim();
      seen = uses();
      looks = 0;
    }
  }
}

}  // namespace pleat::allocator
