// ForkGate keeps fork() out of sections that hold locks. A child could never take those locks:
// their owners are threads that the child does not have.
#pragma once

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

namespace pleat::allocator {

enum class ForkSide : bool { kParent, kChild };

// A section costs two atomic additions. Sections can be long (an encode) and overlap.
class ForkGate {
 public:
  // Must not be entered within another section of the same gate and thread.
  class Section {
   public:
    explicit Section(ForkGate& gate) noexcept : gate_(gate) { gate.enter(); }
    ~Section() { gate_.inside_.fetch_sub(1, std::memory_order_release); }
    Section(const Section&) = delete;
    Section& operator=(const Section&) = delete;

   private:
    ForkGate& gate_;
  };

  // Before fork(): blocks new sections and waits until all running ones have ended. The wait ends
  // after `patience`, because a section can be waiting for a lock of the forking thread.
  void close(std::chrono::milliseconds patience = std::chrono::seconds(2)) noexcept {
    entry_.lock();
    closed_.store(true, std::memory_order_seq_cst);
    const auto end = std::chrono::steady_clock::now() + patience;
    while (inside_.load(std::memory_order_seq_cst) != 0 && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
  // After fork(), in the parent and in the child.
  void open(ForkSide side) noexcept {
    if (side == ForkSide::kChild) {
      inside_.store(0, std::memory_order_relaxed);  // the parent's other threads do not exist here,
                                                    // so their sections never end
    }
    closed_.store(false, std::memory_order_relaxed);
    entry_.unlock();
  }

 private:
  void enter() noexcept {
    inside_.fetch_add(1, std::memory_order_seq_cst);
    while (closed_.load(std::memory_order_seq_cst)) {
      inside_.fetch_sub(1, std::memory_order_release);
      entry_.lock();  // blocks until the gate opens
      entry_.unlock();
      inside_.fetch_add(1, std::memory_order_seq_cst);
    }
  }

  std::atomic<int> inside_{0};
  std::atomic<bool> closed_{false};
  std::mutex entry_;
};

}  // namespace pleat::allocator
