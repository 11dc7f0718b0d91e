// The ordinals of saved tensors. A key is a family and an ordinal, which counts the tensors of the
// family in one graph. A graph is what one thread has recorded since a backward pass last began
// over something that the thread recorded. So each of two threads that train side by side gets the
// same keys in every step, and so does a thread whose graph another thread runs. Torch-free.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

namespace pleat::bridge {

class KeyBook {
 public:
  // What one thread counts. Its functions but the constructor are that thread's only, and never
  // fail: without memory, or beyond 65536 families in one graph, new families do not count.
  class Recording {
   public:
    // `thread`: a number of the thread's own, as start_anew() will name it. Throws std::bad_alloc.
    Recording(KeyBook& book, std::uint64_t thread);
    ~Recording();
    Recording(const Recording&) = delete;
    Recording& operator=(const Recording&) = delete;

    // The ordinal of the next tensor of that family; the same until it is taken.
    [[nodiscard]] std::uint32_t next(std::uint64_t family) noexcept;
    void take(std::uint64_t family) noexcept;

   private:
    friend class KeyBook;
    struct Count {
      std::uint64_t family = 0;
      std::uint64_t graph = 0;  // in which it counts; 0: the place is free
      std::uint32_t ordinal = 0;
    };
    Count* count_of(std::uint64_t family) noexcept;
    Count& place_of(std::uint64_t family) noexcept;
    bool make_room() noexcept;

    KeyBook& book_;
    const std::uint64_t thread_;
    std::atomic<std::uint64_t> graph_{1};  // raised by whichever thread begins a backward pass
    std::uint64_t counted_graph_ = 1;
    // Open addressing, a power of two of places, at most half of them taken. A family is a hash.
    std::vector<Count> counts_;
    std::size_t families_ = 0;
  };

  KeyBook() = default;
  KeyBook(const KeyBook&) = delete;
  KeyBook& operator=(const KeyBook&) = delete;

  // A backward pass begins over what these threads have recorded: what they record from now on is
  // another graph. Any thread; a number that no Recording has (any more) is passed over.
  void start_anew(std::span<const std::uint64_t> threads) noexcept;

  void lock_for_fork() noexcept { mutex_.lock(); }
  void unlock_after_fork() noexcept { mutex_.unlock(); }

 private:
  std::mutex mutex_;
  std::unordered_map<std::uint64_t, Recording*> recordings_;  // by thread
};

}  // namespace pleat::bridge
