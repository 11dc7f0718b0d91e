// Keeps fork() out of sections whose locks a child could never take: they belong to threads that it
// does not have.
#pragma once

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

namespace pleat::allocator {

enum class ForkSide : bool { kParent, kChild };

// Sections take an atomic addition each way; they may be long (an encode) and run side by side.
class ForkGate {
 public:
  // Not within another section of the same gate and thread.
  class Section {
   public:
    explicit Section(ForkGate& gate) noexcept : gate_(gate) { gate.enter(); }
    ~Section() { gate_.inside_.fetch_sub(1, std::memory_order_release); }
    Section(const Section&) = delete;
    Section& operator=(const Section&) = delete;

   private:
    ForkGate& gate_;
  };

  // Before fork(): lets no new section begin and waits until none runs. Gives up waiting after
  // `patience`, for a section may wait for something that the forking thread itself holds.
  void close(std::chrono::milliseconds patience = std::chrono::seconds(2)) noexcept {
    entry_.lock();
    closed_.store(true, std::memory_order_seq_cst);
    const auto end = std::chrono::steady_clock::now() + patience;
    while (inside_.load(std::memory_order_seq_cst) != 0 && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
  // After it, on either side.
  void open(ForkSide side) noexcept {
    if (side == ForkSide::kChild) {
      inside_.store(0, std::memory_order_relaxed);  // threads that are not there leave no section
    }
    closed_.store(false, std::memory_order_relaxed);
    entry_.unlock();
  }

 private:
  void enter() noexcept {
    inside_.fetch_add(1, std::memory_order_seq_cst);
    while (closed_.load(std::memory_order_seq_cst)) {
      inside_.fetch_sub(1, std::memory_order_release);
      entry_.lock();  // until the gate opens
      entry_.unlock();
      inside_.fetch_add(1, std::memory_order_seq_cst);
    }
  }

  std::atomic<int> inside_{0};
  std::atomic<bool> closed_{false};
  std::mutex entry_;
};

}  // namespace pleat::allocator
